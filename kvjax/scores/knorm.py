"""Key norm: tokens whose keys are short receive attention."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from kvjax.types import Observation


@dataclass(frozen=True)
class Knorm:
    """Keep the tokens with the smallest L2 norm of the key: score = -||k||.

    Devoto et al., "A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression", EMNLP 2024, arXiv
    2406.11430. RoPE preserves norms, so keys are scored as they lie in the cache.
    """

    name: ClassVar[str] = "knorm"
    queries: ClassVar[int] = 0

    def __call__(self, obs: Observation) -> Float[Array, "H T"]:
        """Negative norms."""
        return -jnp.linalg.norm(obs.k, axis=-1)
