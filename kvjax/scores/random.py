"""The null arm: tokens at random."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kvjax.types import Observation


@dataclass(frozen=True)
class Random:
    """Keep tokens at random, each head its own: what a method must beat to have measured anything.

    A token's draw depends on the seed, the layer, the head and its position, not on the batch it sits in.

    Args:
        seed: of the draws, 0..2**32-1.
    """

    name: ClassVar[str] = "random"
    queries: ClassVar[int] = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:  # JAX keeps the low 32 bits: other seeds would repeat these draws
            raise ValueError(f"random(seed={self.seed}): seed must be in 0..{2**32 - 1}")

    def __call__(self, obs: Observation) -> Float[Array, "H T"]:
        """Uniform draws in [0, 1)."""
        base = jax.random.fold_in(jax.random.key(self.seed), obs.layer)

        def draw(head: Array, position: Array) -> Array:
            return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(base, head), position))

        heads = jnp.arange(obs.k.shape[0])
        return jax.vmap(jax.vmap(draw, in_axes=(None, 0)), in_axes=(0, None))(heads, obs.positions)
