import errno
import json
import os

import pytest

from kvjax.compressor import compressor
from kvjax.experiment.config import Experiment
from kvjax.experiment.records import RunFault, RunFolder
from kvjax.files import write_atomic

EXPERIMENT = Experiment(name="tiny", compressors=(compressor("dense"),))
OTHER = Experiment(name="tiny", compressors=(compressor("fp8"),))


def filled(path, *records: dict) -> RunFolder:
    folder = RunFolder.create(path, EXPERIMENT)
    folder.begin_session(EXPERIMENT, {"model": "m", "text": "t"}, {"python": "3"})
    with folder.writer() as writer:
        for record in records:
            writer.append(record)
    return folder


def test_records_come_back_in_order_and_exactly(tmp_path) -> None:
    records = [{"index": 0, "nll": [0.1, 1e-30, 3.0]}, {"index": 1, "nll": [2 / 3]}]
    assert filled(tmp_path / "run", *records).records() == records


@pytest.mark.parametrize("torn", [b'{"index": 2, "nl', b"{}x\n", b"\x00\x00\x00", b'{"index": 2}'])
def test_a_torn_last_line_is_dropped_and_overwritten(tmp_path, torn: bytes) -> None:
    folder = filled(tmp_path / "run", {"index": 0}, {"index": 1})
    with (folder.path / "metrics.jsonl").open("ab") as file:
        file.write(torn)
    assert folder.records() == [{"index": 0}, {"index": 1}]
    with folder.writer() as writer:
        writer.append({"index": 2})
    assert (folder.path / "metrics.jsonl").read_text() == '{"index": 0}\n{"index": 1}\n{"index": 2}\n'


def test_damage_before_the_last_line_is_an_error_that_names_the_line(tmp_path) -> None:
    folder = filled(tmp_path / "run", {"index": 0}, {"index": 1})
    path = folder.path / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"index": 0}', b'{"index": 0'))
    with pytest.raises(ValueError, match="line 1 is damaged"):
        folder.records()


def test_another_experiment_in_the_folder_is_an_error(tmp_path) -> None:
    filled(tmp_path / "run", {"index": 0})
    for resume in (False, True):
        with pytest.raises(ValueError, match=r"holds another experiment.*--out"):
            RunFolder.create(tmp_path / "run", OTHER, resume=resume)


def test_the_same_experiment_needs_resume(tmp_path) -> None:
    folder = filled(tmp_path / "run", {"index": 0})
    with pytest.raises(ValueError, match="add --resume"):
        RunFolder.create(tmp_path / "run", EXPERIMENT)
    assert RunFolder.create(tmp_path / "run", EXPERIMENT, resume=True).records() == folder.records()


def test_a_folder_without_records_is_taken_as_new(tmp_path) -> None:
    filled(tmp_path / "run")
    folder = RunFolder.create(tmp_path / "run", OTHER)
    folder.begin_session(OTHER, {"model": "other"}, {})
    assert folder.settings()["compressors"] == ["fp8"] and folder.environment()["fingerprints"] == {"model": "other"}


def test_a_folder_of_other_files_is_not_touched(tmp_path) -> None:
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(ValueError, match="no run folder"):
        RunFolder.create(tmp_path, EXPERIMENT)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_resuming_with_another_model_or_text_is_an_error(tmp_path) -> None:
    folder = filled(tmp_path / "run", {"index": 0})
    with pytest.raises(ValueError, match=r"begun with another text \(t, now u\)"):
        folder.begin_session(EXPERIMENT, {"model": "m", "text": "u"}, {})


def test_each_session_is_noted(tmp_path) -> None:
    folder = filled(tmp_path / "run", {"index": 0})
    folder.begin_session(EXPERIMENT, {"model": "m", "text": "t"}, {"python": "4"})
    environment = json.loads((folder.path / "env.json").read_text())
    assert [session["python"] for session in environment["sessions"]] == ["3", "4"]


def test_two_writers_exclude_each_other(tmp_path) -> None:
    folder = filled(tmp_path / "run")
    with folder.writer(), pytest.raises(ValueError, match="another kvjax run is writing"):
        folder.writer()
    with folder.writer():
        pass


def test_full_disk_while_appending_keeps_what_is_written(tmp_path, monkeypatch) -> None:
    folder = filled(tmp_path / "run", {"index": 0})
    whole_write = os.write

    def half_then_full(file: int, data: bytes) -> int:
        if len(data) > 6:
            return whole_write(file, bytes(data[:6]))
        raise OSError(errno.ENOSPC, "No space left on device")

    with folder.writer() as writer:
        monkeypatch.setattr(os, "write", half_then_full)
        with pytest.raises(RunFault, match=r"No space left on device.*--resume"):
            writer.append({"index": 1})
        monkeypatch.undo()
    assert (folder.path / "metrics.jsonl").read_text() == '{"index": 0}\n'


def test_unwritable_place_is_one_clear_error(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write to .*--out"):
        RunFolder.create(tmp_path / "file" / "run", EXPERIMENT)


def test_atomic_write_keeps_the_old_file_when_the_disk_is_full(tmp_path, monkeypatch) -> None:
    path = tmp_path / "table.md"
    write_atomic(path, "old")

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, "new")
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_opening_what_is_no_run_folder(tmp_path) -> None:
    with pytest.raises(ValueError, match="no run folder"):
        RunFolder.open(tmp_path)
