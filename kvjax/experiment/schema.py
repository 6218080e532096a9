"""Plain data <-> frozen dataclasses, types checked: the mechanism behind config.json, Python configs and `--set`."""

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Any

from kvjax.compressor import Compressor, compressor
from kvjax.suggest import did_you_mean

_INT = re.compile(r"[+-]?(0|[1-9][0-9]*(_[0-9]+)*)")
_FLOAT = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def field_types(cls: type) -> dict[str, Any]:
    """Resolved annotation of each field that a user may set, in declaration order."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def optional(kind: Any) -> tuple[Any, bool]:
    """Splits `X | None` into (X, True); any other annotation comes back with False."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(kind) if arg is not type(None)]
        if len(inner) == 1:
            return inner[0], True
    return kind, False


def is_nested(kind: Any) -> bool:
    """Whether an annotation is a dataclass of settings, written as an object with fields of its own."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind is not Compressor


def convert(value: Any, kind: Any, where: str) -> Any:
    """Checks a value (from JSON or from Python) against an annotation and returns it in its final form.

    Whole numbers are taken for floats and spec strings for compressors; nothing else is coerced: "4" is no integer
    and 1 is no bool.

    Raises:
        ValueError: naming the field, what was given and what is allowed.
    """
    kind, may_be_none = optional(kind)
    if value is None and may_be_none:
        return None
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{where} must be a list, got {value!r}")
        element = typing.get_args(kind)[0]
        return tuple(convert(item, element, f"{where}[{index}]") for index, item in enumerate(value))
    if kind is Compressor:
        if not isinstance(value, Compressor | str):
            raise ValueError(f"{where} must be a compressor or its spec string, got {value!r}")
        return compressor(value) if isinstance(value, str) else value
    if is_nested(kind):
        return value if isinstance(value, kind) else build(kind, value, where)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{where} must be {_KIND_NAMES[kind]}, got {value!r}")
    if kind is float and not math.isfinite(value):
        raise ValueError(f"{where} must be a finite number, got {value!r}")
    return value


def build(cls: type, mapping: Any, where: str = "") -> Any:
    """Builds a dataclass from a mapping of its fields.

    Raises:
        ValueError: unknown field (with the nearest known one), missing field, or a value of the wrong type.
    """
    if not isinstance(mapping, Mapping):
        raise ValueError(f"{where or cls.__name__} must be an object with named fields, got {mapping!r}")
    allowed = field_types(cls)
    prefix = f"{where}." if where else ""
    for name in mapping:
        if name not in allowed:
            raise ValueError(f"unknown field {prefix}{name}; {did_you_mean(str(name), allowed)}")
    required = [
        field.name
        for field in dataclasses.fields(cls)
        if field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    for name in required:
        if name not in mapping:
            raise ValueError(f"missing field {prefix}{name} (required: {', '.join(required)})")
    return cls(**{name: convert(value, allowed[name], prefix + name) for name, value in mapping.items()})


def plain(value: Any) -> Any:
    """The reverse of `convert`: what json.dumps takes. A compressor becomes its spec string."""
    if isinstance(value, Compressor):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {name: plain(getattr(value, name)) for name in field_types(type(value))}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


def parse(text: str, kind: Any, where: str) -> Any:
    """Reads the text of one `--set` value by the annotation of its field, never by guessing.

    Integers are decimal digits (`_` between digits allowed); floats also take a point and an exponent, so 1e-3 is
    0.001. A leading zero (010) is an error in both, because readers disagree whether it is 8 or 10. Booleans are
    `true` and `false` only, an optional field takes `none`, a list separates its items with `;`, and everything else
    is the text itself: `no` and `12:30:45` stay text.

    >>> parse("1e-3", float, "x"), parse("none", int | None, "x"), parse("1;2", tuple[int, ...], "x")
    (0.001, None, (1, 2))

    Raises:
        ValueError: naming the field, the text and the accepted form.
    """
    kind, may_be_none = optional(kind)
    if may_be_none and text == "none":
        return None
    if typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        items = [item.strip() for item in text.split(";") if item.strip()]
        return tuple(parse(item, element, f"{where}[{index}]") for index, item in enumerate(items))
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError(f"{where} must be true or false, got {text!r}")
        return text == "true"
    if kind is int:
        if not _INT.fullmatch(text):
            raise ValueError(f"{where} must be a whole number such as 1024 (no leading zero), got {text!r}")
        return int(text)
    if kind is float:
        if not _FLOAT.fullmatch(text):
            raise ValueError(f"{where} must be a number such as 0.5 or 1e-3 (no leading zero), got {text!r}")
        return convert(float(text), float, where)
    return convert(text, kind, where)


_KIND_NAMES: dict[Any, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
