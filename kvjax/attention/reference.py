"""The readable reference: decode what each head's block table names, then plain attention."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kvjax.attention.base import finish, softmax_parts
from kvjax.cache.blocks import BlockStore, gather
from kvjax.types import AttentionOutput


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

    Heads are padded to the longest.
    """
    rows, heads, tokens, head_dim = q.shape
    entries = gather(store)
    kv_heads = entries.k.shape[1]
    grouped = (q * scale).reshape(rows, kv_heads, heads // kv_heads, tokens, head_dim)
    visible = ((entries.positions >= 0) & (entries.positions < before[:, None, None]))[:, :, None, None]
    if window is not None:
        oldest = positions[:, None, None, :, None] - window
        visible = visible & (entries.positions[:, :, None, None] > oldest)
    logits = jnp.einsum("bhgtd,bhsd->bhgts", grouped, entries.k)
    largest, total, weights = softmax_parts(logits, jnp.broadcast_to(visible, logits.shape))
    out, lse = finish(largest, total, jnp.einsum("bhgts,bhsd->bhgtd", weights, entries.v))
    return AttentionOutput(out.reshape(q.shape), lse.reshape(rows, heads, tokens))
