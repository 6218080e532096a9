"""How much may be kept: the one place that turns a fraction, a number of tokens or of bytes into a count."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol, runtime_checkable

from jaxtyping import Array, Float, Int


@dataclass(frozen=True)
class LayerPlace:
    """Where a budget is asked for: which layer of how many, with how many KV heads, and a token's bytes there."""

    layer: int
    num_layers: int
    num_kv_heads: int
    bytes_per_token: float


@runtime_checkable
class Budget(Protocol):
    """How many tokens each layer and head keeps. Frozen, hashable, without state.

    `total` runs on the host and is exact; `split` runs under jit on the scores. Totals are data: another budget of the
    same pool size recompiles nothing.
    """

    name: ClassVar[str]
    ragged: ClassVar[bool]  # whether `split` may give heads different counts

    def check(self, length: int) -> None:
        """Raise ValueError if a context whose longest row has `length` tokens cannot be given this budget."""
        ...

    def total(self, length: int, place: LayerPlace) -> int:
        """Tokens that all heads of a layer keep together, of `length` tokens each."""
        ...

    def split(self, scores: Float[Array, "H T"], total: Int[Array, ""]) -> Int[Array, " H"]:
        """Share a layer's total among its heads."""
        ...


def tokens_per_head(
    length: int, place: LayerPlace, keep: float | None, tokens: int | None, bytes_per_token: float | None
) -> int:
    """Tokens a head keeps of `length`: floor of the exact fraction, at least 1, at most `length`.

    `keep` is read as the decimal that was written, so no float error loses a token: 0.29 of 100 is 29.

    Args:
        length: tokens of the context.
        place: gives the bytes of one token of one layer (all heads), for `bytes_per_token`.
        keep: fraction kept.
        tokens: tokens kept, whatever the length.
        bytes_per_token: mean bytes held in the whole model for each token of the context.

    >>> place = LayerPlace(0, 2, 3, bytes_per_token=100.0)
    >>> [tokens_per_head(n, place, keep, None, None) for n, keep in [(10, 0.1), (1000, 0.1), (100, 0.29), (3, 0.1)]]
    [1, 100, 29, 1]
    >>> tokens_per_head(100, place, None, None, bytes_per_token=50.0)
    25
    """
    if keep is not None:
        fraction = Fraction(str(keep))
    elif bytes_per_token is not None:
        fraction = Fraction(str(bytes_per_token)) / (Fraction(str(place.bytes_per_token)) * place.num_layers)
    else:
        return min(tokens, length) if tokens is not None else length
    return min(length, max(1, length * fraction.numerator // fraction.denominator))


def check_amount(name: str, keep: float | None, tokens: int | None, bytes_per_token: float | None) -> None:
    """Raise unless exactly one amount is given, in its range."""
    given = {
        k: v for k, v in (("keep", keep), ("tokens", tokens), ("bytes_per_token", bytes_per_token)) if v is not None
    }
    if len(given) != 1:
        raise ValueError(f"{name} needs exactly one of keep=, tokens=, bytes_per_token=; given: {given or 'none'}")
    if keep is not None and not 0 < keep <= 1:
        raise ValueError(f"{name}(keep={keep}): keep is the fraction kept and must be in (0, 1]")
    if tokens is not None and tokens < 1:
        raise ValueError(f"{name}(tokens={tokens}): tokens must be 1 or more")
    if bytes_per_token is not None and not 0 < bytes_per_token < math.inf:
        raise ValueError(f"{name}(bytes_per_token={bytes_per_token}): bytes_per_token must be positive and finite")
