"""From a layer's keys and values to its compressed cache: score, budget, select, code, lay out in blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kvjax.budgets import LayerPlace
from kvjax.budgets.select import columns_of, select, take_columns
from kvjax.cache import blocks
from kvjax.cache.layer import LayerCache
from kvjax.codecs import BF16, Codec, Plain
from kvjax.compressor import Compressor
from kvjax.types import Entries, Observation

EXACT_CODEC = BF16()  # what sinks and recent tokens are held in


@dataclass(frozen=True)
class LayerPlan:
    """Static sizes of one layer's cache: what has to be known before anything is traced."""

    tokens: int  # most tokens that one head codes at prefill
    blocks: int
    table_width: int
    sink_blocks: int = 0
    exact_blocks: int = 0
    exact_table_width: int = 0


def holds_exact(compressor: Compressor) -> bool:
    """Whether sinks and recent tokens are held apart: they are asked for, and the codec would code them."""
    coded = not (isinstance(compressor.codec.keys, Plain) and isinstance(compressor.codec.values, Plain))
    return coded and compressor.sinks + compressor.recent > 0


def bytes_per_token(codec: Codec, kv_heads: int, head_dim: int, slots: int) -> float:
    """Bytes of one token of one layer in whole blocks: codes, scales and positions, all KV heads."""
    store = jax.eval_shape(
        lambda: blocks.init(codec, rows=1, kv_heads=kv_heads, head_dim=head_dim, blocks=1, slots=slots, table_width=1)
    )
    held = jax.tree.leaves((store.keys, store.values, store.positions))
    return kv_heads * sum(x.size * x.dtype.itemsize for x in held) / slots


def plan_layer(
    compressor: Compressor,
    lengths: Sequence[int],
    place: LayerPlace,
    *,
    window: int | None,
    max_new_tokens: int,
) -> tuple[LayerPlan, np.ndarray]:
    """Sizes of a layer's cache for rows of `lengths` tokens with room for more, and each row's token total (int32 [B]).

    A sliding-window layer never holds what no later query can see.
    """
    slots, heads = compressor.block, place.num_kv_heads
    seen = [length if window is None else min(length, window - 1) for length in lengths]
    budget = compressor.budget
    totals = [heads * n if budget is None else budget.total(n, place) for n in seen]
    exact = holds_exact(compressor)
    apart = [min(n, compressor.sinks + compressor.recent) if exact and window is None else 0 for n in seen]
    ragged = budget is not None and budget.ragged
    most = [n if ragged else max(0, total // heads - a) for n, total, a in zip(seen, totals, apart, strict=True)]
    if ragged:
        need = [total // slots + heads * (1 + -(-max_new_tokens // slots)) for total in totals]
    else:
        need = [heads * -(-(n + max_new_tokens) // slots) for n in most]
    plan = LayerPlan(
        tokens=max(most),
        blocks=sum(need),
        table_width=-(-(max(most) + max_new_tokens) // slots),
    )
    if exact:
        sink_blocks = -(-compressor.sinks // slots)
        width = sink_blocks + -(-compressor.recent // slots) + 2  # a block that fills, a block that retires
        plan = LayerPlan(plan.tokens, plan.blocks, plan.table_width, sink_blocks, len(seen) * heads * width, width)
    return plan, np.array(totals, np.int32)


def compress_layer(
    compressor: Compressor,
    plan: LayerPlan,
    q: Float[Array, "B Hq Tq D"],
    k: Float[Array, "B H T D"],
    v: Float[Array, "B H T D"],
    positions: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
    totals: Int[Array, " B"],
    layer: Int[Array, ""],
    *,
    scale: float,
    window: int | None,
) -> LayerCache:
    """The cache that `compressor` makes of a layer's tokens, padding left out.

    Args:
        compressor: what to do.
        plan: from `plan_layer`, for the same rows.
        q: queries of the last Tq tokens, after RoPE.
        k: keys after RoPE.
        v: values.
        positions: of the tokens, ascending.
        valid: False for padding.
        totals: tokens that all heads of a row keep together.
        layer: index of the layer.
        scale: what logits are multiplied by.
        window: of a sliding-window layer.
    """
    kv_heads = k.shape[1]
    order = jnp.cumsum(valid, axis=-1, dtype=jnp.int32) - 1
    length = jnp.sum(valid, axis=-1, dtype=jnp.int32)[:, None]
    seen = valid if window is None else valid & (order > length - window)
    first = seen & (order < compressor.sinks)
    last = seen & (order >= length - compressor.recent) & ~first
    exact = holds_exact(compressor)
    candidates = seen & ~(first | last) if exact else seen

    if compressor.score is not None and compressor.budget is not None:
        score = compressor.score

        def of_row(q: Array, k: Array, v: Array, positions: Array, valid: Array) -> Float[Array, "H T"]:
            return score(Observation(q, k, v, positions, valid, layer, jnp.float32(scale)))

        scores = jax.vmap(of_row)(q, k, v, positions, valid)
        protected = jnp.where((first | last)[:, None], jnp.inf, scores)
        counts = jax.vmap(compressor.budget.split)(jnp.where(seen[:, None], protected, -jnp.inf), totals)
        if exact:
            counts = jnp.maximum(counts - jnp.sum(first | last, axis=-1, dtype=jnp.int32)[:, None], 0)
        ranked = jnp.where(candidates[:, None], protected, -jnp.inf)
        columns = jax.vmap(lambda s, c: select(s, c, plan.tokens))(ranked, counts)
    else:
        columns = _every_head(columns_of(candidates, plan.tokens), kv_heads)
    coded = blocks.build(
        compressor.codec,
        _entries(k, v, positions, columns),
        blocks=plan.blocks,
        slots=compressor.block,
        table_width=plan.table_width,
    )
    if not exact:
        return LayerCache(coded, None)

    tokens = k.shape[2]
    sinks = columns_of(first, min(compressor.sinks, tokens))
    gap = plan.sink_blocks * compressor.block - sinks.shape[1]
    sinks = jnp.pad(sinks, ((0, 0), (0, gap)), constant_values=tokens)
    recent = columns_of(last, min(compressor.recent, tokens))
    uncoded = blocks.build(
        EXACT_CODEC,
        _entries(k, v, positions, _every_head(jnp.concatenate([sinks, recent], axis=-1), kv_heads)),
        blocks=plan.exact_blocks,
        slots=compressor.block,
        table_width=plan.exact_table_width,
    )
    return LayerCache(coded, uncoded, plan.sink_blocks, compressor.recent)


def _every_head(columns: Int[Array, "B K"], kv_heads: int) -> Int[Array, "B H K"]:
    return jnp.broadcast_to(columns[:, None], (columns.shape[0], kv_heads, columns.shape[1]))


def _entries(
    k: Float[Array, "B H T D"], v: Float[Array, "B H T D"], positions: Int[Array, "B T"], columns: Int[Array, "B H K"]
) -> Entries:
    at = jnp.broadcast_to(positions[:, None], k.shape[:3])
    return Entries(take_columns(k, columns, 0), take_columns(v, columns, 0), take_columns(at, columns, -1))
