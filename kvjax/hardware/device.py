"""A profile as the equations read it: effective rates in SI, one plain number each."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from kvjax.hardware.profile import Profile
from kvjax.hardware.workload import COMPUTE_FORMATS

Number = Any
"""A scalar: a Python number on the host, a JAX value under jit, vmap and grad. (Any, because one code serves both.)"""


class Device(NamedTuple):
    """Effective rates of one device; a pytree of scalars, so any of them can be batched or differentiated."""

    usable_memory: Number  # bytes
    weight_bandwidth: Number  # bytes/s
    kv_bandwidth: Number  # bytes/s
    flops: Number  # FLOP/s, dense, in the workload's format
    layer_overhead: Number  # seconds per layer and step
    minimum_zone: Number  # bytes per sequence and layer
    reread: Number  # times a decode kernel reads each KV entry
    link_bandwidth: Number  # bytes/s, one direction
    link_latency: Number  # seconds


def device(profile: Profile, compute: str) -> Device:
    """Effective rates of `profile` for matrix products in the format `compute`.

    Without a link the link is ideal, which only one device may use (`predict` refuses more).

    Raises:
        ValueError: the device has no peak rate for this format.
    """
    peaks = {name: getattr(profile.compute, name) for name in COMPUTE_FORMATS}
    peak = peaks.get(compute)
    if peak is None:
        available = ", ".join(name for name, rate in peaks.items() if rate is not None)
        raise ValueError(f"profile {profile.name} has no compute rate for {compute!r}; it has: {available}")
    memory, link = profile.memory, profile.link
    return Device(
        usable_memory=memory.capacity.value * memory.usable.value,
        weight_bandwidth=memory.bandwidth.value * memory.efficiency.value,
        kv_bandwidth=kv_stream(profile),
        flops=peak.value * profile.compute.efficiency.value,
        layer_overhead=profile.overhead.per_layer.value,
        minimum_zone=profile.kv.minimum_zone.value,
        reread=profile.kv.reread.value,
        link_bandwidth=link.bandwidth.value if link else float("inf"),
        link_latency=link.latency.value if link else 0.0,
    )


def kv_stream(profile: Profile) -> float:
    """Bytes/s at which the KV cache streams (costmodel equation 2.7).

    Engines that prefetch keep `SMs x min(engines x queue x granule, half the shared memory)` bytes in flight, the other
    half being read; by Little's law they sustain that over the latency, and never more than the prefetched efficiency.
    A dedicated channel adds whatever bandwidth it has beside the memory's own.
    """
    kv, compute, bandwidth = profile.kv, profile.compute, profile.memory.bandwidth.value
    plain = bandwidth * kv.efficiency.value
    queued = kv.engines_per_sm.value * kv.queue_depth.value * kv.granule.value
    in_flight = compute.sm_count.value * min(queued, compute.shared_memory_per_sm.value / 2)
    prefetched = min(bandwidth * kv.prefetched_efficiency.value, in_flight / kv.latency.value)
    gain = kv.prefetch.value * max(prefetched - plain, 0.0)
    return plain + gain + kv.channel_bandwidth.value


def shards(heads: Number, devices: Number) -> Number:
    """Heads on the fullest of `devices`: heads are not split, so it is at least one (KV heads repeat beyond that)."""
    return ceil(heads / devices)


def ceil(x: Number) -> Number:
    """Rounds up, forgiving the last digits, in which 9 / 3 may come out above 3."""
    return jnp.ceil(x - 1e-6 * jnp.maximum(x, 1.0))
