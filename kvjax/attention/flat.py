"""Attention page by page: every block of the pool against its owner's queries, then one merge a head.

The pool is read once, where it lies, whatever the heads' lengths: no gather, no padding to the longest head. Only the
blocks' partial results (1/S of the data) are collected through the block tables. The scheme is the split-K form of
FlashAttention's running softmax (Dao et al., "Flash-Decoding for long-context inference", 2023).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kvjax.attention.base import finish, softmax_parts
from kvjax.cache.blocks import BlockStore
from kvjax.codecs import Payload, weighted_rows
from kvjax.types import AttentionOutput

# Blocks are taken in groups of this many where there are many queries, so that logits and widened codes stay small.
GROUP_BLOCKS = 32
GROUP_FROM_QUERIES = 17


def attend(
    q: Float[Array, "B Hq T D"],
    store: BlockStore,
    positions: Int[Array, "B T"],
    before: Int[Array, " B"],
    *,
    scale: float,
    window: int | None,
) -> AttentionOutput:
    """Attention of queries at `positions` over their row's tokens at positions below `before`.

    Slots that hold no token weigh zero, and their values are finite: `BlockStore` keeps free blocks clear.

    Raises:
        NotImplementedError: if blocks may be shared between rows (after a fork): a block has one owner here.
    """
    if store.shared:
        raise NotImplementedError("flat attention gives each block one owner; this cache shares blocks between forks")
    rows, heads, tokens, head_dim = q.shape
    kv_heads = store.table.shape[1]
    group = heads // kv_heads
    queries = (q * scale).reshape(rows * kv_heads, group * tokens, head_dim)
    oldest = jnp.tile(positions - (window or 0), (1, group))  # [B, G * T]

    def partial(
        block: tuple[Payload, Payload, Array, Array],
    ) -> tuple[Float[Array, "P Q"], Float[Array, "P Q"], Float[Array, "P Q D"]]:
        keys, values, at, owner = block
        row = owner // kv_heads
        logits = weighted_rows(keys, queries[owner])
        held = (at >= 0) & (at < before[row][:, None])
        visible = jnp.broadcast_to(held[:, None], logits.shape)
        if window is not None:
            visible = visible & (at[:, None] > oldest[row][:, :, None])
        largest, total, weights = softmax_parts(logits, visible)
        return largest, total, weighted_rows(values, weights)

    pool = (store.keys, store.values, store.positions, store.owner)
    if group * tokens < GROUP_FROM_QUERIES or store.blocks <= GROUP_BLOCKS:
        largest, total, weighted = partial(pool)
    else:
        largest, total, weighted = jax.lax.map(
            lambda one: jax.tree.map(lambda x: x[0], partial(jax.tree.map(lambda x: x[None], one))),
            pool,
            batch_size=GROUP_BLOCKS,
        )

    largest = largest.at[store.table].get(mode="fill", fill_value=-jnp.inf)  # [B, H, M, Q]
    top = jnp.max(largest, axis=2, initial=-jnp.inf)
    weight = jnp.exp(largest - jnp.where(top > -jnp.inf, top, 0.0)[:, :, None])
    total = jnp.sum(weight * total.at[store.table].get(mode="fill", fill_value=0), axis=2)
    weighted = jnp.einsum("bhmq,bhmqd->bhqd", weight, weighted.at[store.table].get(mode="fill", fill_value=0))
    out, lse = finish(top, total, weighted)
    return AttentionOutput(out.reshape(q.shape), lse.reshape(rows, heads, tokens))
