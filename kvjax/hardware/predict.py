"""A prediction for one model on one kind of device: TTFT, TPOT, tokens/s, what bounds each, and what fits."""

from dataclasses import dataclass

import jax
import numpy as np

from kvjax.hardware.capacity import MOST_DEVICES, memory_by_devices
from kvjax.hardware.device import Device, device
from kvjax.hardware.errors import check_whole
from kvjax.hardware.notes import notes_on
from kvjax.hardware.outcome import Case, Outcome, largest_batch, outcome
from kvjax.hardware.profile import Profile
from kvjax.hardware.roofline import BOUNDS, Load, Times, load
from kvjax.hardware.workload import Workload


@dataclass(frozen=True)
class Prediction:
    """What `predict` says, under the profile's values.

    Attributes:
        hardware: name of the profile.
        model: name of the workload.
        devices: over which the model is divided (tensor parallel).
        batch: sequences at once.
        input_len: tokens of each prompt.
        output_len: tokens of each answer.
        ttft: seconds until the first token (prefill of the whole batch).
        tpot: seconds per token after the first, mean over the answer.
        decode_tokens_per_second: of the whole batch while decoding, tokens/s: batch / tpot.
        tokens_per_second: answers' tokens of the whole batch over prefill and decode together, tokens/s.
        prefill: seconds of `ttft` by cause.
        decode: seconds of `tpot` by cause.
        prefill_bound: what most of `ttft` is spent on, one of `roofline.BOUNDS`.
        decode_bound: the same of `tpot`.
        weight_bytes: per device, bytes.
        kv_stored_bytes: of the batch at the end of the answer, on all devices together, bytes.
        kv_allocated_bytes: of the batch at the end, per device, with blocks and zones filled up, bytes.
        kv_moved_bytes: per device and decode step, mean over the answer, bytes.
        memory_bytes: per device, weights and allocated KV, bytes.
        usable_bytes: per device, what may be used, bytes.
        max_batch: sequences of this length that fit at once.
        notes: what to know before quoting these numbers: what is not modelled, and which unproven values matter.
    """

    hardware: str
    model: str
    devices: int
    batch: int
    input_len: int
    output_len: int
    ttft: float
    tpot: float
    decode_tokens_per_second: float
    tokens_per_second: float
    prefill: Times
    decode: Times
    prefill_bound: str
    decode_bound: str
    weight_bytes: float
    kv_stored_bytes: float
    kv_allocated_bytes: float
    kv_moved_bytes: float
    memory_bytes: float
    usable_bytes: float
    max_batch: int
    notes: tuple[str, ...]


def predict(
    profile: Profile, workload: Workload, batch: int = 1, input_len: int = 1024, output_len: int = 128, devices: int = 1
) -> Prediction:
    """Predicts one static batch on `devices` devices of one kind.

    >>> from kvjax.hardware import load_profile, workload_from_dims
    >>> model = workload_from_dims(num_layers=32, hidden_size=4096, num_heads=32, num_kv_heads=32, head_dim=128,
    ...                            intermediate_size=11008, vocab_size=32000)
    >>> prediction = predict(load_profile("gp7000"), model, batch=8, input_len=2048, output_len=128)
    >>> prediction.prefill_bound, prediction.decode_bound, prediction.max_batch
    ('compute', 'weights', 51)

    Args:
        profile: the device.
        workload: the model and how its cache is held.
        batch: sequences at once.
        input_len: tokens of each prompt.
        output_len: tokens of each answer, the first of which prefill makes.
        devices: over which weights and heads are divided (tensor parallel).

    Raises:
        ValueError: a size below 1, several devices without a link, a number format that the device lacks, or a model
            that does not fit: by how much, and what would.
    """
    for name, size in (("batch", batch), ("input_len", input_len), ("output_len", output_len), ("devices", devices)):
        check_whole(name, size)
    if devices > 1 and profile.link is None:
        raise ValueError(f"profile {profile.name} has no [link], so devices must be 1, got {devices}")
    case = Case(batch, input_len, output_len, devices)
    with jax.enable_x64(True):  # exact bytes, and floors that do not hang on the last digit
        rates, sizes = device(profile, workload.compute), load(workload)
        result = outcome(rates, sizes, case)
        if batch > largest_batch(result):
            raise ValueError(_does_not_fit(profile, workload, rates, sizes, result, case))
        notes = notes_on(profile, workload, sizes, result, case)
    return Prediction(
        hardware=profile.name,
        model=workload.name,
        devices=devices,
        batch=batch,
        input_len=input_len,
        output_len=output_len,
        ttft=result.prefill.total,
        tpot=result.decode.total,
        decode_tokens_per_second=batch / result.decode.total,
        tokens_per_second=batch * output_len / (result.prefill.total + (output_len - 1) * result.decode.total),
        prefill=result.prefill,
        decode=result.decode,
        prefill_bound=BOUNDS[int(np.argmax(result.prefill))],
        decode_bound=BOUNDS[int(np.argmax(result.decode))],
        weight_bytes=result.weights,
        kv_stored_bytes=result.stored,
        kv_allocated_bytes=result.allocated,
        kv_moved_bytes=result.moved,
        memory_bytes=result.memory,
        usable_bytes=rates.usable_memory,
        max_batch=largest_batch(result),
        notes=notes,
    )


def _does_not_fit(profile: Profile, workload: Workload, rates: Device, sizes: Load, result: Outcome, case: Case) -> str:
    """Says by how much, and what would fit."""
    needed = np.asarray(memory_by_devices(rates, sizes, case.batch, case.input_len, case.output_len - 1))
    enough = np.flatnonzero(needed <= rates.usable_memory)
    ways = []
    if largest_batch(result) >= 1:
        ways.append(f"batch <= {largest_batch(result)}")
    if enough.size and profile.link is not None:
        ways.append(f"devices >= {enough[0] + 1}")
    if not ways:
        ways.append("a shorter input, smaller weights or a more compressed cache")
        if profile.link is not None:
            ways[0] += f" (not even {MOST_DEVICES} devices hold it)"
    return (
        f"{workload.name} does not fit on {case.devices} x {profile.name}: batch {case.batch} with "
        f"{case.input_len} + {case.output_len} tokens needs {_gb(result.memory)} per device "
        f"({_gb(result.weights)} weights, {_gb(result.allocated)} KV), {_gb(rates.usable_memory)} are usable, "
        f"{_gb(result.memory - rates.usable_memory)} too much. Would fit: {' or '.join(ways)}"
    )


def _gb(nbytes: float) -> str:
    return f"{nbytes / 1e9:.4g} GB"
