"""Runs an experiment unit by unit into a run folder; safe to kill and resume.

A unit is (task, compressor, index), and its record is a pure function of the experiment and the unit, so a resumed run
ends with the same numbers as one that was never stopped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvjax.experiment import environment, plots, table
from kvjax.experiment.config import Experiment
from kvjax.experiment.progress import Tracker
from kvjax.experiment.records import Record, RunFault, RunFolder
from kvjax.experiment.tasks import Bench, open_bench
from kvjax.experiment.units import Unit, finite, plan


@dataclass(frozen=True)
class RunResult:
    """What a finished run leaves.

    Attributes:
        folder: The run folder.
        records: One record a unit, in the order they were finished.
        rows: The table, one row a compressor.
    """

    folder: Path
    records: tuple[Record, ...]
    rows: tuple[table.Row, ...]


def run(
    experiment: Experiment,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    progress: bool = True,
    bench: Callable[[Experiment], Bench] = open_bench,
) -> RunResult:
    """Measures every unit of an experiment that its run folder does not hold yet, then writes table and plots.

    Args:
        experiment: What to measure.
        out: Run folder; `runs/<name>-<id>` by default.
        resume: Continue a run that was stopped.
        progress: Show progress on stderr.
        bench: Opens model, text and tasks; another one may be given to measure something else by the same rules.

    Raises:
        ValueError: unusable settings, or a folder that cannot take this run.
        RunFault: the folder became unwritable, or a unit gave numbers that are not finite.
    """
    folder = RunFolder.create(out or default_folder(experiment), experiment, resume=resume)
    with folder.writer() as writer:
        done = {Unit.of(record) for record in folder.records()}
        units = plan(experiment)
        if any(unit not in done for unit in units):
            opened = bench(experiment)
            folder.begin_session(experiment, opened.fingerprints, environment.session())
            compressors = {str(compressor): compressor for compressor in experiment.compressors}
            with Tracker(len(units), done=len(done), show=progress) as tracker:
                prepared: tuple[str, int] | None = None
                for unit in units:
                    if unit in done:
                        continue
                    task = opened.tasks[unit.task]
                    if prepared != (unit.task, unit.index):  # shared by all compressors: one dense reference a context
                        tracker.note(f"{unit.task} {unit.index}: reference")
                        shared = task.prepare(unit.index)
                        prepared = (unit.task, unit.index)
                    tracker.note(unit.label)
                    measured = task.measure(shared, compressors[unit.compressor])
                    if not finite(measured):
                        raise RunFault(f"{unit.label} gave numbers that are not finite; nothing of it was recorded")
                    writer.append(unit.record(measured))
                    tracker.advance(unit.label)
    return report(experiment, folder)


def report(experiment: Experiment, folder: RunFolder) -> RunResult:
    """Writes table.md and the plots of a run folder from its records."""
    records = folder.records()
    rows = table.rows(experiment, records)
    folder.write("table.md", table.markdown(experiment, rows))
    for name, picture in plots.draw(experiment, rows).items():
        folder.write(name, picture)
    return RunResult(folder.path, tuple(records), tuple(rows))


def default_folder(experiment: Experiment) -> Path:
    """`runs/<name>-<id>` under the current folder."""
    return Path("runs") / f"{experiment.name}-{experiment.id}"
