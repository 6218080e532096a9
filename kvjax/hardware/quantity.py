"""A number that says where it comes from: value, unit, source, kind and range; converted to SI once, here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvjax.hardware.errors import check_names

_BYTES = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
UNITS: Mapping[str, Mapping[str, float]] = {
    "bytes": _BYTES,
    "bytes/s": {f"{unit}/s": factor for unit, factor in _BYTES.items()},
    "seconds": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    "FLOP/s": {"FLOP/s": 1.0, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15},
    "fraction": {"1": 1.0},
    "count": {"1": 1.0},
}
"""What a unit measures, and its size in SI (bytes, seconds, FLOP/s)."""

KINDS = ("measured", "datasheet", "claimed", "assumed")
"""`measured`: on the device, or fitted to measurements; `datasheet`: its maker's published figure; `claimed`: stated
by someone without a way to check it; `assumed`: chosen by kvjax so that a prediction can be made at all."""

_FIELDS = ("value", "unit", "source", "kind", "range")


@dataclass(frozen=True)
class Quantity:
    """One value of a hardware profile.

    Attributes:
        value: in SI units (bytes, bytes/s, seconds, FLOP/s, or a plain number).
        low: least plausible value, SI.
        high: greatest plausible value, SI.
        unit: the unit it was written in.
        source: who says so.
        kind: one of `KINDS`.
    """

    value: float
    low: float
    high: float
    unit: str
    source: str
    kind: str

    @property
    def trusted(self) -> bool:
        """Whether the value was measured or published by the maker of a device that exists."""
        return self.kind in ("measured", "datasheet")

    def written(self, value: float | None = None) -> str:
        """`value` (default: its own) in the unit that the profile uses, for people to read."""
        factor = next(units[self.unit] for units in UNITS.values() if self.unit in units)
        number = (self.value if value is None else value) / factor
        return f"{number:g}" if self.unit == "1" else f"{number:g} {self.unit}"


def read_quantity(data: Any, dimension: str, where: str) -> Quantity:
    """Builds a quantity from its TOML table and converts it to SI.

    >>> table = {"value": 2, "unit": "TB/s", "kind": "claimed", "range": [1.8, 2.2], "source": "a report"}
    >>> read_quantity(table, "bytes/s", "memory.bandwidth").value
    2000000000000.0

    Args:
        data: the table `{ value, unit, source, kind, range }`.
        dimension: what it has to measure, a key of `UNITS`.
        where: name of the value for errors, such as `memory.bandwidth`.

    Raises:
        ValueError: a part is missing or unknown, the unit measures something else, or the value is not in its range.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{where} must be a table {{ {', '.join(_FIELDS)} }}, got {data!r}")
    check_names(data, _FIELDS, _FIELDS, where)
    unit, kind, source, span = data["unit"], data["kind"], data["source"], data["range"]
    units = UNITS[dimension]
    if unit not in units:
        raise ValueError(f"{where}.unit is {unit!r}, but this value is in {dimension}: one of {', '.join(units)}")
    if kind not in KINDS:
        raise ValueError(f"{where}.kind is {kind!r}, allowed: {', '.join(KINDS)}")
    if not isinstance(source, str) or not source.strip():
        raise ValueError(f"{where}.source must say where the value comes from, got {source!r}")
    if not isinstance(span, list) or len(span) != 2:
        raise ValueError(f"{where}.range must be [low, high] in {unit}, got {span!r}")
    value, low, high = (_number(number, where) for number in (data["value"], *span))
    if not 0 <= low <= value <= high:
        raise ValueError(f"{where} must satisfy 0 <= low <= value <= high, got value {value:g}, range {span}")
    if dimension == "fraction" and high > 1:
        raise ValueError(f"{where} is a fraction and cannot exceed 1, got range {span}")
    factor = units[unit]
    return Quantity(value * factor, low * factor, high * factor, unit, source, kind)


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        raise ValueError(f"{where}: value and range must be finite numbers, got {value!r}")
    return float(value)
