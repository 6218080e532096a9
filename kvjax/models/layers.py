"""The parts of a transformer layer: norm, projections into attention and out of it, gated MLP.

Weights are [in, out], so a projection is `x @ w`. Projections of one input are stored side by side as one matrix.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kvjax.models.config import ModelConfig

LayerParams = Mapping[str, Array]

_ACTIVATIONS = {"silu": jax.nn.silu, "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True)}


def rms_norm(x: Float[Array, "*rest E"], weight: Float[Array, " E"], eps: float) -> Float[Array, "*rest E"]:
    """RMS norm, x / rms(x) * weight, computed in float32 and returned in x's dtype (Zhang & Sennrich 2019).

    `weight` is the whole factor: an offset of 1 (Gemma) was added when the weights were loaded.
    """
    x32 = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + eps)
    weight = jnp.expand_dims(weight.astype(jnp.float32), tuple(range(x.ndim - 1)))
    return (x32 * scale * weight).astype(x.dtype)


def linear(params: LayerParams, name: str, x: Float[Array, "B T i"]) -> Float[Array, "B T o"]:
    """Product x @ params[name], plus params[name + "_bias"] where the model has one."""
    y = x @ params[name]
    bias = params.get(f"{name}_bias")
    return y if bias is None else y + bias[None, None]


def attention_inputs(
    config: ModelConfig, params: LayerParams, hidden: Float[Array, "B T E"]
) -> tuple[Float[Array, "B Hq T D"], Float[Array, "B H T D"], Float[Array, "B H T D"]]:
    """Queries, keys and values before RoPE (after the q/k norms of models that have them)."""
    batch, length, _ = hidden.shape
    heads, kv_heads = config.num_heads, config.num_kv_heads
    qkv = linear(params, "qkv", hidden).reshape(batch, length, heads + 2 * kv_heads, config.head_dim)
    q, k, v = jnp.split(qkv.transpose(0, 2, 1, 3), [heads, heads + kv_heads], axis=1)
    if config.qk_norm:
        q = rms_norm(q, params["q_norm"], config.norm_eps)
        k = rms_norm(k, params["k_norm"], config.norm_eps)
    return q, k, v


def attention_output(params: LayerParams, out: Float[Array, "B Hq T D"]) -> Float[Array, "B T E"]:
    """What attention adds to the residual stream: all heads' outputs through W_o."""
    batch, heads, length, head_dim = out.shape
    return linear(params, "output", out.transpose(0, 2, 1, 3).reshape(batch, length, heads * head_dim))


def mlp(config: ModelConfig, params: LayerParams, x: Float[Array, "B T E"]) -> Float[Array, "B T E"]:
    """Gated MLP: (activation(x W_gate) * x W_up) W_down."""
    gate, up = jnp.split(linear(params, "gate_up", x), 2, axis=-1)
    return linear(params, "down", _ACTIVATIONS[config.activation](gate) * up)
