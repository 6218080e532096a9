"""Spec strings: `snapkv(window=64) | uniform(keep=0.5) | fp8`, read without eval and written back from objects.

A spec is a Python expression of names, calls and `|`; `ast` parses it and only literals, names and calls are accepted.
A stage is a frozen dataclass; its name is its class variable `name`, its arguments are its fields.
"""

import ast
import dataclasses
import keyword
import types
import typing
from collections.abc import Mapping
from typing import Any

from kvjax.suggest import did_you_mean


def parse(spec: str, stages: Mapping[str, type]) -> list[Any]:
    """The stage objects of a spec, in the order written.

    Args:
        spec: stages joined by `|`, each `name` or `name(argument, key=value)`; arguments are numbers, strings (quotes
            optional where the string is a name), true/false, or stages.
        stages: classes by name.

    Raises:
        ValueError: naming what is wrong: syntax, an unknown stage or argument (with the nearest allowed one), a value
            of the wrong type, a missing argument.
    """
    if not spec.strip():
        raise ValueError("the compressor spec is empty; write for example 'knorm | uniform(keep=0.5) | fp8' or 'dense'")
    try:
        tree = ast.parse(spec.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(
            f"cannot read compressor spec {spec!r}: {error.msg} at character {error.offset}; "
            "write stages joined by '|', each name or name(key=value)"
        ) from None
    nodes: list[ast.expr] = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        nodes.insert(0, tree.right)
        tree = tree.left
    return [_stage(node, stages, spec) for node in [tree, *nodes]]


def unparse(stage: Any) -> str:
    """The spec of one stage object: its name and the arguments that differ from their defaults."""
    parts = []
    for field in dataclasses.fields(stage):
        value = getattr(stage, field.name)
        if field.default is not dataclasses.MISSING and value == field.default:
            continue
        text = unparse(value) if dataclasses.is_dataclass(value) else _literal(value)
        parts.append(f"{field.name}={text}" if field.default is not dataclasses.MISSING else text)
    return stage.name + (f"({', '.join(parts)})" if parts else "")


def _stage(node: ast.expr, stages: Mapping[str, type], spec: str) -> Any:
    name, positional, keywords = _call(node, spec)
    if name not in stages:
        raise ValueError(f"unknown name {name!r} in compressor spec {spec!r}; {did_you_mean(name, stages)}")
    cls = stages[name]
    fields = [field.name for field in dataclasses.fields(cls)]
    if len(positional) > len(fields):
        raise ValueError(
            f"{name} takes at most {len(fields)} arguments ({', '.join(fields) or 'none'}), got {len(positional)}"
        )
    arguments: dict[str, ast.expr] = dict(zip(fields, positional, strict=False))
    for given in keywords:
        if given.arg is None:
            raise ValueError(f"'**' is not allowed in compressor spec {spec!r}")
        if given.arg not in fields:
            raise ValueError(f"unknown argument {given.arg!r} of {name}; {did_you_mean(given.arg, fields)}")
        if given.arg in arguments:
            raise ValueError(f"argument {given.arg!r} of {name} is given twice")
        arguments[given.arg] = given.value
    hints = typing.get_type_hints(cls)
    values = {key: _value(value, hints[key], f"{name}({key}=...)", stages, spec) for key, value in arguments.items()}
    missing = [
        field.name
        for field in dataclasses.fields(cls)
        if field.name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ValueError(f"{name} needs {', '.join(missing)}: write {name}({', '.join(m + '=...' for m in missing)})")
    return cls(**values)


def _call(node: ast.expr, spec: str) -> tuple[str, list[ast.expr], list[ast.keyword]]:
    if isinstance(node, ast.Name):
        return node.id, [], []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id, node.args, node.keywords
    raise ValueError(
        f"cannot read {ast.unparse(node)!r} in compressor spec {spec!r}; a stage is name or name(key=value)"
    )


def _value(node: ast.expr, hint: Any, where: str, stages: Mapping[str, type], spec: str) -> Any:
    if isinstance(node, ast.Call) or (isinstance(node, ast.Name) and _wants_stage(hint)):
        value: Any = _stage(node, stages, spec)
    elif isinstance(node, ast.Name):
        value = node.id
        if not _fits(value, hint):
            value = {"true": True, "false": False, "none": None}.get(node.id.lower(), node.id)
    else:
        try:
            value = ast.literal_eval(node)
            if type(value) is int and _fits(1.0, hint) and not _fits(1, hint):
                value = float(value)
        except (ValueError, TypeError, OverflowError):
            raise ValueError(f"cannot read the value {ast.unparse(node)!r} of {where} in {spec!r}") from None
    if not _fits(value, hint):
        raise ValueError(f"{where} in compressor spec {spec!r} is {value!r}; allowed: {_describe(hint)}")
    return value


def _options(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    for option in _options(hint):
        if typing.get_origin(option) is typing.Literal:
            if value in typing.get_args(option):
                return True
        elif option is None or option is type(None):
            if value is None:
                return True
        elif option in (int, float, str, bool):
            if type(value) is option:
                return True
        elif isinstance(value, option):
            return True
    return False


def _wants_stage(hint: Any) -> bool:
    plain = (int, float, str, bool, None, type(None))
    return any(option not in plain and typing.get_origin(option) is not typing.Literal for option in _options(hint))


def _describe(hint: Any) -> str:
    words = []
    for option in _options(hint):
        if typing.get_origin(option) is typing.Literal:
            words += [str(choice) for choice in typing.get_args(option)]
        elif option not in (None, type(None)):
            words.append(getattr(option, "__name__", str(option)))
    return " or ".join(words)


def _literal(value: Any) -> str:
    if isinstance(value, str) and value.isascii() and value.isidentifier() and not keyword.iskeyword(value):
        return value
    return repr(value)
