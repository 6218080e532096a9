"""Times by hand arithmetic, laws, gradients, and one result for loop, vmap and both precisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvjax.hardware import load_profile, workload_from_dims
from kvjax.hardware.device import device, kv_stream
from kvjax.hardware.roofline import decode, load, prefill

from .shapes import AT_92_PERCENT, GPT_175B, IDEAL, LLAMA_2_7B, LLAMA_2_70B

H100 = device(load_profile("h100"), "bf16")
step = jax.jit(decode)
first = jax.jit(prefill)


def exactly(sizes, weights):
    """The same sizes with exactly `weights` bytes of weights, all of them streamed."""
    layers = sizes.weight_bytes.size
    even = jnp.full_like(sizes.weight_bytes, weights / layers)
    return sizes._replace(weight_bytes=even, unembedding_bytes=0.0, embedding_bytes=0.0)


def seconds(function, *args):
    with jax.enable_x64(True):
        return float(function(*args).total)


def sizes_175b():
    with jax.enable_x64(True):
        return exactly(load(workload_from_dims(**GPT_175B)), 350e9)


@pytest.mark.parametrize(
    ("rates", "weights", "tokens_per_second"),
    [
        (IDEAL, 350e9, 5.714),  # FP16
        (AT_92_PERCENT, 350e9, 5.257),
        (IDEAL, 175e9, 11.43),  # FP8
        (IDEAL, 87.5e9, 22.86),  # INT4
    ],
)
def test_175b_on_one_card_at_batch_1_is_bound_by_its_weights(rates, weights, tokens_per_second):
    with jax.enable_x64(True):
        sizes = exactly(load(workload_from_dims(**GPT_175B)), weights)
        times = decode(rates, sizes, 1, 0, 0)
        # Nothing but weights, and one KV entry written.
        assert 1 / float(times.weights) == pytest.approx(tokens_per_second, rel=1e-3)
        assert 1 / float(times.total) <= 1 / float(times.weights)
        assert 1 / float(decode(rates, sizes, 1, 2048, 0).total) < tokens_per_second


def test_32_tokens_a_second_need_7_cards():
    assert 1 / seconds(decode, AT_92_PERCENT, sizes_175b(), 1, 0, 0, 6) < 32
    assert 1 / seconds(decode, AT_92_PERCENT, sizes_175b(), 1, 0, 0, 7) > 32


@pytest.mark.parametrize(("batch", "tokens_per_second"), [(20, 541.9), (1, 40.93)])
def test_175b_on_8_cards_makes_542_by_batch_alone(batch, tokens_per_second):
    # 350 GB / (8 * 1.84 TB/s) + batch * 2048 * 4.718592 MB / (8 * 1.84 TB/s)
    rate = batch / seconds(decode, AT_92_PERCENT, sizes_175b(), batch, 2048, 0, 8)
    assert rate == pytest.approx(tokens_per_second, rel=1e-3)


@pytest.mark.parametrize(("context", "limit"), [(512, 762), (1024, 381), (2048, 190), (4096, 95)])
def test_544_is_beyond_any_batch_from_1024_tokens_on(context, limit):
    batch = 10_000_000
    rate = batch / seconds(decode, AT_92_PERCENT, sizes_175b(), batch, context, 0)
    assert rate == pytest.approx(limit, rel=4e-3)  # the written token adds 1 / context
    assert (rate < 544) == (context >= 1024)


def test_llama_2_70b_at_92_percent_makes_13_3():
    with jax.enable_x64(True):
        sizes = exactly(load(workload_from_dims(**LLAMA_2_70B)), 138e9)
    assert 1 / seconds(decode, AT_92_PERCENT, sizes, 1, 0, 0) == pytest.approx(13.33, rel=1e-3)


def test_prefill_of_175b_is_727_tflop():
    # 2 * 175e9 * 2048 of matrix products and 2 * 12288 * 2048^2 * 96 of causal attention = 716.8 + 9.9 TFLOP.
    with jax.enable_x64(True):
        sizes = load(workload_from_dims(**GPT_175B))
        sizes = sizes._replace(linear_flops=jnp.full_like(sizes.linear_flops, 2 * 175e9 / 96), unembedding_flops=0.0)
        times = prefill(IDEAL._replace(flops=1e12), sizes, 1, 2048)
    assert float(times.compute) == pytest.approx(716.8 + 9.896, rel=1e-4)
    assert float(times.total) == float(times.compute)


def test_a_window_bounds_prefill_attention():
    rates = IDEAL._replace(flops=1e12, weight_bandwidth=float("inf"), kv_bandwidth=float("inf"))
    with jax.enable_x64(True):
        sizes = load(workload_from_dims(**{**LLAMA_2_7B, "num_layers": 1}, windows=[100]))
        sizes = sizes._replace(linear_flops=jnp.zeros_like(sizes.linear_flops), unembedding_flops=0.0)
        # 100^2 / 2 + 900 * 100 pairs, 32 heads, 2 * 2 * 128 FLOPs each.
        assert float(prefill(rates, sizes, 1, 1000).total) == pytest.approx(95_000 * 32 * 512 / 1e12, rel=1e-12)


def test_all_reduces_by_hand():
    # 80 layers, two each: 5 us + 2 * 1/2 * (4 * 8192 * 2 B) / 450 GB/s.
    with jax.enable_x64(True):
        sizes = load(workload_from_dims(**LLAMA_2_70B))
        assert float(decode(H100, sizes, 4, 100, 0, 1).link) == 0
        expected = 160 * (5e-6 + 65_536 / 450e9)
        assert float(decode(H100, sizes, 4, 100, 0, 2).link) == pytest.approx(expected, rel=1e-12)


def test_kv_reread_is_limited_to_the_group():
    with jax.enable_x64(True):
        sizes = load(workload_from_dims(**LLAMA_2_70B))
        once, eight, fifty = (decode(IDEAL._replace(reread=r), sizes, 1, 1000, 0).kv for r in (1.0, 8.0, 50.0))
        assert float(eight) == pytest.approx(float(once) * 8001 / 1001, rel=1e-12)
        assert float(fifty) == float(eight)


def test_kv_heads_repeat_beyond_their_number():
    with jax.enable_x64(True):
        sizes = load(workload_from_dims(**LLAMA_2_70B))
        whole, eighth, beyond = (float(decode(IDEAL, sizes, 1, 1000, 0, n).kv) for n in (1, 8, 64))
        assert eighth == pytest.approx(whole / 8, rel=1e-12)
        assert beyond == eighth


def test_gp7000_features_change_the_kv_stream():
    card = load_profile("gp7000")
    assert kv_stream(card) == pytest.approx(0.92 * 2e12)
    assert kv_stream(card.with_value("kv.prefetch", 0)) == pytest.approx(0.65 * 2e12)
    assert kv_stream(card.with_value("kv.engines_per_sm", 0)) == pytest.approx(0.65 * 2e12)
    assert kv_stream(card.with_value("kv.channel_bandwidth", 1e11)) == pytest.approx(0.92 * 2e12 + 1e11)
    # Little's law: 132 SMs * 8 engines * 1024 B in flight over 800 ns.
    small = card.with_value("kv.granule", 1024)
    assert kv_stream(small) == pytest.approx(132 * 8 * 1024 / 800e-9)
    # 128 or 192 KiB of shared memory hide HBM latency either way; with far less they do not.
    assert kv_stream(card.with_value("compute.shared_memory_per_sm", 128 * 1024)) == kv_stream(card)
    tiny = card.with_value("compute.shared_memory_per_sm", 20_000)
    assert kv_stream(tiny) == pytest.approx(132 * 10_000 / 800e-9)


SEVENTY = load(workload_from_dims(**LLAMA_2_70B))
counts = st.integers(1, 512)
lengths = st.integers(1, 131_072)
ALMOST = 1 + 1e-5  # float32


@settings(deadline=None, max_examples=60)
@given(batch=counts, prompt=lengths, more=st.floats(1.0, 8.0), devices=st.integers(1, 64))
def test_more_of_anything_is_never_faster(batch, prompt, more, devices):
    args = (batch, prompt, 0, devices)
    base = float(step(H100, SEVENTY, *args).total) / ALMOST
    assert float(step(H100, SEVENTY._replace(entry_bytes=SEVENTY.entry_bytes * more), *args).total) >= base
    assert float(step(H100, SEVENTY._replace(weight_bytes=SEVENTY.weight_bytes * more), *args).total) >= base
    assert float(step(H100, SEVENTY, batch + 1, prompt, 0, devices).total) >= base
    assert float(step(H100, SEVENTY, batch, prompt + 1, 0, devices).total) >= base
    assert float(step(H100, SEVENTY, batch, prompt, 5, devices).total) >= base
    base = float(first(H100, SEVENTY, batch, prompt, devices).total) / ALMOST
    assert float(first(H100, SEVENTY, batch, prompt + 1, devices).total) >= base
    assert float(first(H100, SEVENTY, batch + 1, prompt, devices).total) >= base


@settings(deadline=None, max_examples=60)
@given(batch=counts, prompt=lengths, devices=st.integers(1, 200))
def test_more_devices_are_never_slower_over_a_free_link(batch, prompt, devices):
    free = H100._replace(link_bandwidth=float("inf"), link_latency=0.0)
    for function, args in ((step, (batch, prompt, 0)), (first, (batch, prompt))):
        fewer, more = (float(function(free, SEVENTY, *args, n).total) for n in (devices, devices + 1))
        assert more <= fewer * ALMOST


@settings(deadline=None, max_examples=60)
@given(batch=counts, prompt=lengths)
def test_no_step_beats_the_bytes_it_moves(batch, prompt):
    times = step(IDEAL._replace(flops=1e18), SEVENTY, batch, prompt, 0)
    moved = 137.9e9 - 32000 * 8192 * 2 + batch * prompt * 327_680
    assert float(times.total) >= moved / 2e12 * (1 - 1e-3)


def test_vmap_equals_a_loop_over_batches_lengths_and_bytes():
    batches, prompts = jnp.asarray([1, 7, 64, 300]), jnp.asarray([16, 1024, 8192, 100_000])
    scales = jnp.asarray([1.0, 0.5, 0.25, 0.1])

    def total(batch, prompt, scale):
        return decode(H100, SEVENTY._replace(entry_bytes=SEVENTY.entry_bytes * scale), batch, prompt, 3, 2).total

    together = jax.vmap(total)(batches, prompts, scales)
    alone = [float(total(*case)) for case in zip(batches, prompts, scales, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-6)


@pytest.mark.parametrize("batch", [8, 1000])  # bound by weights, bound by compute
def test_gradients_equal_finite_differences(batch):
    with jax.enable_x64(True):
        sizes = load(workload_from_dims(**LLAMA_2_70B))

        def total(bytes_scale, kept, batch):
            changed = sizes._replace(entry_bytes=sizes.entry_bytes * bytes_scale, kept_prompt=sizes.kept_prompt * kept)
            return decode(H100, changed, batch, 4096, 100, 8).total

        at = (0.7, 0.4, float(batch))
        for position, value in enumerate(at):
            gradient = jax.grad(total, argnums=position)(*at)
            step = 1e-6 * value
            up, down = (total(*at[:position], value + sign * step, *at[position + 1 :]) for sign in (1, -1))
            assert float(gradient) == pytest.approx(float(up - down) / (2 * step), rel=1e-6)
            assert float(gradient) > 0


def test_float32_agrees_with_float64_beyond_int32_byte_counts():
    single = decode(H100, SEVENTY, 512, 131_072, 0, 8)  # 22 TB of KV
    with jax.enable_x64(True):
        double = decode(H100, load(workload_from_dims(**LLAMA_2_70B)), 512, 131_072, 0, 8)
    assert single.total.dtype == jnp.float32 and double.total.dtype == jnp.float64
    np.testing.assert_allclose([float(x) for x in single], [float(x) for x in double], rtol=1e-5)


def test_a_missing_number_format_is_told():
    with pytest.raises(ValueError, match=r"profile a100 has no compute rate for 'fp8'; it has: bf16, fp32"):
        device(load_profile("a100"), "fp8")
