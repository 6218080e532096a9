"""Predicted speed of a compressor on an accelerator: model sizes and cache layout into the cost model, and its text."""

import dataclasses

from kvjax.compressor import Compressor
from kvjax.experiment.text import aligned
from kvjax.experiment.workloads import workload
from kvjax.hardware import Prediction, load_profile, predict
from kvjax.models import ModelConfig

GIB = 2.0**30


def predict_serving(
    config: ModelConfig,
    compressor: Compressor,
    *,
    name: str,
    hardware: str,
    devices: int,
    batch: int,
    input_tokens: int,
    output_tokens: int,
) -> Prediction:
    """Prediction for a model in BF16 whose cache one compressor holds.

    Raises:
        ValueError: unknown profile, a size below 1, a prompt too short for the compressor, a model that does not fit.
    """
    profile = load_profile(hardware)
    load = workload(config, compressor, input_tokens, name)
    prediction = predict(profile, load, batch, input_tokens, output_tokens, devices)
    if input_tokens + output_tokens <= config.max_context:
        return prediction
    beyond = f"{input_tokens + output_tokens:,} tokens are beyond the model's context of {config.max_context:,}"
    return dataclasses.replace(prediction, notes=(beyond, *prediction.notes))


def as_data(prediction: Prediction) -> dict[str, object]:
    """All fields as plain data; phases by cause, in seconds."""
    data = dict(vars(prediction))
    return {**data, "prefill": prediction.prefill._asdict(), "decode": prediction.decode._asdict()}


def as_text(prediction: Prediction, compressor: Compressor) -> str:
    """The figures that decide, one a line, then what to know before quoting them."""
    p = prediction
    rows = [
        ["time to first token", f"{p.ttft * 1e3:,.1f} ms", f"bound by {p.prefill_bound}"],
        ["time per output token", f"{p.tpot * 1e3:,.3f} ms", f"bound by {p.decode_bound}"],
        ["decode throughput", f"{p.decode_tokens_per_second:,.0f} tokens/s", "whole batch, after the first token"],
        ["throughput", f"{p.tokens_per_second:,.0f} tokens/s", "whole batch, prefill included"],
        ["weights", f"{p.weight_bytes / GIB:,.2f} GiB", "per device"],
        ["KV cache", f"{p.kv_allocated_bytes / GIB:,.2f} GiB", "per device, whole batch at the end of the answers"],
        ["KV read per step", f"{p.kv_moved_bytes / GIB:,.3f} GiB", "per device, mean over the answers"],
        ["memory", f"{p.memory_bytes / GIB:,.2f} GiB", f"per device, of {p.usable_bytes / GIB:,.2f} usable"],
        ["largest batch", f"{p.max_batch:,}", "sequences of this length that fit"],
    ]
    head = (
        f"{p.model}, cache {compressor}, on {p.devices} x {p.hardware}: batch {p.batch}, "
        f"{p.input_len:,} tokens in, {p.output_len:,} out"
    )
    notes = "".join(f"\n- {note}" for note in p.notes)
    return f"{head}\n\n{aligned(['', 'predicted', ''], rows)}\n{notes}"
