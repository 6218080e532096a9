"""Prefill: run a context through the model and keep it compressed; forward: run more tokens over the cache."""

from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kvjax import models
from kvjax.budgets import LayerPlace
from kvjax.cache import Cache, LayerCache
from kvjax.cache.blocks import BlockStore, init
from kvjax.cache.compress import LayerPlan, bytes_per_token, holds_exact, plan_layer
from kvjax.codecs import Dense
from kvjax.compressor import DEFAULT_BLOCK, Compressor
from kvjax.inference.rows import Ids, Padding, align
from kvjax.inference.step import NewTokens, advance, append_layers, compress_layer_step, new_tokens
from kvjax.models import Model, ModelConfig

embed = jax.jit(models.embed, static_argnames="config")
unembed = jax.jit(models.unembed, static_argnames="config")


def prefill(
    model: Model,
    tokens: Ids,
    compressor: Compressor,
    *,
    lengths: Sequence[int] | None = None,
    padding: Padding = "right",
    max_new_tokens: int = 0,
    chunk: int | None = None,
) -> tuple[Float[Array, "B V"], Cache]:
    """Run a context through the model, then compress each layer's keys and values.

    The context's own attention is exact; what is dropped or coded is seen only by later tokens.

    Args:
        model: from `load_model`.
        tokens: ids of the context, [T] or [B, T].
        compressor: what the cache keeps, and how.
        lengths: tokens of each row, where rows are padded.
        padding: on which side the padding stands. Padding is never seen, scored or stored.
        max_new_tokens: room for tokens that come later; one more than fit is an error.
        chunk: run the context in pieces of this many tokens (the first may be shorter), with the same result.

    Returns:
        Logits after each row's last token, and the cache.

    Raises:
        ValueError: bad ids or lengths, a context that is too long for the model or too short for the score's window,
            a budget larger than the context, a chunk shorter than the score's window.
    """
    config = model.config
    rows = align(config, tokens, lengths, padding)
    width = rows.tokens.shape[1]
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens={max_new_tokens} must be 0 or more")
    if width + max_new_tokens > config.max_context:
        raise ValueError(
            f"{width} context tokens + {max_new_tokens} new ones exceed the limit of {model.name}: {config.max_context}"
        )
    compressor.check(int(rows.lengths.min()))
    if compressor.budget is not None:
        compressor.budget.check(int(rows.lengths.max()))
    pieces = _pieces(width, chunk, compressor)
    plans, totals = _plan(config, compressor, rows.lengths.tolist(), max_new_tokens)

    ids, valid = jnp.asarray(rows.tokens), jnp.asarray(rows.valid)
    positions, padded = jnp.asarray(np.maximum(rows.order, 0)), not rows.valid.all()

    def piece(start: int, stop: int) -> tuple[Float[Array, "B T E"], NewTokens]:
        at = slice(start, stop)
        new = new_tokens(config, positions[:, at], valid[:, at], padded)
        return embed(config, model.params, ids[:, at]), new

    staged: list[LayerCache | None] = [None] * config.num_layers
    if len(pieces) > 1:
        earlier = _staging(config, len(rows.lengths), pieces[-1][0])
        for start, stop in pieces[:-1]:
            x, new = piece(start, stop)
            _, earlier = append_layers(config, model.params, earlier, x, new)
        staged = list(earlier)
        del earlier

    x, new = piece(*pieces[-1])
    held: list[LayerCache] = []
    for index, (layer_config, params) in enumerate(zip(config.layers, model.params["layers"], strict=True)):
        before, staged[index] = staged[index], None  # its memory goes as soon as its compressed form stands
        layer = jnp.int32(index)
        x, cache = compress_layer_step(
            config, layer_config, compressor, plans[index], params, before, x, new, totals[index], layer
        )
        held.append(cache)
    length = jnp.asarray(rows.lengths)
    dropped = [at.window is not None and rows.lengths.max() >= at.window for at in config.layers]
    final = compressor.score is not None or holds_exact(compressor) or any(dropped)
    committed = length if final else jnp.zeros_like(length)
    return unembed(config, model.params, x[:, -1:])[:, 0], Cache(tuple(held), length, committed)


def forward(
    model: Model,
    cache: Cache,
    tokens: Ids,
    *,
    lengths: Sequence[int] | None = None,
    padding: Padding = "right",
) -> tuple[Float[Array, "B T V"], Cache]:
    """Run further tokens at their true positions over the cache and append them: teacher forcing, the next turn.

    The tokens see each other uncompressed (with a recent window: within a block). Rows end together: with `lengths`,
    logits of padding (in front) mean nothing.

    Raises:
        ValueError: bad ids or lengths, another number of rows than the cache has, the model's context limit.
        CacheOverflow: the cache has no room for them; `cache` is unchanged.
    """
    config = model.config
    rows = align(config, tokens, lengths, padding)
    check_room(model, cache, len(rows.lengths), int(rows.lengths.max()))
    ids, valid, order = jnp.asarray(rows.tokens), jnp.asarray(rows.valid), jnp.asarray(np.maximum(rows.order, 0))
    padded = not rows.valid.all()
    logits, before = [], cache.next_position[:, None]
    for start, stop in _steps(cache, rows.tokens.shape[1]):
        at = slice(start, stop)
        new = new_tokens(config, before + order[:, at], valid[:, at], padded)
        x, held = append_layers(config, model.params, cache.layers, embed(config, model.params, ids[:, at]), new)
        cache = advance(cache, held, jnp.sum(new.valid, axis=1, dtype=jnp.int32))
        logits.append(unembed(config, model.params, x))
    return jnp.concatenate(logits, axis=1), cache.check()


def _steps(cache: Cache, tokens: int) -> list[tuple[int, int]]:
    """Pieces that new tokens are run in: all at once, or a block at a time where recent tokens are held apart."""
    exact = cache.layers[0].exact
    size = tokens if exact is None else exact.slots
    return [(start, min(start + size, tokens)) for start in range(0, tokens, size)]


def check_room(model: Model, cache: Cache, rows: int, more: int) -> None:
    """Raise ValueError unless the cache has `rows` rows and the model's context has room for `more` tokens."""
    if rows != cache.rows:
        raise ValueError(f"{rows} rows of tokens for a cache of {cache.rows}; fork() or free() rows first")
    longest = int(jnp.max(cache.next_position))
    if longest + more > model.config.max_context:
        raise ValueError(
            f"{longest} tokens seen + {more} new ones exceed the limit of {model.name}: {model.config.max_context}"
        )


def _pieces(width: int, chunk: int | None, compressor: Compressor) -> list[tuple[int, int]]:
    """Where the context is cut: every piece but the first has `chunk` tokens."""
    if chunk is None or chunk >= width:
        return [(0, width)]
    queries = 0 if compressor.score is None else compressor.score.queries
    if chunk < max(1, queries) or queries < 0:
        needs = "all queries of the context" if queries < 0 else f"the last {max(1, queries)} queries"
        raise ValueError(f"chunk={chunk} is too short: the score reads {needs}, which must lie in one chunk")
    first = width % chunk or chunk
    edges = [0, *range(first, width + 1, chunk)]
    return list(pairwise(edges))


def _plan(
    config: ModelConfig, compressor: Compressor, lengths: list[int], max_new_tokens: int
) -> tuple[list[LayerPlan], list[Array]]:
    size = bytes_per_token(compressor.codec, config.num_kv_heads, config.head_dim, compressor.block)
    plans, totals = [], []
    for index, layer in enumerate(config.layers):
        place = LayerPlace(index, config.num_layers, config.num_kv_heads, size)
        plan, total = plan_layer(compressor, lengths, place, window=layer.window, max_new_tokens=max_new_tokens)
        plans.append(plan)
        totals.append(jnp.asarray(total))
    return plans, totals


def _staging(config: ModelConfig, rows: int, tokens: int) -> tuple[LayerCache, ...]:
    """Empty uncompressed caches that hold all pieces but the last."""
    per_head = -(-tokens // DEFAULT_BLOCK)

    def empty() -> BlockStore:
        return init(
            Dense(),
            rows=rows,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            blocks=rows * config.num_kv_heads * per_head,
            slots=DEFAULT_BLOCK,
            table_width=per_head,
        )

    return tuple(LayerCache(empty(), None) for _ in config.layers)
