"""StreamingLLM: the first tokens and the last ones."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from kvjax.types import Observation


@dataclass(frozen=True)
class StreamingLLM:
    """Keep `sinks` first tokens and as many of the last as the budget allows.

    Xiao et al., "Efficient Streaming Language Models with Attention Sinks", ICLR 2024, arXiv 2309.17453. Kept keys
    stay at their original positions, as in kvpress; the paper re-positions them inside the cache.

    Args:
        sinks: how many of the first tokens are always kept (4, as in the paper).
    """

    name: ClassVar[str] = "streaming_llm"
    queries: ClassVar[int] = 0
    sinks: int = 4

    def __post_init__(self) -> None:
        if self.sinks < 0:
            raise ValueError(f"streaming_llm(sinks={self.sinks}): sinks must be 0 or more")

    def __call__(self, obs: Observation) -> Float[Array, "H T"]:
        """A token's number in its sequence, +inf for the sinks."""
        order = jnp.cumsum(obs.valid) - 1  # a token's number within its own sequence
        recency = order.astype(jnp.float32)
        scores = jnp.where(order < self.sinks, jnp.inf, recency)
        return jnp.broadcast_to(scores[None], obs.k.shape[:2])
