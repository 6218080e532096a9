"""All numbers of one case in one compiled function: what `predict` reports and `notes` varies."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from kvjax.hardware import capacity
from kvjax.hardware.device import Device, Number
from kvjax.hardware.roofline import Load, Times, decode, moved_bytes, prefill

_POINTS = 64


class Case(NamedTuple):
    """What is asked: `batch` prompts of `input_len` tokens, answers of `output_len`, on `devices` devices."""

    batch: Number
    input_len: Number
    output_len: Number
    devices: Number


class Outcome(NamedTuple):
    """Seconds and bytes of a case; bytes are per device except `stored`, at the end of the answer except `moved`."""

    prefill: Times
    decode: Times  # mean step
    weights: Number
    stored: Number  # on all devices together
    allocated: Number
    moved: Number  # mean step
    memory: Number
    batch_limit: Number


def outcome(device: Device, load: Load, case: Case) -> Outcome:
    """Evaluates a case into Python floats (float64 under `jax.enable_x64`)."""
    return jax.tree.map(float, _outcome(device, load, Case(*map(float, case))))


def largest_batch(result: Outcome) -> int:
    """Whole sequences that fit, at least 0; the last digits are forgiven."""
    return max(math.floor(result.batch_limit * (1 + 1e-12)), 0)


@jax.jit
def _outcome(device: Device, load: Load, case: Case) -> Outcome:
    batch, prompt, output, devices = case
    generated = output - 1.0  # the last token is never appended

    # The mean over steps 0..generated-1 by the midpoint rule, exact wherever a step's time is linear in length.
    steps = jnp.maximum(generated, 1.0)
    points = (jnp.arange(_POINTS, dtype=float) + 0.5) / _POINTS * steps - 0.5
    times = jax.vmap(lambda done: decode(device, load, batch, prompt, done, devices))(points)
    moved = jax.vmap(lambda done: moved_bytes(device, load, batch, prompt, done, devices))(points)
    return Outcome(
        prefill=prefill(device, load, batch, prompt, devices),
        decode=jax.tree.map(jnp.mean, times),
        weights=capacity.weight_bytes(load, devices),
        stored=batch * capacity.stored_bytes(load, prompt, generated),
        allocated=batch * capacity.allocated_bytes(device, load, prompt, generated, devices),
        moved=jnp.mean(moved),
        memory=capacity.memory(device, load, batch, prompt, generated, devices),
        batch_limit=capacity.batch_limit(device, load, prompt, generated, devices),
    )
