"""Decoder-only transformers as pure functions: embed, layer, unembed. A layer is handed its attention as a function.

So this file knows no cache; `logits` runs a whole model with the plain attention of `dense_attention`, as a reference.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int

from kvjax.models.config import ModelConfig
from kvjax.models.layers import LayerParams, attention_inputs, attention_output, mlp, rms_norm
from kvjax.models.params import Params
from kvjax.models.rope import Rope, apply_rope, rope_tables

# (q [B Hq T D], k [B H T D], v [B H T D], hidden [B T E]) -> (out [B Hq T D], anything the caller wants back)
Attend = Callable[[Array, Array, Array, Array], tuple[Array, Any]]


def embed(config: ModelConfig, params: Params, tokens: Int[Array, "B T"]) -> Float[Array, "B T E"]:
    """Token embeddings; an id outside the vocabulary gives NaN, never another token's embedding."""
    x = params["embed"].at[tokens].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
    return x * jnp.asarray(config.embed_scale, x.dtype)


def layer(
    config: ModelConfig,
    layer_params: LayerParams,
    x: Float[Array, "B T E"],
    rope: Rope,
    attend: Attend,
) -> tuple[Float[Array, "B T E"], Any]:
    """One layer: attention and MLP, each normed and added to the residual stream.

    `rope` comes from `rope_tables(layer_config.rope, config.head_dim, positions)`, once for all layers that share it.
    `attend(q, k, v, hidden)` gets queries and keys after norms and RoPE, not multiplied by `config.query_scale`, and
    the normed input that they were computed from. It returns the heads' outputs and anything else, which is returned
    beside x. Windows (`LayerConfig.window`) are attend's business.
    """
    eps = config.norm_eps
    hidden = rms_norm(x, layer_params["attention_norm"], eps)
    q, k, v = attention_inputs(config, layer_params, hidden)
    out, aux = attend(apply_rope(q, *rope), apply_rope(k, *rope), v, hidden)
    added = attention_output(layer_params, out)
    if config.post_norms:
        added = rms_norm(added, layer_params["post_attention_norm"], eps)
    x = x + added
    added = mlp(config, layer_params, rms_norm(x, layer_params["mlp_norm"], eps))
    if config.post_norms:
        added = rms_norm(added, layer_params["post_mlp_norm"], eps)
    return x + added, aux


def unembed(config: ModelConfig, params: Params, x: Float[Array, "B T E"]) -> Float32[Array, "B T V"]:
    """Next-token logits in float32: the final norm, then the unembedding (the embedding itself where tied)."""
    x = rms_norm(x, params["final_norm"], config.norm_eps)
    if config.tie_embeddings:
        return jnp.einsum("bte,ve->btv", x, params["embed"], preferred_element_type=jnp.float32)
    return jnp.einsum("bte,ev->btv", x, params["unembed"], preferred_element_type=jnp.float32)


def dense_attention(
    q: Float[Array, "B Hq Tq D"],
    k: Float[Array, "B H T D"],
    v: Float[Array, "B H T D"],
    *,
    scale: float,
    query_positions: Int[Array, "B Tq"],
    positions: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
    window: int | None = None,
) -> Float[Array, "B Hq Tq D"]:
    """Plain causal attention in float32, the reference: a query sees valid keys at positions `(own - window, own]`.

    Query head h reads KV head h // G. A query that sees nothing returns zeros.
    """
    batch, _, length, head_dim = q.shape
    grouped = q.reshape(batch, k.shape[1], -1, length, head_dim).astype(jnp.float32)
    scores = jnp.einsum("bhgqd,bhtd->bhgqt", grouped, k.astype(jnp.float32)) * scale
    distance = query_positions[:, :, None] - positions[:, None, :]
    seen = valid[:, None, :] & (distance >= 0)
    if window is not None:
        seen &= distance < window
    seen = seen[:, None, None]
    scores = jnp.where(seen, scores, -jnp.inf)
    top = jnp.maximum(scores.max(axis=-1, keepdims=True), jnp.finfo(jnp.float32).min)  # finite where nothing is seen
    weights = jnp.exp(scores - top)
    out = jnp.einsum("bhgqt,bhtd->bhgqd", weights, jnp.where(valid[:, None, :, None], v, 0).astype(jnp.float32))
    out = out / jnp.maximum(weights.sum(axis=-1, keepdims=True), jnp.finfo(jnp.float32).tiny)
    return out.reshape(q.shape).astype(q.dtype)


def logits(
    config: ModelConfig, params: Params, tokens: Int[Array, "B T"], valid: Bool[Array, "B T"] | None = None
) -> Float32[Array, "B T V"]:
    """Next-token logits of whole sequences, without a cache: the reference that cached runs are compared with.

    `valid` is False for padding, on either side; the logits there mean nothing. A row's first valid token is at
    position 0.
    """
    if valid is None:
        valid = jnp.ones(tokens.shape, bool)
    positions = jnp.maximum(jnp.cumsum(valid, axis=1, dtype=jnp.int32) - 1, 0)
    x = embed(config, params, tokens)
    for layer_config, layer_params in zip(config.layers, params["layers"], strict=True):

        def attend(q: Array, k: Array, v: Array, hidden: Array, window: int | None = layer_config.window) -> Any:
            out = dense_attention(
                q,
                k,
                v,
                scale=config.query_scale,
                query_positions=positions,
                positions=positions,
                valid=valid,
                window=window,
            )
            return out, None

        rope = rope_tables(layer_config.rope, config.head_dim, positions)
        x, _ = layer(config, layer_params, x, rope, attend)
    return unembed(config, params, x)
