"""`--set a.b=value`: typed changes to an Experiment through dataclasses.replace."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from kvjax.experiment import schema
from kvjax.experiment.config import Experiment
from kvjax.suggest import did_you_mean


def apply_overrides(experiment: Experiment, assignments: Iterable[str]) -> Experiment:
    """Returns the experiment with each `path=value` applied in order.

    A path names nested fields with dots (`needle.prompts=4`). Values are read by the field's type, by the rules of
    `kvjax.experiment.schema.parse`.

    Raises:
        ValueError: no `=`, unknown field (with the nearest known one), or a value the field cannot take.
    """
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"--set takes field=value, got {assignment!r}")
        experiment = _replace(experiment, path.strip().split("."), text.strip(), f"--set {path.strip()}")
    return experiment


def _replace(settings: Any, path: list[str], text: str, where: str) -> Any:
    allowed = schema.field_types(type(settings))
    name, *rest = path
    if name not in allowed:
        raise ValueError(f"{where}: there is no field {name!r}; {did_you_mean(name, allowed)}")
    kind, may_be_none = schema.optional(allowed[name])
    if not schema.is_nested(kind):
        if rest:
            raise ValueError(f"{where}: {name} has no fields of its own; write {name}=value")
        return dataclasses.replace(settings, **{name: schema.parse(text, allowed[name], where)})
    if not rest:
        if may_be_none and text == "none":
            return dataclasses.replace(settings, **{name: None})
        inside = ", ".join(f"{name}.{field}" for field in schema.field_types(kind))
        raise ValueError(f"{where}: set its fields one by one: {inside}")
    current = getattr(settings, name)
    inner = _replace(kind() if current is None else current, rest, text, where)
    return dataclasses.replace(settings, **{name: inner})
