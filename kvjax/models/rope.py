"""Rotary position embedding (Su et al. 2021), halves convention: dimension i turns with dimension i + D/2.

Everything is float32: integer positions above 256 are not exact in bfloat16, above 2048 not in float16.
"""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from kvjax.models.config import FrequencyFactors, LinearScaling, Llama3Scaling, RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> np.ndarray:
    """Radians that a pair of dimensions turns per position, f32 [D/2]; a constant under jit.

    Computed in float64 and rounded once. Source: transformers `modeling_rope_utils.py` (default, linear, llama3).

    >>> inverse_frequencies(RopeConfig(theta=100.0), 4).tolist()
    [1.0, 0.10000000149011612]
    """
    frequencies = rope.theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    match rope.scaling:
        case None:
            pass
        case LinearScaling(factor):
            frequencies = frequencies / factor
        case Llama3Scaling():
            frequencies = _llama3(frequencies, rope.scaling)
        case FrequencyFactors(factors):
            if len(factors) != head_dim // 2:
                raise ValueError(f"{len(factors)} RoPE frequency factors for {head_dim // 2} pairs of dimensions.")
            frequencies = frequencies / np.asarray(factors, np.float64)
    return frequencies.astype(np.float32)


def _llama3(frequencies: np.ndarray, scaling: Llama3Scaling) -> np.ndarray:
    """Keep high frequencies, divide low ones by the factor, interpolate in between."""
    turns = scaling.original_context * frequencies / (2 * math.pi)  # full turns over the context of pretraining
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)  # share of the unscaled frequency
    return (1 - kept) * frequencies / scaling.factor + kept * frequencies


Rope = tuple[Float32[Array, "*B T half"], Float32[Array, "*B T half"]]  # cosine and sine of each position's angles


def rope_tables(rope: RopeConfig, head_dim: int, positions: Int[Array, "*B T"]) -> Rope:
    """Cosine and sine of each position's angles, for `apply_rope`; `half` is D/2."""
    frequencies = jnp.asarray(inverse_frequencies(rope, head_dim))
    angles = positions.astype(jnp.float32)[..., None] * jnp.expand_dims(frequencies, tuple(range(positions.ndim)))
    return jnp.cos(angles), jnp.sin(angles)


def apply_rope(
    x: Float[Array, "*B h T D"], cos: Float32[Array, "*B T half"], sin: Float32[Array, "*B T half"]
) -> Float[Array, "*B h T D"]:
    """Queries or keys turned to their positions; with `-sin`, turned back. Computed in float32, returned as given."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos[..., None, :, :], sin[..., None, :, :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
