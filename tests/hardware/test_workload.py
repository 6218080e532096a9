"""Workloads: parameters and KV bytes of real architectures by hand arithmetic; public bug cases by id."""

import jax
import pytest

from kvjax.hardware import KVFormat, dense_kv, workload_from_dims
from kvjax.hardware.capacity import allocated_bytes, stored_bytes
from kvjax.hardware.roofline import decode, load, moved_bytes

from .shapes import GPT_175B, IDEAL, LLAMA_2_7B, LLAMA_2_70B, SMOLLM2_135M


@pytest.mark.parametrize(
    ("dims", "parameters"),
    [(LLAMA_2_7B, 6_738_415_616), (LLAMA_2_70B, 68_976_648_192), (SMOLLM2_135M, 134_515_008)],
)
def test_parameters_equal_the_published_counts(dims, parameters):
    assert workload_from_dims(**dims).weight_bytes == 2 * parameters
    assert workload_from_dims(**dims, weight_bits=4.5).weight_bytes == 4.5 / 8 * parameters


def test_linear_flops_are_two_per_weight_and_token():
    # One Llama-2-7B layer: 4 * 4096^2 + 3 * 4096 * 11008 weights in matrices.
    layer = workload_from_dims(**LLAMA_2_7B).layers[0]
    assert layer.linear_flops == 2 * 202_375_168


def test_175b_holds_4_72_mb_a_token():
    assert workload_from_dims(**GPT_175B).stored_bytes_per_token == 4_718_592  # 96 layers * 12288 * 2 * 2


def test_M01_kv_bytes_from_kv_heads_not_query_heads():
    workload = workload_from_dims(**LLAMA_2_70B)
    assert workload.stored_bytes_per_token == 327_680
    with jax.enable_x64(True):
        assert float(stored_bytes(load(workload), 32_768, 0)) == 10 * 2**30
        assert float(stored_bytes(load(workload), 2048, 0)) == 0.625 * 2**30
        # The time follows: 10 GiB and the one written token over 2 TB/s.
        times = decode(IDEAL, load(workload), 1, 32_768, 0)
        assert float(times.kv) == pytest.approx((10 * 2**30 + 327_680) / 2e12, rel=1e-12)


def test_M02_head_dim_is_given_not_derived():
    workload = workload_from_dims(
        num_layers=36, hidden_size=2560, num_heads=32, num_kv_heads=8, head_dim=128, intermediate_size=9728,
        vocab_size=151936,
    )  # fmt: skip
    assert workload.stored_bytes_per_token == 147_456


def test_M03_kv_heads_are_a_count_and_no_other_name_is_taken():
    dims = {**LLAMA_2_7B, "num_kv_heads": 8}
    assert workload_from_dims(**dims).layers[0].kv_heads == 8
    with pytest.raises(TypeError, match="num_kv_groups"):
        workload_from_dims(**dims, num_kv_groups=8)


def test_M04_decode_reads_keys_and_values_of_kv_heads():
    workload = workload_from_dims(
        num_layers=1, hidden_size=4096, num_heads=32, num_kv_heads=8, head_dim=128, intermediate_size=14336,
        vocab_size=32000,
    )  # fmt: skip
    with jax.enable_x64(True):
        moved = float(moved_bytes(IDEAL, load(workload), 1, 4096, 0, 1))
    assert moved == 16_777_216 + 4096  # read, and the new token's entry written


def test_M06_block_bytes_count_all_layers():
    kv = KVFormat(payload_bytes=512, block_tokens=16)
    workload = workload_from_dims(
        num_layers=28, hidden_size=3584, num_heads=32, num_kv_heads=8, head_dim=128, intermediate_size=18944,
        vocab_size=152064, kv=kv,
    )  # fmt: skip
    assert workload.allocated_bytes_per_block == 1_835_008
    with jax.enable_x64(True):
        for tokens, blocks in ((1, 1), (16, 1), (17, 2), (160, 10)):
            assert float(allocated_bytes(IDEAL, load(workload), tokens, 0)) == blocks * 1_835_008


def test_M07_writing_the_cache_is_never_free():
    with jax.enable_x64(True):
        assert float(moved_bytes(IDEAL, load(workload_from_dims(**LLAMA_2_70B)), 3, 0, 0, 1)) == 3 * 327_680


@pytest.mark.parametrize(
    ("payload", "metadata", "keep", "saved"),
    [
        (384, 0, 1, 0.25),  # FP16 keys, FP8 values
        (512, 0, 0.25, 0.75),  # 4:1
        (384, 0, 0.25, 0.8125),  # both, without metadata: what the described recipe can reach at most
        (384, 4, 0.25, 0.8105),  # with a 4-byte index per kept token and head
        (256, 0, 0.25, 0.875),  # 4:1 of FP8 keys and values
        (512, 0, 1 / 6, 0.8333),  # 6:1
    ],
)
def test_savings_of_the_documents_recipe(payload, metadata, keep, saved):
    kv = KVFormat(payload_bytes=payload, metadata_bytes=metadata, kept_prompt=keep)
    held = workload_from_dims(**LLAMA_2_70B, kv=kv).stored_bytes_per_token
    assert 1 - held / 327_680 == pytest.approx(saved, abs=5e-5)


@pytest.mark.parametrize(("bits", "group", "ratio"), [(2, 32, 16 / 3.0), (4, 64, 16 / 4.5), (2, 1, 16 / 34)])
def test_M08_scales_and_zero_points_are_in_the_ratio(bits, group, ratio):
    elements = 2 * 128  # key and value
    kv = KVFormat(payload_bytes=elements * bits / 8, metadata_bytes=elements / group * 4)  # FP16 scale and zero point
    assert dense_kv(128).entry_bytes / kv.entry_bytes == pytest.approx(ratio)


def test_layers_may_differ_in_window_and_format():
    kvs = [KVFormat(256.0)] * 31 + [KVFormat(512.0)]
    workload = workload_from_dims(**LLAMA_2_7B, windows=[512] * 31 + [None], kv=kvs)
    with jax.enable_x64(True):
        # 31 layers hold 512 tokens at 256 B, the last holds 2048 + 10 at 512 B, for 32 heads each.
        expected = 32 * (31 * 512 * 256 + (2048 + 10) * 512)
        assert float(stored_bytes(load(workload), 2048, 10)) == expected


def test_generated_tokens_and_selection_have_their_own_fractions():
    kv = KVFormat(payload_bytes=512, kept_prompt=0.5, kept_generated=0.25, read_fraction=0.1)
    workload = workload_from_dims(**LLAMA_2_70B, kv=kv)
    assert workload.moved_bytes_per_token == pytest.approx(0.05 * 327_680)
    with jax.enable_x64(True):
        assert float(stored_bytes(load(workload), 1000, 100)) == 525 * 327_680
        assert float(moved_bytes(IDEAL, load(workload), 1, 1000, 100, 1)) == pytest.approx((52.5 + 1) * 327_680)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 0}, "num_layers must be a whole number of at least 1, got 0"),
        ({"head_dim": -128}, "head_dim must be a whole number"),
        ({"num_kv_heads": 7}, "num_heads must be a multiple of num_kv_heads, got 32 and 7"),
        ({"windows": [512]}, "windows must have one entry for each of 32 layers, got 1"),
        ({"windows": [0] * 32}, "window must be a whole number of at least 1, got 0"),
        ({"kv": [dense_kv(128)] * 3}, "kv must have one entry for each of 32 layers, got 3"),
        ({"compute": "fp16"}, "compute must be one of bf16, fp8, fp32, got 'fp16'"),
        ({"weight_bits": 0}, r"weight_bits must be in \(0, 64\], got 0"),
    ],
)
def test_wrong_sizes_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        workload_from_dims(**{**LLAMA_2_7B, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"payload_bytes": 0}, "payload_bytes must be greater than 0"),
        ({"payload_bytes": float("nan")}, "payload_bytes must be greater than 0"),
        ({"metadata_bytes": -1}, "metadata_bytes must be 0 or more"),
        ({"kept_prompt": 0}, r"kept_prompt must be in \(0, 1\], got 0"),
        ({"read_fraction": 1.5}, r"read_fraction must be in \(0, 1\], got 1.5"),
        ({"block_tokens": 0}, "block_tokens must be a whole number"),
    ],
)
def test_a_wrong_format_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        KVFormat(**{"payload_bytes": 512, **change})
