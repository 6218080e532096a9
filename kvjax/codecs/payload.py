"""How blocks are held: narrow codes and the scales that give them meaning, and the one sum attention needs of them.

Attention needs only weighted sums of a block's rows. Keys are held channel-major ([D, S]), so scores are the sum over
channels weighted by the query; values are held slot-major ([S, D]), so the output is the sum over slots weighted by
the probabilities. Scales fold into the weights or into the result; codes are widened inside the sum, and a
dequantised copy of the cache never exists.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from kvjax.types import pytree

# Up to this many weight vectors the sum is written as a multiply and add, which XLA fuses with the widening of the
# codes; beyond it (a chunk of queries) as a matrix product.
FUSED_WEIGHTS = 16


@pytree
@dataclass(frozen=True)
class Payload:
    """Blocks in coded form: value = codes * scale; `scale` is None or has size 1 along an axis that shares a scale."""

    codes: Shaped[Array, "*N R C"]
    scale: Float[Array, "*N r c"] | None


def decode(payload: Payload) -> Float[Array, "*N R C"]:
    """The values that the codes stand for, in float32."""
    values = payload.codes.astype(jnp.float32)
    return values if payload.scale is None else values * jnp.broadcast_to(payload.scale, values.shape)


def weighted_rows(payload: Payload, weights: Float[Array, "P Q R"]) -> Float[Array, "P Q C"]:
    """Sum of each block's rows under `weights`, scales folded in. A weight of zero leaves a finite row out.

    >>> block = Payload(jnp.array([[[1, 2], [3, 4]]], jnp.int8), jnp.array([[[0.5], [2.0]]]))
    >>> weighted_rows(block, jnp.array([[[1.0, 10.0]]])).tolist()
    [[[60.5, 81.0]]]
    """
    scale = payload.scale
    if scale is not None and scale.shape[-2] > 1:  # a scale for each row: fold it into the weights
        weights = weights * jnp.broadcast_to(jnp.swapaxes(scale, -1, -2), weights.shape)
        scale = None
    rows = payload.codes.astype(jnp.float32)
    if weights.shape[-2] <= FUSED_WEIGHTS:
        out = jnp.sum(weights[..., None] * rows[..., None, :, :], axis=-2)
    else:
        out = weights @ rows
    return out if scale is None else out * jnp.broadcast_to(scale, out.shape)
