"""One layer on new tokens over its cache: the code path that prefill, teacher forcing and decode share."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kvjax import attention, models
from kvjax.budgets.select import take_columns
from kvjax.cache import Cache, LayerCache
from kvjax.cache import layer as layers
from kvjax.cache.blocks import gather
from kvjax.cache.compress import LayerPlan, compress_layer
from kvjax.compressor import Compressor
from kvjax.models import LayerConfig, ModelConfig, Rope, RopeConfig
from kvjax.types import Entries, pytree


@pytree
@dataclass(frozen=True)
class NewTokens:
    """Where the tokens of one forward pass stand; the same for all layers."""

    positions: Int[Array, "B T"]
    valid: Bool[Array, "B T"]  # False for padding
    ropes: tuple[Rope, ...]  # RoPE tables of the positions, one for each of `kinds`
    kinds: tuple[RopeConfig, ...] = field(metadata={"static": True})
    padded: bool = field(metadata={"static": True})  # False: all tokens are valid

    def rope(self, layer_config: LayerConfig) -> Rope:
        """RoPE tables of a layer."""
        return self.ropes[self.kinds.index(layer_config.rope)]


def new_tokens(config: ModelConfig, positions: Int[Array, "B T"], valid: Bool[Array, "B T"], padded: bool) -> NewTokens:
    """Tokens at `positions`, with what their layers share computed once."""
    kinds = tuple(dict.fromkeys(layer.rope for layer in config.layers))
    return NewTokens(positions, valid, _rope_tables(kinds, config.head_dim, positions), kinds, padded)


@partial(jax.jit, static_argnames=("kinds", "head_dim"))
def _rope_tables(kinds: tuple[RopeConfig, ...], head_dim: int, positions: Int[Array, "B T"]) -> tuple[Rope, ...]:
    return tuple(models.rope_tables(rope, head_dim, positions) for rope in kinds)


def attend(
    config: ModelConfig,
    layer_config: LayerConfig,
    cache: LayerCache | None,
    new: NewTokens,
    q: Float[Array, "B Hq T D"],
    k: Float[Array, "B H T D"],
    v: Float[Array, "B H T D"],
) -> Float[Array, "B Hq T D"]:
    """New tokens attend to what the cache holds of earlier ones and, uncompressed, to each other."""
    scale, window = config.query_scale, layer_config.window
    parts = [attention.causal(q, k, v, new.valid if new.padded else None, scale=scale, window=window)]
    before = jnp.min(jnp.where(new.valid, new.positions, jnp.iinfo(jnp.int32).max), axis=1)
    for store in () if cache is None else cache.stores:
        if store.blocks and store.table.shape[-1]:
            parts.append(attention.over_blocks(q, store, new.positions, before, scale=scale, window=window))
    return attention.merge(parts).out


@partial(jax.jit, static_argnames=("config", "layer_config"))
def append_layer(
    config: ModelConfig,
    layer_config: LayerConfig,
    params: Any,
    cache: LayerCache,
    x: Float[Array, "B T E"],
    new: NewTokens,
) -> tuple[Float[Array, "B T E"], LayerCache]:
    """One layer whose new tokens join its cache.

    The cache is written before attention reads it: that order lets XLA write in place.
    """

    def run(q: Array, k: Array, v: Array, hidden: Array) -> tuple[Array, LayerCache]:
        q32, k32, v32 = (t.astype(jnp.float32) for t in (q, k, v))
        held = layers.append(cache, k32, v32, new.positions, new.valid)
        return attend(config, layer_config, held, new, q32, k32, v32).astype(q.dtype), held

    return models.layer(config, params, x, new.rope(layer_config), run)


@partial(jax.jit, static_argnames=("config", "layer_config", "compressor", "plan"))
def compress_layer_step(
    config: ModelConfig,
    layer_config: LayerConfig,
    compressor: Compressor,
    plan: LayerPlan,
    params: Any,
    staged: LayerCache | None,
    x: Float[Array, "B T E"],
    new: NewTokens,
    totals: Int[Array, " B"],
    layer: Int[Array, ""],
) -> tuple[Float[Array, "B T E"], LayerCache]:
    """One layer on the last piece of a context: attention, then all of the context's tokens are compressed.

    `staged` holds the tokens of the pieces before, uncompressed; None if there were none.
    """

    def run(q: Array, k: Array, v: Array, hidden: Array) -> tuple[Array, LayerCache]:
        q32, k32, v32 = (t.astype(jnp.float32) for t in (q, k, v))
        out = attend(config, layer_config, staged, new, q32, k32, v32).astype(q.dtype)
        positions, valid = new.positions, new.valid
        if staged is not None:
            before = _right_aligned(gather(staged.coded))
            earlier = before.positions[:, 0]  # nothing was evicted yet: the same tokens in every head
            k32, v32 = jnp.concatenate([before.k, k32], axis=2), jnp.concatenate([before.v, v32], axis=2)
            positions = jnp.concatenate([earlier, positions], axis=1)
            valid = jnp.concatenate([earlier >= 0, valid], axis=1)
        scale, window = config.query_scale, layer_config.window
        held = compress_layer(
            compressor, plan, q32, k32, v32, positions, valid, totals, layer, scale=scale, window=window
        )
        return out, held

    return models.layer(config, params, x, new.rope(layer_config), run)


def _right_aligned(entries: Entries) -> Entries:
    """Move each head's empty slots from behind its tokens to the front, so that the next tokens follow directly."""
    width = entries.positions.shape[-1]
    used = jnp.sum(entries.positions >= 0, axis=-1, keepdims=True, dtype=jnp.int32)
    columns = jnp.arange(width, dtype=jnp.int32)[None, None] - (width - used)
    columns = jnp.where(columns < 0, width, columns)
    return Entries(
        take_columns(entries.k, columns, 0),
        take_columns(entries.v, columns, 0),
        take_columns(entries.positions, columns, -1),
    )


def decode_step(
    config: ModelConfig, params: Any, cache: Cache, tokens: Int[Array, " B"], active: Bool[Array, " B"]
) -> tuple[Float[Array, "B V"], Cache]:
    """One token for every active row, all layers; rows that are not active stay as they are."""
    new = new_tokens(config, cache.next_position[:, None], active[:, None], padded=False)
    x = models.embed(config, params, tokens[:, None])
    x, held = append_layers(config, params, cache.layers, x, new)
    return models.unembed(config, params, x)[:, 0], advance(cache, held, active.astype(jnp.int32))


def append_layers(
    config: ModelConfig, params: Any, caches: Sequence[LayerCache], x: Float[Array, "B T E"], new: NewTokens
) -> tuple[Float[Array, "B T E"], tuple[LayerCache, ...]]:
    """All layers, one after the other, whose new tokens join their caches."""
    held = []
    for layer_config, layer_params, cache in zip(config.layers, params["layers"], caches, strict=True):
        x, layer = append_layer(config, layer_config, layer_params, cache, x, new)
        held.append(layer)
    return x, tuple(held)


def advance(cache: Cache, held: tuple[LayerCache, ...], count: Int[Array, " B"]) -> Cache:
    """The cache after `count` more tokens in each row, with the layers `held`."""
    position = cache.next_position + count
    committed = cache.committed
    for layer in held[:1]:
        if layer.exact is not None:  # tokens before the recent window were coded for good
            recent = layer.exact.used[:, 0] - layer.sink_blocks * layer.exact.slots
            retired = position - recent
            coded = jnp.minimum(retired + layer.recent, position)
            committed = jnp.maximum(committed, jnp.where(retired > 0, coded, 0))
    return Cache(held, position, committed)
