"""SnapKV: attention paid by the last queries, smoothed along the sequence."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from kvjax.scores.attention import window_attention
from kvjax.types import Observation


@dataclass(frozen=True)
class SnapKV:
    """Mean attention of the last `window` queries, average-pooled over `kernel` tokens; the window itself is kept.

    Li et al., "SnapKV: LLM Knows What You are Looking for Before Generation", NeurIPS 2024, arXiv 2404.14469. The paper
    pools by maximum or average over 5-7 tokens with windows of 16-64; these are kvpress's defaults and its order:
    mean over the window, average pool (zeros beyond the ends count), mean over the query heads of a KV head.

    Args:
        window: queries at the end that vote, and tokens at the end that are always kept.
        kernel: width of the average pool, odd.
    """

    name: ClassVar[str] = "snapkv"
    window: int = 64
    kernel: int = 5

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"snapkv(window={self.window}): window must be 1 or more")
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ValueError(f"snapkv(kernel={self.kernel}): kernel must be odd and positive")

    @property
    def queries(self) -> int:
        """The window."""
        return self.window

    def __call__(self, obs: Observation) -> Float[Array, "H T"]:
        """Pooled attention; +inf inside the window."""
        attention = window_attention(obs, self.window)  # [H, G, T]
        tokens = attention.shape[-1]
        inside = jnp.arange(tokens) >= tokens - self.window
        votes = jnp.where(inside[None, None], 0.0, attention)
        reach = self.kernel // 2
        padded = jnp.pad(votes, ((0, 0), (0, 0), (reach, reach)))
        pooled = sum(padded[..., i : i + tokens] for i in range(self.kernel)) / self.kernel
        return jnp.where(inside[None], jnp.inf, jnp.mean(pooled, axis=1))
