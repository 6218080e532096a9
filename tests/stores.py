"""Small stores and plain float64 attention to compare them with."""

import jax.numpy as jnp
import numpy as np

from kvjax.cache import blocks
from kvjax.cache.blocks import BlockStore
from kvjax.codecs import Codec, Dense
from kvjax.types import Entries


def empty(codec: Codec | None = None, rows=1, kv_heads=1, head_dim=2, pool=4, slots=4, width=4) -> BlockStore:
    return blocks.init(
        codec or Dense(), rows=rows, kv_heads=kv_heads, head_dim=head_dim, blocks=pool, slots=slots, table_width=width
    )


def add(store: BlockStore, k, v, positions, valid=None) -> BlockStore:
    """Append tokens; k and v are [T, D], [H, T, D] or [B, H, T, D] and are broadcast."""
    rows, kv_heads = store.used.shape
    positions = np.broadcast_to(np.asarray(positions, np.int32), (rows, np.shape(positions)[-1]))
    shape = (rows, kv_heads, positions.shape[1], store.head_dim)
    k, v = (jnp.asarray(np.broadcast_to(np.asarray(x, np.float32), shape)) for x in (k, v))
    valid = np.ones(positions.shape, bool) if valid is None else np.asarray(valid)
    return blocks.append(store, k, v, jnp.asarray(positions), jnp.asarray(valid))


def counting(tokens, head_dim=2, start=0):
    """Uniform keys and V[t] = t: attention over n visible tokens is their mean position."""
    ones = np.ones((tokens, head_dim), np.float32)
    return ones, np.arange(start, start + tokens, dtype=np.float32)[:, None] * ones


def held(store: BlockStore, row=0, head=0):
    """Positions and first value channel of one head's tokens, in order."""
    entries: Entries = blocks.gather(store)
    at = np.asarray(entries.positions[row, head])
    return at[at >= 0].tolist(), np.asarray(entries.v[row, head, :, 0])[at >= 0].tolist()


def ref_attention(q, k, v, scale=1.0):
    """Float64 attention of one query over exactly these keys."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    logits = k @ q * scale
    weights = np.exp(logits - logits.max())
    return weights @ v / weights.sum(), logits.max() + np.log(weights.sum())
