"""Strict reading of a JSON object: fields are asked for by name and type, and what nobody asked for is an error."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kvjax.suggest import did_you_mean


def read_json(path: Path) -> Any:
    """Content of a JSON file; a ValueError names the file if it is missing or is not JSON."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}.") from None


class Required:
    """The default of a field that has none."""


REQUIRED = Required()


class FieldReader:
    """Reads the fields of one JSON object and remembers which were read, so that `finish` can name the rest.

    A field that is null counts as absent. Every error is a ValueError that names the object (`where`) and the field.
    """

    def __init__(self, fields: Mapping[str, Any], where: str):
        if not isinstance(fields, Mapping):
            raise ValueError(f"{where}: expected an object of named fields, got {fields!r}.")
        self.fields = fields
        self.where = where
        self.asked: set[str] = set()

    def get(self, name: str, kind: type | tuple[type, ...], default: Any = REQUIRED) -> Any:
        """The field as it stands, checked to be of `kind` (a bool is no number)."""
        self.asked.add(name)
        value = self.fields.get(name)
        if value is None:
            if isinstance(default, Required):
                raise ValueError(f"{self.where}: the field {name!r} is missing.")
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{self.where}: {name!r} is {value!r}, expected {' or '.join(k.__name__ for k in kinds)}.")
        return value

    def size(self, name: str, default: Any = REQUIRED) -> Any:
        """A whole number of at least 1 (or the default, which may be None)."""
        value = self.get(name, int, default)
        if value is not None and value < 1:
            raise ValueError(f"{self.where}: {name!r} is {value}, expected at least 1.")
        return value

    def number(self, name: str, default: Any = REQUIRED) -> Any:
        """A positive number as float (or the default, which may be None)."""
        value = self.get(name, (int, float), default)
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{self.where}: {name!r} is {value}, expected a finite number above 0.")
        return None if value is None else float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or False."""
        value: bool = self.get(name, bool, default)
        return value

    def only(self, name: str, allowed: Any) -> None:
        """The field is absent or has the one value that kvjax computes."""
        self.asked.add(name)
        value = self.fields.get(name)
        if value is not None and value != allowed:
            raise ValueError(f"{self.where}: {name!r} is {value!r}, but kvjax computes only {allowed!r}.")

    def finish(self, harmless: Collection[str] = ()) -> None:
        """Raise if any field was neither asked for nor is known to be without effect on the numbers."""
        unknown = sorted(set(self.fields) - self.asked - set(harmless))
        if unknown:
            raise ValueError(
                f"{self.where}: unknown field{'s' * (len(unknown) > 1)} {', '.join(map(repr, unknown))}; "
                f"{did_you_mean(unknown[0], self.asked)}. "
                "A field may change what the model computes, so none is ignored; remove it if it has no effect."
            )
