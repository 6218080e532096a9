"""What fits: memory per device, the largest batch, the least number of devices (equations 2.1 and 2.5)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kvjax.hardware.device import Device, Number, ceil, shards
from kvjax.hardware.roofline import Load, kept_tokens, scalar

MOST_DEVICES = 1024
"""Where the search for enough devices ends."""


def stored_bytes(load: Load, prompt: Number, generated: Number) -> Number:
    """KV bytes of one sequence's kept tokens, all layers and heads, on all devices together, without any slack."""
    return jnp.sum(kept_tokens(load, prompt, generated) * load.entry_bytes * load.kv_heads)


def allocated_bytes(device: Device, load: Load, prompt: Number, generated: Number, devices: Number = 1.0) -> Number:
    """KV bytes that one sequence takes on the fullest device: whole blocks per head, at least one zone per layer.

    Rounding up counts in the value and not in the gradient, which is that of the smooth part.
    """
    tokens = _round_up(kept_tokens(load, prompt, generated), load.block_tokens)
    layers = tokens * load.entry_bytes * shards(load.kv_heads, scalar(devices))
    return jnp.sum(jnp.maximum(layers, device.minimum_zone))


def weight_bytes(load: Load, devices: Number = 1.0) -> Number:
    """Weight bytes on one device."""
    return (jnp.sum(load.weight_bytes) + load.embedding_bytes + load.unembedding_bytes) / scalar(devices)


def memory(
    device: Device, load: Load, batch: Number, prompt: Number, generated: Number, devices: Number = 1.0
) -> Number:
    """Bytes that one device must hold: its share of the weights, and the KV cache of `batch` sequences."""
    return weight_bytes(load, devices) + scalar(batch) * allocated_bytes(device, load, prompt, generated, devices)


def batch_limit(device: Device, load: Load, prompt: Number, generated: Number, devices: Number = 1.0) -> Number:
    """Sequences that fit at once, as a real number: differentiable; round it down for a count. Negative: no room."""
    room = device.usable_memory - weight_bytes(load, devices)
    return room / allocated_bytes(device, load, prompt, generated, devices)


@jax.jit
def memory_by_devices(
    device: Device, load: Load, batch: Number, prompt: Number, generated: Number
) -> Float[Array, " N"]:
    """Bytes per device on 1, 2, ... `MOST_DEVICES` devices."""
    counts = jnp.arange(1, MOST_DEVICES + 1, dtype=float)
    return jax.vmap(lambda devices: memory(device, load, batch, prompt, generated, devices))(counts)


def _round_up(x: Number, step: Number) -> Number:
    return x + jax.lax.stop_gradient(ceil(x / step) * step - x)
