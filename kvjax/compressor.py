"""A compressor: which tokens to keep, how many, in which basis, in which format.

>>> c = compressor("snapkv(window=32) | uniform(keep=0.5) | fp8")
>>> c.score, c.budget.keep, c.codec.name
(SnapKV(window=32, kernel=5), 0.5, 'fp8')
>>> str(c)
'snapkv(window=32) | uniform(keep=0.5) | fp8'
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kvjax import spec as specs
from kvjax.budgets import BUDGETS, Budget
from kvjax.codecs import CODECS, Codec, Dense
from kvjax.scores import SCORES, Score
from kvjax.transforms import TRANSFORMS

DEFAULT_BLOCK = 64


@dataclass(frozen=True)
class _Sinks:
    """Setting of a spec string: the first `tokens` tokens are always kept, uncoded."""

    name: ClassVar[str] = "sinks"
    tokens: int


@dataclass(frozen=True)
class _Recent:
    """Setting of a spec string: at least the last `tokens` tokens are always kept, uncoded."""

    name: ClassVar[str] = "recent"
    tokens: int


@dataclass(frozen=True)
class _Block:
    """Setting of a spec string: slots in a block."""

    name: ClassVar[str] = "block"
    slots: int


SETTINGS: dict[str, type] = {setting.name: setting for setting in (_Sinks, _Recent, _Block)}
STAGES: dict[str, type] = {**SCORES, **BUDGETS, **TRANSFORMS, **CODECS, **SETTINGS}
"""All names of spec strings."""


@dataclass(frozen=True)
class Compressor:
    """Score -> budget -> transform -> codec, each optional, for every layer alike. Hashable: the object is its config.

    Args:
        score: which tokens matter; goes with a budget.
        budget: how many tokens each layer and head keeps, sinks and recent tokens included.
        transform: change of basis before coding.
        codec: the format tokens are held in.
        sinks: first tokens that are always kept, uncoded: in bfloat16, or in the codec's own plain float format.
        recent: last tokens that are always kept, likewise uncoded; as decoding goes on they are coded a block at a
            time, so between `recent` and `recent` + `block` - 1 tokens are uncoded.
        block: slots in a block of the pool.
    """

    score: Score | None = None
    budget: Budget | None = None
    transform: None = None
    codec: Codec = dataclasses.field(default_factory=Dense)
    sinks: int = 0
    recent: int = 0
    block: int = DEFAULT_BLOCK

    def __post_init__(self) -> None:
        if (self.score is None) != (self.budget is None):
            raise ValueError(
                f"a score goes with a budget: got score={self.score!r}, budget={self.budget!r}; "
                "write for example 'knorm | uniform(keep=0.5)'"
            )
        if self.sinks < 0 or self.recent < 0:
            raise ValueError(f"sinks={self.sinks}, recent={self.recent}: both must be 0 or more")
        if self.block < 1:
            raise ValueError(f"block={self.block}: a block needs at least 1 slot")

    def __str__(self) -> str:
        """The spec string, in canonical order and without defaults."""
        stages = [stage for stage in (self.score, self.budget, self.transform) if stage is not None]
        settings = [
            specs.unparse(setting)
            for setting, default in (
                (_Sinks(self.sinks), 0),
                (_Recent(self.recent), 0),
                (_Block(self.block), DEFAULT_BLOCK),
            )
            if next(iter(dataclasses.asdict(setting).values())) != default
        ]
        return " | ".join([*map(specs.unparse, stages), specs.unparse(self.codec), *settings])

    def check(self, length: int) -> None:
        """Raise ValueError if a context whose shortest row has `length` tokens is too short for score or budget."""
        if self.score is not None and self.score.queries >= length:
            raise ValueError(
                f"{specs.unparse(self.score)} reads the last {self.score.queries} queries and needs a longer context "
                f"than that; the context has {length} tokens"
            )


def compressor(spec: str, stages: Mapping[str, type] | None = None) -> Compressor:
    """The compressor that a spec string describes.

    Args:
        spec: stages joined by `|`: a score and a budget (both or neither), a transform, a codec (dense if absent), and
            the settings `sinks(n)`, `recent(n)`, `block(n)`.
        stages: further classes by name, beside kvjax's own.

    Raises:
        ValueError: on an unknown name or argument (with the nearest allowed one), two stages of a kind, a score
            without a budget, or a value out of range.
    """
    slots: dict[str, Any] = {}
    for stage in specs.parse(spec, {**STAGES, **(stages or {})}):
        key, value = _slot(stage)
        if key in slots:
            raise ValueError(f"compressor spec {spec!r} has two {key} stages: {slots[key]!r} and {value!r}; keep one")
        slots[key] = value
    return Compressor(**slots)


def _slot(stage: Any) -> tuple[str, Any]:
    if type(stage).__name__ in ("_Sinks", "_Recent", "_Block"):
        return stage.name, next(iter(dataclasses.asdict(stage).values()))
    for key, protocol in (("budget", Budget), ("codec", Codec), ("score", Score)):
        if isinstance(stage, protocol):
            return key, stage
    raise ValueError(f"{stage!r} is neither a score, a budget, a transform nor a codec")
