"""Sizes that the cost model reads, against hand arithmetic."""

import pytest

from kvjax.codecs import BF16, FP8
from kvjax.compressor import compressor
from kvjax.experiment.workloads import entry_bytes, kv_formats, workload
from kvjax.models import load_config

# A block of 64 tokens of one head also holds 64 positions (4 B each), an owner, a table entry and a reference count.
TABLES_PER_BLOCK = 64 * 4 + 3 * 4


def test_bf16_entry_is_two_bytes_a_number() -> None:
    assert entry_bytes(BF16(), 128, 64) == (2 * 2 * 128, TABLES_PER_BLOCK / 64)


def test_fp8_entry_is_one_byte_a_number_and_its_scales() -> None:
    payload, metadata = entry_bytes(FP8(), 128, 64)
    assert payload == 2 * 128
    assert metadata >= TABLES_PER_BLOCK / 64


def test_llama_2_70b_in_bf16_is_the_published_320_kib_a_token() -> None:
    """Payload of 80 layers x 8 KV heads x 128 x 2 (K, V) x 2 B = 327,680 B."""
    load = workload(load_config("llama-2-70b"), compressor("bf16"), 4096, "llama-2-70b")
    assert sum(layer.kv_heads * layer.kv.payload_bytes for layer in load.layers) == 327_680


def test_eviction_keeps_the_budgets_share() -> None:
    formats = kv_formats(load_config("llama-3.1-8b"), compressor("knorm | uniform(keep=0.25) | fp8"), 4096)
    assert [held.kept_prompt for held in formats] == [0.25] * 32
    assert {held.payload_bytes for held in formats} == {256.0}


def test_sinks_and_recent_tokens_are_counted_uncoded() -> None:
    """4 + 60 of 256 kept tokens in BF16 (512 B), the other 192 in FP8 (256 B): 0.25 * 512 + 0.75 * 256 = 320."""
    spec = "knorm | uniform(keep=0.25) | fp8 | sinks(4) | recent(60)"
    assert kv_formats(load_config("llama-3.1-8b"), compressor(spec), 1024)[0].payload_bytes == 320.0


def test_sliding_window_layers_keep_what_a_query_can_see() -> None:
    config = load_config("gemma-3-270m")
    load = workload(config, compressor("bf16"), 4096, "gemma")
    assert [layer.window for layer in load.layers] == [layer.window for layer in config.layers]
    assert {layer.kv.kept_prompt for layer in load.layers} == {1.0}


@pytest.mark.parametrize("spec", ["snapkv(window=64) | uniform(keep=0.5)", "knorm | uniform(tokens=100)"])
def test_a_prompt_too_short_for_the_compressor_is_an_error(spec: str) -> None:
    with pytest.raises(ValueError, match="context"):
        workload(load_config("llama-3.1-8b"), compressor(spec), 32, "llama")
