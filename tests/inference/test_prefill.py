"""Prefill, forward and decode through the cache against transformers' recorded logits, however they are cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvjax.compressor import compressor
from kvjax.inference import decode, forward, prefill
from kvjax.models import logits as dense_logits
from tests.inference.conftest import GOLDEN, recorded, tiny

ARCHITECTURES = sorted(path.name for path in GOLDEN.iterdir())
DENSE = compressor("dense | block(4)")
TOLERANCE = 5e-5


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_cached_logits_equal_transformers(architecture):
    """Context of 15, then 8 tokens at once, then 1: windows and RoPE included."""
    model, (tokens, want) = tiny(architecture), recorded(architecture)
    last, cache = prefill(model, tokens[:, :15], DENSE, max_new_tokens=9)
    np.testing.assert_allclose(last, want[:, 14], atol=TOLERANCE)
    more, cache = forward(model, cache, tokens[:, 15:23])
    np.testing.assert_allclose(more, want[:, 15:23], atol=TOLERANCE)
    one, _ = decode(model, cache, tokens[:, 23])
    np.testing.assert_allclose(one, want[:, 23], atol=TOLERANCE)


@pytest.mark.parametrize("chunk", [1, 5, 14])
@pytest.mark.parametrize("spec", ["dense | block(4)", "knorm | uniform(keep=0.5) | bf16 | block(4)"])
def test_chunked_prefill_equals_one_go(model, chunk, spec):
    tokens = recorded("llama")[0]
    whole, cache = prefill(model, tokens[:, :15], compressor(spec), max_new_tokens=4)
    pieces, other = prefill(model, tokens[:, :15], compressor(spec), max_new_tokens=4, chunk=chunk)
    np.testing.assert_allclose(whole, pieces, atol=TOLERANCE)
    for a, b in zip(cache.kept(), other.kept(), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(
        forward(model, cache, tokens[:, 15:19])[0], forward(model, other, tokens[:, 15:19])[0], atol=1e-2
    )


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize(
    "spec", ["dense | block(4)", "knorm | uniform(keep=0.5) | block(4)", "fp8 | sinks(1) | recent(2) | block(4)"]
)
def test_R01_R02_a_padded_row_equals_the_row_alone(model, padding, spec):
    """Positions, scores, kept sets and logits do not see padding or its ids."""
    tokens, lengths, width = recorded("llama")[0][0], [16, 5, 9], 16
    batch = np.full((3, width), 77, np.int32)
    for row, n in enumerate(lengths):
        where = slice(0, n) if padding == "right" else slice(width - n, width)
        batch[row, where] = tokens[row : row + n]
    chosen = compressor(spec)
    last, cache = prefill(model, batch, chosen, lengths=lengths, padding=padding, max_new_tokens=3)
    follow = np.array([[1, 2, 3]] * 3)
    more, _ = forward(model, cache, follow)
    for row, n in enumerate(lengths):
        alone, own = prefill(model, tokens[row : row + n], chosen, max_new_tokens=3)
        np.testing.assert_allclose(last[row], alone[0], atol=1e-5)
        kept, length = cache.kept(row)
        own_kept, own_length = own.kept()
        np.testing.assert_array_equal(length, own_length)
        np.testing.assert_array_equal(kept[..., : own_kept.shape[-1]], own_kept)
        np.testing.assert_allclose(
            more[row], forward(model, own, follow[0])[0][0], atol=2e-3 if "fp8" in spec else 1e-5
        )


def test_R02_a_budget_beyond_a_short_row_keeps_all_of_it(model):
    tokens = np.tile(np.arange(8, dtype=np.int32), (2, 1))
    _, cache = prefill(model, tokens, compressor("knorm | uniform(tokens=6)"), lengths=[8, 5])
    assert cache.kept(0)[1].min() == cache.kept(0)[1].max() == 6
    assert cache.kept(1)[1].min() == cache.kept(1)[1].max() == 5


def test_R03_the_next_position_is_not_the_number_kept(model):
    """After evicting half, the next token stands where it would have stood, behind a gap."""
    tokens = recorded("llama")[0]
    _, cache = prefill(
        model, tokens[:, :16], compressor("streaming_llm(sinks=1) | uniform(tokens=9)"), max_new_tokens=1
    )
    assert cache.next_position.tolist() == [16, 16]
    assert cache.kept()[0][0, 0].tolist() == [0, *range(8, 16)]
    _, cache = decode(model, cache, tokens[:, 16])
    assert cache.next_position.tolist() == [17, 17]
    assert cache.kept()[0][0, 0].tolist() == [0, *range(8, 17)]


def test_E07_compression_does_not_touch_the_prefill_pass(model):
    tokens, want = recorded("llama")
    last, cache = prefill(model, tokens[:, :24], compressor("knorm | uniform(keep=0.25)"))
    np.testing.assert_allclose(last, want[:, 23], atol=TOLERANCE)
    assert cache.kept()[1].tolist() == [[6] * model.config.num_kv_heads] * model.config.num_layers


def test_a_budget_of_everything_changes_nothing(model):
    tokens, want = recorded("llama")
    _, cache = prefill(model, tokens[:, :16], compressor("knorm | uniform(keep=1)"), max_new_tokens=8)
    np.testing.assert_allclose(forward(model, cache, tokens[:, 16:])[0], want[:, 16:], atol=TOLERANCE)


@pytest.mark.parametrize("architecture", ["mistral", "gemma3"])
def test_a_windowed_layer_holds_no_more_than_its_window(architecture):
    model, (tokens, want) = tiny(architecture), recorded(architecture)
    _, cache = prefill(model, tokens[:, :16], DENSE, max_new_tokens=8)
    for layer, length in zip(model.config.layers, cache.kept()[1], strict=True):
        assert length.tolist() == [16 if layer.window is None else layer.window - 1] * model.config.num_kv_heads
    np.testing.assert_allclose(forward(model, cache, tokens[:, 16:])[0], want[:, 16:], atol=TOLERANCE)


def test_logits_of_many_steps_equal_the_reference(model):
    """Chunk after chunk, over block edges, to twice the recorded length."""
    tokens = np.random.default_rng(0).integers(0, 96, size=(1, 48)).astype(np.int32)
    want = dense_logits(model.config, model.params, jnp.asarray(tokens))
    _, cache = prefill(model, tokens[:, :6], DENSE, max_new_tokens=42)
    got = []
    for start in range(6, 48, 7):
        logits, cache = forward(model, cache, tokens[:, start : start + 7])
        got.append(logits)
    np.testing.assert_allclose(np.concatenate(got, axis=1), want[:, 6:], atol=TOLERANCE)


def test_decoding_and_new_budgets_recompile_nothing(model):
    from kvjax.inference import step
    from kvjax.inference.decoding import step as decode_step

    tokens = recorded("llama")[0][:, :20]
    _, cache = prefill(model, tokens, compressor("knorm | uniform(tokens=10)"), max_new_tokens=8)
    _, cache = decode(model, cache, [1, 2])
    compiled = decode_step._cache_size(), step.append_layer._cache_size()
    for token in range(5):
        _, cache = decode(model, cache, [token, token + 1])
    assert (decode_step._cache_size(), step.append_layer._cache_size()) == compiled


@pytest.mark.parametrize("sinks", [0, 2])
def test_recent_tokens_stay_exact_and_are_coded_a_block_at_a_time(model, sinks):
    """Q-09, Q-10: fill and flush; the split depends on positions only, between `recent` and `recent` + block - 1."""
    tokens = np.random.default_rng(1).integers(0, 96, size=(1, 60)).astype(np.int32)
    chosen = compressor(f"fp8 | sinks({sinks}) | recent(8) | block(4)")
    splits = {}
    for size in (1, 3, 4):
        _, cache = prefill(model, tokens[:, :20], chosen, max_new_tokens=40)
        for start in range(20, 56, size):
            _, cache = forward(model, cache, tokens[:, start : start + size])
            layer = cache.layers[0]
            exact = int(layer.exact.tokens()[0, 0]) - sinks
            assert 8 <= exact <= 8 + 2 * 4 - 1
            assert int(layer.coded.tokens()[0, 0]) + exact + sinks == min(start + size, 60)
            assert cache.kept()[0][0, 0].tolist() == list(range(min(start + size, 60)))
        splits[size] = int(cache.layers[0].coded.tokens()[0, 0])
    assert splits[1] == splits[3] == splits[4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": []}, "empty"),
        ({"tokens": [1, 96]}, "96 is outside the vocabulary 0..95"),
        ({"tokens": [-1, 3]}, "-1 is outside"),
        ({"tokens": np.ones(4)}, "integers"),
        ({"tokens": np.zeros((1, 2, 3), np.int32)}, r"\[B, T\]"),
        ({"max_new_tokens": 125}, "limit of llama: 128"),
        ({"max_new_tokens": -1}, "0 or more"),
        ({"lengths": [5]}, "lengths"),
        ({"compressor": compressor("knorm | uniform(tokens=5)")}, "more than the context's 4 tokens"),
        ({"compressor": compressor("snapkv(window=4) | uniform(keep=0.5)")}, "longer context"),
        ({"compressor": compressor("snapkv(window=3) | uniform(keep=0.5)"), "chunk": 2}, "chunk=2 is too short"),
    ],
)
def test_bad_input_is_a_clear_error(model, change, message):
    arguments = {"tokens": [1, 2, 3, 4], "compressor": DENSE, **change}
    with pytest.raises(ValueError, match=message):
        prefill(model, arguments.pop("tokens"), arguments.pop("compressor"), **arguments)


def test_a_full_cache_is_an_error_and_stays_as_it_was(model):
    from kvjax.cache import CacheOverflow

    _, cache = prefill(model, [1, 2, 3, 4], DENSE, max_new_tokens=2)
    before = cache.kept()
    with pytest.raises(CacheOverflow, match="max_new_tokens"):
        forward(model, cache, [5] * 9)
    for a, b in zip(before, cache.kept(), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="2 rows of tokens for a cache of 1"):
        forward(model, cache, [[1], [2]])


def test_under_vmap_and_grad_free_jit_the_cache_is_a_plain_pytree(model):
    _, cache = prefill(model, [1, 2, 3, 4], DENSE, max_new_tokens=4)
    leaves, structure = jax.tree.flatten(cache)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    again = jax.tree.unflatten(structure, leaves)
    assert jax.tree.structure(again) == structure
