"""What fits, by hand arithmetic: batches, blocks, zones, memory per device."""

import jax
import numpy as np
import pytest

from kvjax.hardware import KVFormat, workload_from_dims
from kvjax.hardware.capacity import allocated_bytes, batch_limit, memory, memory_by_devices, stored_bytes
from kvjax.hardware.roofline import load

from .shapes import GPT_175B, IDEAL, LLAMA_2_7B, LLAMA_2_13B, LLAMA_2_70B

ZONED = IDEAL._replace(minimum_zone=4.0 * 2**20)


@pytest.mark.parametrize(
    ("dims", "weight_bits", "devices", "batch"),
    [(LLAMA_2_7B, 16, 1, 54), (LLAMA_2_13B, 16, 1, 27), (LLAMA_2_70B, 8, 1, 4), (GPT_175B, 16, 8, 23)],
)
def test_batch_that_fits_at_2048_tokens_with_90_percent_of_80_gb(dims, weight_bits, devices, batch):
    with jax.enable_x64(True):
        sizes = load(workload_from_dims(**dims, weight_bits=weight_bits))
        assert int(batch_limit(IDEAL, sizes, 2048, 0, devices)) == batch


def test_175b_at_batch_20_takes_68_gb_of_each_of_8_cards():
    # (349.1 GB + 20 * 2048 * 4.718592 MB) / 8
    with jax.enable_x64(True):
        held = float(memory(IDEAL, load(workload_from_dims(**GPT_175B)), 20, 2048, 0, 8))
    assert held == pytest.approx(67.8e9, rel=1e-3)


@pytest.mark.parametrize(("dims", "tokens_per_zone"), [(GPT_175B, 85), (LLAMA_2_70B, 1024)])
def test_a_4_mb_zone_is_85_tokens_of_175b_and_1024_of_70b(dims, tokens_per_zone):
    with jax.enable_x64(True):
        sizes = load(workload_from_dims(**dims))
        zones = dims["num_layers"] * 4 * 2**20
        assert float(allocated_bytes(ZONED, sizes, tokens_per_zone, 0)) == zones
        assert float(allocated_bytes(ZONED, sizes, 1, 0)) == zones
        after = float(allocated_bytes(ZONED, sizes, tokens_per_zone + 1, 0))
        assert after == float(stored_bytes(sizes, tokens_per_zone + 1, 0)) > zones


def test_blocks_are_whole_per_head_after_eviction():
    kv = KVFormat(payload_bytes=512, kept_prompt=0.3, block_tokens=16)
    with jax.enable_x64(True):
        sizes = load(workload_from_dims(**LLAMA_2_70B, kv=kv))
        # 0.3 * 1000 = 300 tokens are 18.75 blocks: 19 of 16 slots.
        assert float(stored_bytes(sizes, 1000, 0)) == pytest.approx(300 * 327_680, rel=1e-12)
        assert float(allocated_bytes(IDEAL, sizes, 1000, 0)) == pytest.approx(304 * 327_680, rel=1e-12)
        # Rounding up does not enter the gradient.
        gradient = jax.grad(lambda prompt: allocated_bytes(IDEAL, sizes, prompt, 0))(1000.0)
        assert float(gradient) == pytest.approx(0.3 * 327_680, rel=1e-12)


@pytest.mark.parametrize(("devices", "heads"), [(1, 9), (2, 5), (3, 3), (4, 3), (9, 1), (100, 1)])
def test_the_fullest_device_holds_whole_heads(devices, heads):
    dims = dict(
        num_layers=1, hidden_size=576, num_heads=9, num_kv_heads=9, head_dim=64, intermediate_size=8, vocab_size=8
    )
    sizes = load(workload_from_dims(**dims))  # float32 as well: 9 / 3 must not round up to 4
    assert float(jax.jit(allocated_bytes)(IDEAL, sizes, 10, 0, devices)) == heads * 10 * 256


def test_memory_by_devices_is_memory_of_each_count():
    with jax.enable_x64(True):
        sizes = load(workload_from_dims(**LLAMA_2_70B))
        table = memory_by_devices(IDEAL, sizes, 4, 1000, 10)
        for devices in (1, 2, 8, 100):
            np.testing.assert_allclose(table[devices - 1], memory(IDEAL, sizes, 4, 1000, 10, devices), rtol=1e-12)
