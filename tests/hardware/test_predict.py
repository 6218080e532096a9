"""The public prediction: numbers by hand, honest notes, and clear refusals."""

import dataclasses
import json

import pytest

from kvjax.hardware import BOUNDS, KVFormat, load_profile, predict, workload_from_dims

from .shapes import GPT_175B, LLAMA_2_7B, LLAMA_2_70B, SMOLLM2_135M

SEVEN = workload_from_dims(**LLAMA_2_7B)
CARD = load_profile("gp7000")
H100 = load_profile("h100")


def test_llama_2_7b_on_gp7000_by_hand():
    result = predict(CARD, SEVEN, batch=4, input_len=1000, output_len=101)
    # Decode: all weights but the embedding table, 1050.5 tokens (mean of 1000..1099, and the one written) of 524,288 B.
    weights = (13_476_831_232 - 32000 * 4096 * 2) / 1.84e12
    kv = 4 * (1049.5 + 1) * 524_288 / 1.84e12
    overhead = 32 * 80e-6
    assert result.decode.weights == pytest.approx(weights, rel=1e-12)
    assert result.decode.kv == pytest.approx(kv, rel=1e-12)
    assert result.tpot == pytest.approx(weights + kv + overhead, rel=1e-12)
    assert result.kv_moved_bytes == pytest.approx(4 * 1050.5 * 524_288, rel=1e-12)
    assert result.decode_tokens_per_second == pytest.approx(4 / result.tpot, rel=1e-12)
    # Prefill: 2 FLOPs per weight and token, logits of 4 tokens, causal attention, at 45 % of 312 TFLOP/s.
    linear = 4000 * 2 * 32 * 202_375_168 + 4 * 2 * 32000 * 4096
    attention = 4 * 32 * 2 * 4096 * 1000**2
    assert result.prefill.compute == pytest.approx((linear + attention) / (0.45 * 312e12), rel=1e-12)
    assert result.ttft == pytest.approx(result.prefill.compute + overhead, rel=1e-12)
    assert result.tokens_per_second == pytest.approx(404 / (result.ttft + 100 * result.tpot), rel=1e-12)
    assert (result.prefill_bound, result.decode_bound) == ("compute", "weights")
    # Memory: 1100 tokens at the end (the last one is never appended); every layer's 16.4 KB x 1100 is above its zone.
    assert result.kv_stored_bytes == result.kv_allocated_bytes == 4 * 1100 * 524_288
    assert result.memory_bytes == 13_476_831_232 + 4 * 1100 * 524_288
    assert result.max_batch == int((72e9 - 13_476_831_232) / (1100 * 524_288)) == 101


def test_bounds_name_what_takes_longest():
    assert predict(H100, SEVEN, batch=1, input_len=128, output_len=8).decode_bound == "weights"
    assert predict(H100, SEVEN, batch=20, input_len=4000, output_len=8).decode_bound == "KV bandwidth"
    tiny = workload_from_dims(**SMOLLM2_135M)
    assert predict(H100, tiny, batch=1, input_len=16, output_len=8).decode_bound == "overhead"
    slow = H100.with_value("link.bandwidth", 1e6)
    assert predict(slow, SEVEN, batch=8, input_len=16, output_len=8, devices=2).decode_bound == "link"
    weak = H100.with_value("compute.bf16", 1e12)
    assert predict(weak, SEVEN, batch=64, input_len=16, output_len=8).decode_bound == "compute"


@pytest.mark.parametrize("field", ["prefill", "decode"])
def test_causes_add_up_to_the_time(field):
    result = predict(H100, workload_from_dims(**LLAMA_2_70B), batch=4, input_len=2000, output_len=50, devices=4)
    total = {"prefill": result.ttft, "decode": result.tpot}[field]
    assert sum(getattr(result, field)) == pytest.approx(total, rel=1e-12)
    assert len(getattr(result, field)) == len(BOUNDS)


def test_compression_moves_less_and_holds_more():
    kv = KVFormat(payload_bytes=256, metadata_bytes=8, kept_prompt=0.25, block_tokens=16)
    small = predict(H100, workload_from_dims(**LLAMA_2_7B, kv=kv), batch=16, input_len=4096, output_len=128)
    dense = predict(H100, SEVEN, batch=16, input_len=4096, output_len=128)
    assert small.tpot < dense.tpot and small.max_batch > 5 * dense.max_batch
    assert any("scoring" in note for note in small.notes) and not any("scoring" in note for note in dense.notes)


def test_an_answer_of_one_token_has_a_first_step_as_tpot():
    result = predict(H100, SEVEN, batch=1, input_len=1000, output_len=1)
    assert result.decode.kv == pytest.approx(1001 * 524_288 / (0.95 * 3.35e12), rel=1e-12)
    assert result.tokens_per_second == pytest.approx(1 / result.ttft)


def test_mean_step_is_exact_inside_and_past_a_window():
    windowed = workload_from_dims(**{**LLAMA_2_7B, "num_layers": 1}, windows=[100])
    result = predict(H100, windowed, batch=1, input_len=100, output_len=1001)
    assert result.kv_moved_bytes == pytest.approx(101 * 32 * 512, rel=1e-12)
    assert result.kv_stored_bytes == 100 * 32 * 512


def test_gp7000_notes_name_the_unproven_values_that_matter():
    notes = predict(CARD, SEVEN, batch=16, input_len=2048, output_len=128).notes
    assert notes[0].startswith("gp7000 is hypothetical")
    text = "\n".join(notes)
    needed_notes = (
        "memory.capacity = 80 GB is assumed (64 GB to 128 GB): max batch",
        "compute.bf16 = 312 TFLOP/s is assumed",
        "memory.efficiency = 0.92 is claimed",
        "kv.prefetch = 1 is claimed (0 to 1): TPOT",
    )
    for needed in needed_notes:
        assert needed in text
    assert "link" not in text  # one device
    assert "fp8" not in text  # not used by this workload


def test_notes_give_the_ends_of_the_range():
    notes = predict(CARD, SEVEN, batch=1, input_len=1000, output_len=2).notes
    (note,) = (note for note in notes if note.startswith("memory.capacity"))
    least, most = (int((0.9 * capacity - 13_476_831_232) / (1001 * 524_288)) for capacity in (64e9, 128e9))
    assert note.endswith(f"max batch {least} to {most}")


def test_a_prediction_is_plain_data():
    result = dataclasses.asdict(predict(H100, SEVEN, batch=2, input_len=64, output_len=8))
    assert json.loads(json.dumps(result))["batch"] == 2


@pytest.mark.parametrize("name", ["batch", "input_len", "output_len", "devices"])
@pytest.mark.parametrize("size", [0, -3])
def test_zero_and_negative_sizes_are_refused(name, size):
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1, got {size}"):
        predict(CARD, SEVEN, **{name: size})


def test_a_model_that_does_not_fit_is_told_by_how_much_and_on_how_many():
    # 349.1 GB of weights and 1151 tokens of 4.718592 MB (5.43 GB) against 72 GB a card: 4.92 cards.
    message = (
        r"gpt-175b does not fit on 1 x gp7000.*needs 354\.6 GB per device.*72 GB are usable, "
        r"282\.6 GB too much\. Would fit: devices >= 5"
    )
    with pytest.raises(ValueError, match=message):
        predict(CARD, workload_from_dims(**GPT_175B), batch=1, input_len=1024, output_len=128)


def test_a_batch_that_does_not_fit_is_told_the_largest_that_does():
    limit = predict(H100, SEVEN, batch=1, input_len=2000, output_len=48).max_batch
    assert predict(H100, SEVEN, batch=limit, input_len=2000, output_len=48).memory_bytes <= 72e9
    with pytest.raises(ValueError, match=rf"Would fit: batch <= {limit} or devices >= 2"):
        predict(H100, SEVEN, batch=limit + 1, input_len=2000, output_len=48)


def test_a_machine_without_a_link_stands_alone():
    tiny = workload_from_dims(**SMOLLM2_135M, weight_bits=32, compute="fp32")
    cpu = load_profile("cpu")
    assert predict(cpu, tiny, batch=1, input_len=512, output_len=32).devices == 1
    with pytest.raises(ValueError, match=r"profile cpu has no \[link\], so devices must be 1, got 2"):
        predict(cpu, tiny, devices=2)
    with pytest.raises(ValueError, match=r"Would fit: batch <= \d+$"):
        predict(cpu, tiny, batch=1000, input_len=8000)
    big = workload_from_dims(**GPT_175B, compute="fp32")
    with pytest.raises(ValueError, match=r"Would fit: a shorter input, smaller weights or a more compressed cache$"):
        predict(cpu, big)


def test_what_no_number_of_devices_holds_is_told():
    with pytest.raises(ValueError, match="not even 1024 devices hold it"):
        predict(CARD, SEVEN, batch=1, input_len=10**10)


def test_published_h100_latency_at_one_client_is_near():
    """NVIDIA NIM 1.8.0, Llama-3.3-70B FP8 on 2 H100, 5000 + 500 tokens, one client: TPOT 18.58 ms, TTFT 407 ms.

    A sanity check, not a validation: the profile's overhead was once chosen by this row.
    """
    dims = {**LLAMA_2_70B, "vocab_size": 128256}
    workload = workload_from_dims(**dims, weight_bits=8, compute="fp8", kv=KVFormat(256.0))
    result = predict(H100, workload, batch=1, input_len=5000, output_len=500, devices=2)
    assert result.tpot == pytest.approx(18.58e-3, rel=0.1)
    assert result.ttft == pytest.approx(406.77e-3, rel=0.1)
