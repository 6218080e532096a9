"""How long prefill and one decode step take: bytes over bandwidth against FLOPs over peak, per device.

Pure functions of scalars and [L] arrays in jax.numpy: batch them with `jax.vmap`, differentiate them with `jax.grad`
(in bytes, kept fractions, batch, device rates). Equations 2.2 and 2.3 of the cost-model study that kvjax builds on;
tensor parallel over `devices`. Not modelled here: scoring and coding cost, small-transfer penalties, contention.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kvjax.hardware.device import Device, Number, shards
from kvjax.hardware.workload import COMPUTE_FORMATS, LayerLoad, Workload

BOUNDS = ("weights", "KV bandwidth", "compute", "overhead", "link")


class Load(NamedTuple):
    """A `Workload` as arrays, one entry a layer; sizes in bytes and FLOPs."""

    weight_bytes: Float[Array, " L"]
    linear_flops: Float[Array, " L"]  # per token
    query_heads: Float[Array, " L"]
    kv_heads: Float[Array, " L"]
    key_dim: Float[Array, " L"]
    value_dim: Float[Array, " L"]
    window: Float[Array, " L"]  # tokens, inf for none
    entry_bytes: Float[Array, " L"]  # per kept token and KV head
    kept_prompt: Float[Array, " L"]
    kept_generated: Float[Array, " L"]
    read_fraction: Float[Array, " L"]
    block_tokens: Float[Array, " L"]
    embedding_bytes: Number
    unembedding_bytes: Number
    unembedding_flops: Number  # per token
    hidden_size: Number
    activation_bytes: Number  # per element


def load(workload: Workload) -> Load:
    """The arrays of a workload, in JAX's default float (float32, or float64 under `jax.enable_x64`)."""

    def column(value: Callable[[LayerLoad], float]) -> Float[Array, " L"]:
        return jnp.asarray(np.asarray([value(layer) for layer in workload.layers], dtype=np.float64))

    return Load(
        weight_bytes=column(lambda layer: layer.weight_bytes),
        linear_flops=column(lambda layer: layer.linear_flops),
        query_heads=column(lambda layer: layer.query_heads),
        kv_heads=column(lambda layer: layer.kv_heads),
        key_dim=column(lambda layer: layer.key_dim),
        value_dim=column(lambda layer: layer.value_dim),
        window=column(lambda layer: math.inf if layer.window is None else layer.window),
        entry_bytes=column(lambda layer: layer.kv.entry_bytes),
        kept_prompt=column(lambda layer: layer.kv.kept_prompt),
        kept_generated=column(lambda layer: layer.kv.kept_generated),
        read_fraction=column(lambda layer: layer.kv.read_fraction),
        block_tokens=column(lambda layer: layer.kv.block_tokens),
        embedding_bytes=workload.embedding_bytes,
        unembedding_bytes=workload.unembedding_bytes,
        unembedding_flops=workload.unembedding_flops,
        hidden_size=float(workload.hidden_size),
        activation_bytes=float(COMPUTE_FORMATS[workload.compute]),
    )


class Times(NamedTuple):
    """Seconds of one phase by what they are spent on; they add up to its duration."""

    weights: Number
    kv: Number
    compute: Number
    overhead: Number
    link: Number

    @property
    def total(self) -> Number:
        """Duration of the phase in seconds."""
        return self.weights + self.kv + self.compute + self.overhead + self.link


def scalar(x: Number) -> Number:
    """A JAX float: counts arrive as integers of any kind, and byte counts overflow int32."""
    return jnp.asarray(x, dtype=float)


def kept_tokens(load: Load, prompt: Number, generated: Number) -> Float[Array, " L"]:
    """Tokens that each layer's heads hold: what compression keeps of prompt and answer, inside the layer's window."""
    recent = jnp.minimum(scalar(generated), load.window)
    old = jnp.minimum(scalar(prompt), load.window - recent)
    return load.kept_prompt * old + load.kept_generated * recent


def moved_bytes(
    device: Device, load: Load, batch: Number, prompt: Number, generated: Number, devices: Number
) -> Number:
    """KV bytes that one device moves in one decode step: kept tokens read (again for each re-read), one written."""
    reread = jnp.clip(device.reread, 1.0, load.query_heads / load.kv_heads)
    read = kept_tokens(load, prompt, generated) * load.read_fraction * reread
    return scalar(batch) * jnp.sum((read + 1.0) * load.entry_bytes * shards(load.kv_heads, scalar(devices)))


def decode(
    device: Device, load: Load, batch: Number, prompt: Number, generated: Number, devices: Number = 1.0
) -> Times:
    """One decode step (TPOT): every sequence of the batch gets one token, `generated` tokens after its prompt.

    Args:
        device: effective rates.
        load: sizes of the model and its cache.
        batch: sequences.
        prompt: tokens of each prompt.
        generated: tokens generated so far and in the cache, of each sequence.
        devices: over which weights and heads are divided.

    Returns:
        Seconds by cause.
    """
    batch, devices = scalar(batch), scalar(devices)
    read = kept_tokens(load, prompt, generated) * load.read_fraction
    heads = shards(load.query_heads, devices)
    attention_flops = batch * jnp.sum(2.0 * heads * (load.key_dim + load.value_dim) * read)
    attention_bytes = moved_bytes(device, load, batch, prompt, generated, devices)
    return _times(device, load, batch, batch, attention_bytes, attention_flops, devices)


def prefill(device: Device, load: Load, batch: Number, prompt: Number, devices: Number = 1.0) -> Times:
    """The whole batch's prompts in one go (TTFT): causal attention, logits of each last token only.

    Each prompt token's key and value are written and read once in BF16 (or wider), then what is kept is written.
    Half of the attention square is counted (`(key_dim + value_dim) Hq S^2`), as equation 2.2 does.
    """
    batch, prompt, devices = scalar(batch), scalar(prompt), scalar(devices)
    seen = jnp.minimum(prompt, load.window)
    pairs = seen * seen / 2.0 + (prompt - seen) * seen
    dims = load.key_dim + load.value_dim
    attention_flops = batch * jnp.sum(2.0 * shards(load.query_heads, devices) * dims * pairs)
    kept = kept_tokens(load, prompt, 0.0) * load.entry_bytes
    dense = 2.0 * prompt * dims * load.activation_bytes
    attention_bytes = batch * jnp.sum(shards(load.kv_heads, devices) * (dense + kept))
    return _times(device, load, batch * prompt, batch, attention_bytes, attention_flops, devices)


def _times(
    device: Device,
    load: Load,
    tokens: Number,
    logits: Number,
    attention_bytes: Number,
    attention_flops: Number,
    devices: Number,
) -> Times:
    """Equation 2.3: linear part and attention part each take the longer of memory and compute; the rest adds."""
    streamed = (jnp.sum(load.weight_bytes) + load.unembedding_bytes) / devices / device.weight_bandwidth
    linear_flops = tokens * jnp.sum(load.linear_flops) + logits * load.unembedding_flops
    linear = linear_flops / devices / device.flops
    kv, attention = attention_bytes / device.kv_bandwidth, attention_flops / device.flops
    zero = jnp.zeros_like(streamed)
    return Times(
        weights=jnp.where(streamed >= linear, streamed, zero),
        kv=jnp.where(kv >= attention, kv, zero),
        compute=jnp.where(streamed >= linear, zero, linear) + jnp.where(kv >= attention, zero, attention),
        overhead=zero + load.weight_bytes.size * device.layer_overhead,
        link=_all_reduces(device, load, tokens, devices),
    )


def _all_reduces(device: Device, load: Load, tokens: Number, devices: Number) -> Number:
    """Two ring all-reduces a layer over the hidden states; none on one device."""
    message = tokens * load.hidden_size * load.activation_bytes
    each = device.link_latency + 2.0 * (devices - 1.0) / devices * message / device.link_bandwidth
    return jnp.where(devices > 1.0, 2.0 * load.weight_bytes.size * each, jnp.zeros_like(each))
