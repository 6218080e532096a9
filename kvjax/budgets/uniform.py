"""The same number of tokens in every layer and head."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kvjax.budgets.base import LayerPlace, check_amount, tokens_per_head


@dataclass(frozen=True)
class Uniform:
    """Every head of every layer keeps the same number of tokens. Exactly one amount is given.

    Args:
        keep: fraction of the context kept, in (0, 1].
        tokens: tokens kept by each head; a batch whose longest row is shorter is an error, shorter rows keep all.
        bytes_per_token: bytes held, in all layers together, for each token of the context.
    """

    name: ClassVar[str] = "uniform"
    ragged: ClassVar[bool] = False
    keep: float | None = None
    tokens: int | None = None
    bytes_per_token: float | None = None

    def __post_init__(self) -> None:
        check_amount(self.name, self.keep, self.tokens, self.bytes_per_token)

    def check(self, length: int) -> None:
        """A fixed number of tokens must not exceed the context."""
        if self.tokens is not None and self.tokens > length:
            raise ValueError(
                f"uniform(tokens={self.tokens}) keeps more than the context's {length} tokens; lower tokens="
            )

    def total(self, length: int, place: LayerPlace) -> int:
        """Tokens a head keeps, times the heads."""
        return place.num_kv_heads * tokens_per_head(length, place, self.keep, self.tokens, self.bytes_per_token)

    def split(self, scores: Float[Array, "H T"], total: Int[Array, ""]) -> Int[Array, " H"]:
        """Equal shares."""
        return jnp.full(scores.shape[:1], total // scores.shape[0], jnp.int32)
