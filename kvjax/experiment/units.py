"""Units of work: what a run is cut into, and the least that a kill can lose."""

import math
from dataclasses import dataclass
from typing import Any

from kvjax.experiment.config import Experiment
from kvjax.experiment.records import Record


@dataclass(frozen=True)
class Unit:
    """One task on one compressor at one index (a context, a batch of needle prompts, a deployment)."""

    task: str
    compressor: str
    index: int

    @classmethod
    def of(cls, record: Record) -> "Unit":
        """The unit that a record belongs to."""
        return cls(record["task"], record["compressor"], record["index"])

    @property
    def label(self) -> str:
        """For progress and errors: `continuation 3: fp8`."""
        return f"{self.task} {self.index}: {self.compressor}"

    def record(self, measured: dict[str, Any]) -> Record:
        """The line of metrics.jsonl: the unit's key, then what was measured."""
        return {"task": self.task, "compressor": self.compressor, "index": self.index, **measured}


def plan(experiment: Experiment) -> tuple[Unit, ...]:
    """All units in the order they run: by task and index first, so that compressors share one reference.

    The cheap prediction comes first: a misspelt profile shows before anything long has run.
    """
    counts = {"serving": 1, "continuation": experiment.contexts}
    if experiment.needle:
        counts["needle"] = math.ceil(experiment.needle.prompts / experiment.needle.batch)
    specs = [str(compressor) for compressor in experiment.compressors]
    return tuple(Unit(task, spec, index) for task, count in counts.items() for index in range(count) for spec in specs)


def finite(value: Any) -> bool:
    """Whether every number in plain data (lists and objects included) is finite."""
    if isinstance(value, dict):
        return all(finite(item) for item in value.values())
    if isinstance(value, list):
        return all(finite(item) for item in value)
    return not isinstance(value, float) or math.isfinite(value)
