import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvjax.experiment.records import RunFault
from kvjax.experiment.runner import run
from kvjax.experiment.units import Unit, finite, plan

SCRIPT = Path(__file__).parent / "fake_bench.py"


@pytest.fixture(scope="module")
def whole(fake, tmp_path_factory):
    """A run that was never stopped."""
    return run(fake.EXPERIMENT, tmp_path_factory.mktemp("whole") / "run", progress=False, bench=fake.opener())


def test_plan_has_every_unit_once_and_keeps_those_of_one_reference_together(fake) -> None:
    units = plan(fake.EXPERIMENT)
    assert len(units) == len(set(units)) == 3 * (3 + 3 + 1)  # compressors x (contexts + needle batches + serving)
    keys = [(unit.task, unit.index) for unit in units]
    assert keys == sorted(keys, key=list(dict.fromkeys(keys)).index)


def test_run_folder_holds_all_that_the_design_names(whole) -> None:
    names = {path.name for path in whole.folder.iterdir()}
    assert names == {"config.json", "env.json", "metrics.jsonl", "table.md", "kl.png", "needle.png"}
    environment = json.loads((whole.folder / "env.json").read_text())
    assert environment["fingerprints"] == {"model": "m", "text": "t"}
    assert environment["sessions"][0]["versions"]["jax"]


def test_references_are_prepared_once_a_context(fake, tmp_path) -> None:
    opened = fake.opener()
    run(fake.EXPERIMENT, tmp_path / "run", progress=False, bench=opened)
    tasks = opened(fake.EXPERIMENT).tasks
    assert tasks["continuation"].prepared == [0, 1, 2] and tasks["needle"].prepared == [0, 1, 2]


@pytest.mark.parametrize("stop", [0, 1, 10, 20])
def test_a_run_stopped_by_an_error_and_resumed_ends_with_the_same_bytes(fake, whole, tmp_path, stop: int) -> None:
    calls = iter(range(1000))

    def fail() -> None:
        if next(calls) == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(fake.EXPERIMENT, tmp_path / "run", progress=False, bench=fake.opener(fail))
    assert len((tmp_path / "run" / "metrics.jsonl").read_bytes().splitlines()) == stop
    run(fake.EXPERIMENT, tmp_path / "run", resume=True, progress=False, bench=fake.opener())
    for name in ("config.json", "metrics.jsonl", "table.md"):
        assert (tmp_path / "run" / name).read_bytes() == (whole.folder / name).read_bytes()


def test_a_run_killed_twice_and_resumed_ends_with_the_same_bytes(whole, tmp_path) -> None:
    out = tmp_path / "run"
    for kill_at, code in ((4, -signal.SIGKILL), (7, -signal.SIGKILL), (-1, 0)):
        command = [sys.executable, str(SCRIPT), str(out), str(kill_at)]
        assert subprocess.run(command, check=False).returncode == code
        if code:  # each session loses at most the unit that it was in
            with (out / "metrics.jsonl").open("ab") as file:
                file.write(b'{"task": "cont')  # what a kill inside a write would leave
    for name in ("metrics.jsonl", "table.md"):
        assert (out / name).read_bytes() == (whole.folder / name).read_bytes()
    assert len(json.loads((out / "env.json").read_text())["sessions"]) == 3


def test_a_finished_run_resumed_opens_no_model(fake, whole) -> None:
    def no_model(experiment):
        raise AssertionError("opened")

    again = run(fake.EXPERIMENT, whole.folder, resume=True, progress=False, bench=no_model)
    assert again == whole


def test_resuming_under_another_text_is_an_error_that_keeps_the_records(fake, tmp_path) -> None:
    def stop() -> None:
        if (tmp_path / "run" / "metrics.jsonl").stat().st_size:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(fake.EXPERIMENT, tmp_path / "run", progress=False, bench=fake.opener(stop))
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match="begun with another text"):
        run(fake.EXPERIMENT, tmp_path / "run", resume=True, progress=False, bench=fake.opener(text="u"))
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_numbers_that_are_not_finite_are_a_fault_that_names_the_unit(fake, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(fake.FakeTask, "measure", lambda self, index, chosen: {"kl": [0.0, float("nan")]})
    with pytest.raises(RunFault, match="serving 0: bf16 gave numbers that are not finite"):
        run(fake.EXPERIMENT, tmp_path / "run", progress=False, bench=fake.opener())
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == b""


def test_finite() -> None:
    assert finite({"a": [1, 2.0, "nan", True], "b": {"c": None}})
    assert not finite({"a": [1.0, [float("inf")]]})


def test_plain_progress_lines_count_up(fake, tmp_path, capsys) -> None:
    run(fake.EXPERIMENT, tmp_path / "run", bench=fake.opener())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21
    assert lines[0].startswith("[1/21]") and lines[-1].startswith("[21/21]")


def test_unit_of_a_record() -> None:
    unit = Unit("needle", "fp8", 2)
    assert Unit.of(unit.record({"found": [1]})) == unit
