"""Two runs side by side: paired differences with intervals, unit by unit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvjax.evaluate import Interval, mean_difference
from kvjax.experiment.records import Record, RunFolder
from kvjax.experiment.text import aligned
from kvjax.experiment.units import Unit

SAME_TEXT = ("context_tokens", "continuation_tokens", "seed")
"""Settings that say which tokens a context unit holds."""


@dataclass(frozen=True)
class Difference:
    """One measure of one compressor that both runs hold.

    Attributes:
        compressor: Its spec.
        measure: `nll`, `kl`, `agreement` (per token) or `needle` (share found).
        first: Mean in the first run, over the matched units' values.
        second: Mean in the second run.
        difference: second - first, with its 95 % paired bootstrap interval.
        pairs: Contexts (for the needle: prompts) that both runs hold.
    """

    compressor: str
    measure: str
    first: float
    second: float
    difference: Interval
    pairs: int


def compare(first: RunFolder, second: RunFolder) -> list[Difference]:
    """Differences (second - first) for every compressor and unit that both runs hold.

    Raises:
        ValueError: the runs measured different models or texts, or have no unit in common.
    """
    one, other = first.settings(), second.settings()
    _same_model_and_text(first, second, one, other)
    held, others = ({Unit.of(record): record for record in folder.records()} for folder in (first, second))
    differences = list(_differences(held, others, one.get("needle") == other.get("needle")))
    if not differences:
        specs = [", ".join(settings.get("compressors", [])) for settings in (one, other)]
        raise ValueError(f"no measured unit in common: {first.path} has {specs[0]}; {second.path} has {specs[1]}")
    return differences


def _differences(held: dict[Unit, Record], others: dict[Unit, Record], same_needle: bool) -> Iterator[Difference]:
    common = [unit for unit in held if unit in others]
    for spec in dict.fromkeys(unit.compressor for unit in common):
        for measure, (task, values) in MEASURES.items():
            units = [unit for unit in common if unit.compressor == spec and unit.task == task]
            if not units or (task == "needle" and not same_needle):
                continue
            a, b = ([np.asarray(data, float) for unit in units for data in values(run[unit])] for run in (held, others))
            first, second = (float(np.concatenate(side).mean()) for side in (a, b))
            yield Difference(spec, measure, first, second, mean_difference(b, a), len(a))


MEASURES: dict[str, tuple[str, Callable[[Record], list[Any]]]] = {
    "nll": ("continuation", lambda record: [record["nll"]]),
    "kl": ("continuation", lambda record: [record["kl"]]),
    "agreement": ("continuation", lambda record: [record["agreement"]]),
    "needle": ("needle", lambda record: [[hit] for hit in record["found"]]),
}
"""Measure -> its task, and what one record holds of it: the values of a context, or one value for each prompt."""


def _same_model_and_text(first: RunFolder, second: RunFolder, one: Record, other: Record) -> None:
    prints, others = (folder.environment().get("fingerprints", {}) for folder in (first, second))
    for name in sorted(prints.keys() | others.keys()):
        if prints.get(name) != others.get(name):
            raise ValueError(f"the runs differ in {name}: {prints.get(name)} and {others.get(name)}; nothing to pair")
    for name in SAME_TEXT:
        if one.get(name) != other.get(name):
            raise ValueError(
                f"the runs differ in {name} ({one.get(name)} and {other.get(name)}), so their texts differ: "
                f"nothing to pair"
            )


def as_text(differences: list[Difference]) -> str:
    """The differences as aligned columns; `*` marks intervals that do not hold 0."""
    rows = [
        [
            d.compressor,
            d.measure,
            f"{d.first:.5g}",
            f"{d.second:.5g}",
            f"{d.difference.estimate:+.3g} [{d.difference.low:+.3g}, {d.difference.high:+.3g}]",
            "*" if d.difference.low > 0 or d.difference.high < 0 else "",
            str(d.pairs),
        ]
        for d in differences
    ]
    return aligned(["compressor", "measure", "first", "second", "second - first", "", "pairs"], rows)
