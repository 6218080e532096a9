"""Table, plots and comparison, against records written by hand."""

import json

import pytest

from kvjax.compressor import compressor
from kvjax.experiment import plots, table
from kvjax.experiment.compare import as_text, compare
from kvjax.experiment.config import Experiment, Needle
from kvjax.experiment.records import RunFolder

EXPERIMENT = Experiment(
    name="hand", compressors=(compressor("fp8"),), context_tokens=100, contexts=2, needle=Needle(prompts=4, batch=4)
)
PREDICTED = {"ttft": 0.5, "tpot": 0.002, "decode_tokens_per_second": 8000.0}


def records(nll: float = 3.0, found: tuple[int, ...] = (1, 1, 1, 0)) -> list[dict]:
    context = {
        "context_tokens": 100,
        "nll": [nll, nll],
        "reference_nll": [2.0, 2.0],
        "kl": [0.1, 0.2, 0.3],
        "agreement": [1, 0, 1],
        "nbytes": [900, 100],
        "dense_nbytes": 2000,
    }
    return [
        {"task": "serving", "compressor": "fp8", "index": 0, **PREDICTED},
        {"task": "continuation", "compressor": "fp8", "index": 0, **context},
        {"task": "continuation", "compressor": "fp8", "index": 1, **context},
        {"task": "needle", "compressor": "fp8", "index": 0, "found": list(found)},
    ]


def written(path, experiment: Experiment, lines: list[dict], **fingerprints: str) -> RunFolder:
    folder = RunFolder.create(path, experiment)
    folder.begin_session(experiment, {"model": "m", "text": "t", **fingerprints}, {})
    with folder.writer() as writer:
        for line in lines:
            writer.append(line)
    return folder


def test_row_against_hand_arithmetic() -> None:
    (row,) = table.rows(EXPERIMENT, records())
    assert (row.payload_per_token, row.metadata_per_token, row.bytes_per_token) == (9.0, 1.0, 10.0)
    assert row.saved == 0.5
    assert row.dnll.estimate == pytest.approx(0.5)  # 3 nats for 2
    assert row.kl.estimate == pytest.approx(0.2)
    assert row.agreement.estimate == pytest.approx(2 / 3)
    assert row.needle.estimate == pytest.approx(0.75)
    assert 0 <= row.needle.low < 0.75 < row.needle.high <= 1
    assert (row.tpot, row.tokens_per_second) == (0.002, 8000.0)


def test_two_equal_contexts_leave_no_spread() -> None:
    (row,) = table.rows(EXPERIMENT, records())
    assert row.dnll.low == pytest.approx(row.dnll.high)


def test_markdown_shows_the_row() -> None:
    text = table.markdown(EXPERIMENT, table.rows(EXPERIMENT, records()))
    line = text.splitlines()[2]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:4] == ["fp8", "10", "9+1", "50.0%"]
    assert cells[4].startswith("+50.00 [") and cells[5].startswith("0.2000 [") and cells[7].startswith("75 [")
    assert cells[8:] == ["2.000", "8,000"]


def test_json_has_fractions_and_seconds() -> None:
    (row,) = json.loads(table.to_json(table.rows(EXPERIMENT, records())))
    assert (
        row["compressor"] == "fp8" and row["saved"] == 0.5 and row["bytes_per_token"] == 10.0 and row["tpot"] == 0.002
    )


def test_without_retrieval_there_is_no_needle_column_value_and_no_picture() -> None:
    experiment = Experiment(name="hand", compressors=EXPERIMENT.compressors, contexts=2, needle=None)
    rows = table.rows(experiment, records()[:3])
    assert rows[0].needle is None
    assert set(plots.draw(experiment, rows)) == {"kl.png"}


def test_pictures_are_png_files() -> None:
    pictures = plots.draw(EXPERIMENT, table.rows(EXPERIMENT, records()))
    assert set(pictures) == {"kl.png", "needle.png"}
    assert all(picture.startswith(b"\x89PNG") for picture in pictures.values())


def test_compare_pairs_units(tmp_path) -> None:
    first = written(tmp_path / "a", EXPERIMENT, records())
    second = written(tmp_path / "b", EXPERIMENT, records(nll=3.5, found=(1, 1, 0, 0)))
    differences = {d.measure: d for d in compare(first, second)}
    assert set(differences) == {"nll", "kl", "agreement", "needle"}
    nll, needle = differences["nll"], differences["needle"]
    assert (nll.first, nll.second, nll.pairs) == (3.0, 3.5, 2)
    assert nll.difference.estimate == pytest.approx(0.5)
    assert (needle.difference.estimate, needle.pairs) == (pytest.approx(-0.25), 4)
    assert differences["kl"].difference.estimate == 0
    assert "+0.5 [" in as_text(list(differences.values()))


@pytest.mark.parametrize("what", ["model", "text"])
def test_compare_refuses_other_models_and_texts(tmp_path, what: str) -> None:
    first = written(tmp_path / "a", EXPERIMENT, records())
    second = written(tmp_path / "b", EXPERIMENT, records(), **{what: "other"})
    with pytest.raises(ValueError, match=f"differ in {what}"):
        compare(first, second)


def test_compare_refuses_other_cuts_of_the_text(tmp_path) -> None:
    other = Experiment(name="hand", compressors=EXPERIMENT.compressors, context_tokens=200, contexts=2)
    first, second = written(tmp_path / "a", EXPERIMENT, records()), written(tmp_path / "b", other, records())
    with pytest.raises(ValueError, match="differ in context_tokens"):
        compare(first, second)


def test_compare_names_what_each_holds_when_nothing_is_common(tmp_path) -> None:
    other = Experiment(name="hand", compressors=(compressor("k16v8"),), context_tokens=100, contexts=2)
    renamed = [{**record, "compressor": "k16v8"} for record in records()]
    first, second = written(tmp_path / "a", EXPERIMENT, records()), written(tmp_path / "b", other, renamed)
    with pytest.raises(ValueError, match=r"no measured unit in common.*fp8.*k16v8"):
        compare(first, second)
