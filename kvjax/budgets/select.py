"""From scores and counts to the kept tokens, in order of position."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def select(scores: Float[Array, "H T"], counts: Int[Array, " H"], capacity: int) -> Int[Array, "H K"]:
    """Columns of each head's `counts` highest scores, ascending, padded with T; K = `capacity`.

    Columns that must not be kept score -inf and are never returned, even where a count is larger than what is left.
    Equal scores go to the earlier token.

    >>> select(jnp.array([[3.0, 1.0, 2.0, -jnp.inf]]), jnp.array([2], jnp.int32), capacity=3).tolist()
    [[0, 2, 4]]
    """
    tokens = scores.shape[-1]
    best, columns = jax.lax.top_k(scores, capacity)
    kept = (jnp.arange(capacity)[None] < counts[:, None]) & (best > -jnp.inf)
    return jnp.sort(jnp.where(kept, columns, tokens), axis=-1)


def columns_of(mask: Bool[Array, "B T"], capacity: int) -> Int[Array, "B K"]:
    """Columns where `mask` holds, ascending, padded with T; K = `capacity`, which must not be exceeded.

    >>> columns_of(jnp.array([[False, True, True]]), capacity=2).tolist()
    [[1, 2]]
    """
    tokens = mask.shape[-1]
    return jnp.sort(jnp.where(mask, jnp.arange(tokens)[None], tokens), axis=-1)[:, :capacity]


def take_columns(x: Array, columns: Int[Array, "B H K"], fill: float | int) -> Array:
    """Rows of `x` [B, H, T, ...] at `columns`; where a column is T, `fill`."""
    take = jax.vmap(jax.vmap(lambda row, at: row.at[at].get(mode="fill", fill_value=fill)))
    return take(x, columns)
