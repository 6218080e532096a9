"""Hardware profiles: what a device can do, read from TOML where every value carries its source."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from kvjax.hardware.errors import check_names
from kvjax.hardware.quantity import Quantity, read_quantity
from kvjax.suggest import did_you_mean

SHIPPED = Path(__file__).parent / "profiles"


def _rule(dimension: str, *, least: float | None = None) -> dict[str, Any]:
    """What a value measures; it and its range must be at least `least`, or greater than 0 (they are divided by)."""
    return {"dimension": dimension, "least": least}


@dataclass(frozen=True)
class Memory:
    """Device memory: `usable` is the share of `capacity` left after runtime, activations and reserve."""

    capacity: Quantity = field(metadata=_rule("bytes"))
    usable: Quantity = field(metadata=_rule("fraction"))
    bandwidth: Quantity = field(metadata=_rule("bytes/s"))
    efficiency: Quantity = field(metadata=_rule("fraction"))  # of the bandwidth, when weights are streamed


@dataclass(frozen=True)
class KVPath:
    """How the KV cache streams from memory to the cores (see `device.kv_stream`)."""

    efficiency: Quantity = field(metadata=_rule("fraction"))  # of the bandwidth, by plain loads
    prefetched_efficiency: Quantity = field(metadata=_rule("fraction"))  # of the bandwidth, with prefetch
    prefetch: Quantity = field(metadata=_rule("fraction", least=0.0))  # 1: an instruction exists and is used; 0: none
    engines_per_sm: Quantity = field(metadata=_rule("count", least=0.0))
    queue_depth: Quantity = field(metadata=_rule("count", least=0.0))  # transfers in flight per engine
    granule: Quantity = field(metadata=_rule("bytes", least=0.0))  # one transfer
    latency: Quantity = field(metadata=_rule("seconds"))  # of one transfer
    channel_bandwidth: Quantity = field(metadata=_rule("bytes/s", least=0.0))  # beside the memory's own; 0: none
    minimum_zone: Quantity = field(metadata=_rule("bytes", least=0.0))  # that one sequence owns in one layer; 0: none
    reread: Quantity = field(
        metadata=_rule("count", least=1.0)
    )  # reads of each KV entry in a step, up to the group size


@dataclass(frozen=True)
class Compute:
    """Matrix units: dense peak rates by number format, absent where the device does not have the format."""

    efficiency: Quantity = field(metadata=_rule("fraction"))
    sm_count: Quantity = field(metadata=_rule("count"))
    shared_memory_per_sm: Quantity = field(metadata=_rule("bytes", least=0.0))
    bf16: Quantity | None = field(default=None, metadata=_rule("FLOP/s"))
    fp8: Quantity | None = field(default=None, metadata=_rule("FLOP/s"))
    fp32: Quantity | None = field(default=None, metadata=_rule("FLOP/s"))


@dataclass(frozen=True)
class Overhead:
    """Time that no byte and no FLOP explains: launches, synchronisation, sampling."""

    per_layer: Quantity = field(metadata=_rule("seconds", least=0.0))


@dataclass(frozen=True)
class Link:
    """Device to device, one direction."""

    bandwidth: Quantity = field(metadata=_rule("bytes/s"))
    latency: Quantity = field(metadata=_rule("seconds", least=0.0))


@dataclass(frozen=True)
class Profile:
    """One device. All values are `Quantity`, in SI; `link` is absent where devices cannot be joined.

    Attributes:
        name: short name.
        title: one line.
        source: where the profile as a whole comes from.
        hypothetical: no such device could be examined; predictions hold under its claimed and assumed values only.
    """

    name: str
    title: str
    source: str
    hypothetical: bool
    memory: Memory
    kv: KVPath
    compute: Compute
    overhead: Overhead
    link: Link | None = None

    def quantities(self) -> Iterator[tuple[str, Quantity]]:
        """Every value with its dotted name, such as `memory.bandwidth`."""
        for section in _SECTIONS:
            part = getattr(self, section)
            for each in fields(part) if part is not None else ():
                quantity = getattr(part, each.name)
                if quantity is not None:
                    yield f"{section}.{each.name}", quantity

    def with_value(self, name: str, value: int | float) -> "Profile":
        """The same profile with one value changed (SI units): one feature off, or one end of a range.

        >>> load_profile("gp7000").with_value("kv.prefetch", 0.0).kv.prefetch.value
        0.0

        Raises:
            ValueError: no value has this name.
        """
        known = dict(self.quantities())
        if name not in known:
            raise ValueError(f"profile {self.name} has no value {name!r}; {did_you_mean(name, known)}")
        section, _, key = name.partition(".")
        part = replace(getattr(self, section), **{key: replace(known[name], value=float(value))})
        changes: dict[str, Any] = {section: part}
        return replace(self, **changes)


_SECTIONS: Mapping[str, type] = {
    "memory": Memory,
    "kv": KVPath,
    "compute": Compute,
    "overhead": Overhead,
    "link": Link,
}


class ProfileListing(NamedTuple):
    """One line of `list_profiles`."""

    name: str
    title: str
    source: str


def list_profiles() -> tuple[ProfileListing, ...]:
    """The shipped profiles: name, one line, source.

    >>> [listing.name for listing in list_profiles()]
    ['a100', 'cpu', 'gp7000', 'h100', 'h200']
    """
    profiles = [load_profile(path) for path in sorted(SHIPPED.glob("*.toml"))]
    return tuple(ProfileListing(profile.name, profile.title, profile.source) for profile in profiles)


def load_profile(name_or_path: str | Path) -> Profile:
    """Loads a shipped profile by name, or your own TOML file by path.

    >>> load_profile("gp7000").memory.bandwidth.value
    2000000000000.0

    Raises:
        ValueError: unknown name (with the nearest known one), unreadable file, or a missing, unknown or wrong value.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml":
        known = [shipped.stem for shipped in SHIPPED.glob("*.toml")]
        if name_or_path not in known:
            hint = did_you_mean(str(name_or_path), known)
            raise ValueError(f"unknown hardware profile {str(name_or_path)!r}; {hint}, or the path of a .toml file")
        path = SHIPPED / f"{name_or_path}.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read hardware profile {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"hardware profile {path} is not valid TOML: {error}") from error
    return _read_profile(data, path.name)


def _read_profile(data: Mapping[str, Any], where: str) -> Profile:
    names = [each.name for each in fields(Profile)]
    check_names(data, names, [name for name in names if name != "link"], where)
    for name, kind in (("name", str), ("title", str), ("source", str), ("hypothetical", bool)):
        if type(data[name]) is not kind:
            raise ValueError(f"{where}.{name} must be {'text' if kind is str else 'true or false'}, got {data[name]!r}")
    head = {name: data[name] for name in names if name not in _SECTIONS}
    sections = {
        name: _read_section(data[name], cls, f"{where}: {name}") for name, cls in _SECTIONS.items() if name in data
    }
    profile = Profile(**head, **sections)
    if profile.compute.bf16 is profile.compute.fp8 is profile.compute.fp32 is None:
        raise ValueError(f"missing field {where}: compute needs a peak rate: bf16, fp8 or fp32")
    return profile


def _read_section(data: Any, cls: type, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise ValueError(f"{where} must be a table of values, got {data!r}")
    known = {each.name: each for each in fields(cls)}
    check_names(data, list(known), [name for name, each in known.items() if each.default is MISSING], where)
    values = {}
    for name, table in data.items():
        rules = known[name].metadata
        quantity = read_quantity(table, rules["dimension"], f"{where}.{name}")
        if quantity.low <= 0 if rules["least"] is None else quantity.low < rules["least"]:
            allowed = "greater than 0" if rules["least"] is None else f"at least {rules['least']}"
            raise ValueError(f"{where}.{name} and its range must be {allowed}, got range {table['range']}")
        values[name] = quantity
    return cls(**values)
