"""Attention over parts of a sequence, and the exact merge of the parts."""

from collections.abc import Sequence
from functools import reduce

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kvjax.types import AttentionOutput


def finish(
    largest: Float[Array, "*n"], total: Float[Array, "*n"], weighted: Float[Array, "*n D"]
) -> tuple[Float[Array, "*n D"], Float[Array, "*n"]]:
    """Output and log-sum-exp from a running softmax: the largest logit, the sum of exp(logit - largest), the sum of V.

    Where nothing was visible (largest -inf) the output is zero and the log-sum-exp -inf.
    """
    seen = largest > -jnp.inf
    total = jnp.where(seen, total, 1.0)
    out = jnp.where(seen[..., None], weighted / total[..., None], 0.0)
    return out, jnp.where(seen, largest, 0.0) + jnp.where(seen, jnp.log(total), -jnp.inf)


def softmax_parts(
    logits: Float[Array, "*n S"], visible: Bool[Array, "*n S"]
) -> tuple[Float[Array, "*n"], Float[Array, "*n"], Float[Array, "*n S"]]:
    """Largest visible logit (-inf if none), sum and values of exp(logit - largest), zero where not visible."""
    logits = jnp.where(visible, logits, -jnp.inf)
    largest = jnp.max(logits, axis=-1)
    weights = jnp.exp(logits - jnp.where(largest > -jnp.inf, largest, 0.0)[..., None])
    return largest, jnp.sum(weights, axis=-1), weights


def merge(parts: Sequence[AttentionOutput]) -> AttentionOutput:
    """Attention over the union of disjoint parts, from the attention over each: exact up to rounding."""
    if len(parts) == 1:
        return parts[0]
    largest = reduce(jnp.maximum, [part.lse for part in parts])
    base = jnp.where(largest > -jnp.inf, largest, 0.0)
    weights = [jnp.exp(part.lse - base) for part in parts]
    weighted = [weight[..., None] * part.out for weight, part in zip(weights, parts, strict=True)]
    return AttentionOutput(*finish(largest, reduce(jnp.add, weights), reduce(jnp.add, weighted)))
