"""One suite for every backend, against float64 attention over exactly the visible tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvjax import attention
from kvjax.cache import blocks, sharing
from kvjax.codecs import BF16, FP8, Dense
from kvjax.types import AttentionOutput, Entries
from tests.stores import add, counting, empty, ref_attention

FAR = 10_000


@pytest.fixture(params=list(attention.BACKENDS))
def backend(request):
    return request.param


def look(backend, store, q, positions=None, before=None, scale=1.0, window=None):
    q = jnp.asarray(q, jnp.float32)
    rows, _, tokens, _ = q.shape
    positions = jnp.full((rows, tokens), FAR) if positions is None else jnp.asarray(positions, jnp.int32)
    before = jnp.full(rows, FAR) if before is None else jnp.asarray(before, jnp.int32)
    run = jax.jit(
        lambda q, s: attention.over_blocks(q, s, positions, before, scale=scale, window=window, backend=backend)
    )
    return run(q, store)


def ragged(codec=None, rows=2, kv_heads=2, head_dim=8, slots=4, seed=0, counts=((5, 0), (9, 2))):
    rng = np.random.default_rng(seed)
    counts = np.asarray(counts)
    most = int(counts.max())
    k, v = (rng.normal(size=(rows, kv_heads, most, head_dim)).astype(np.float32) for _ in range(2))
    positions = np.where(np.arange(most) < counts[..., None], 3 * np.arange(most), -1).astype(np.int32)
    entries = Entries(jnp.asarray(k), jnp.asarray(v), jnp.asarray(positions))
    store = blocks.build(codec or Dense(), entries, blocks=12, slots=slots, table_width=4)
    return store, k, v, counts


@pytest.mark.parametrize("tokens", [1, 3, 40])
def test_ragged_heads_match_float64(backend, tokens):
    store, k, v, counts = ragged()
    q = np.random.default_rng(1).normal(size=(2, 6, tokens, 8))
    got = look(backend, store, q, scale=0.3)
    for b in range(2):
        for h in range(6):
            n = counts[b, h // 3]
            for t in range(tokens):
                if n == 0:
                    assert (np.asarray(got.out[b, h, t]) == 0).all()
                    assert got.lse[b, h, t] == -np.inf
                    continue
                out, lse = ref_attention(q[b, h, t], k[b, h // 3, :n], v[b, h // 3, :n], 0.3)
                np.testing.assert_allclose(got.out[b, h, t], out, atol=2e-6)
                np.testing.assert_allclose(got.lse[b, h, t], lse, atol=2e-6)


@pytest.mark.parametrize("codec", [BF16(), FP8(), FP8(scale="token"), FP8(scale="tensor", variant="e5m2")])
def test_coded_blocks_match_float64_over_the_decoded_values(backend, codec):
    store, _, _, counts = ragged(codec)
    entries = blocks.gather(store)
    q = np.random.default_rng(1).normal(size=(2, 4, 2, 8))
    got = look(backend, store, q)
    for b, h in ((0, 0), (1, 3)):
        n = counts[b, h // 2]
        out, lse = ref_attention(q[b, h, 1], entries.k[b, h // 2, :n], entries.v[b, h // 2, :n])
        np.testing.assert_allclose(got.out[b, h, 1], out, atol=1e-5)
        np.testing.assert_allclose(got.lse[b, h, 1], lse, atol=1e-5)


def test_P01_P02_a_recycled_block_brings_no_nan(backend):
    """A row wrote NaN and was freed; the next owner of its block sees only its own token."""
    store = empty(pool=1, width=1)
    bad = np.full((3, 2), np.nan)
    store = sharing.free(add(store, bad, bad, np.arange(3)), jnp.array([True]))
    store = add(store, [[1.0, 1.0]], [[1.0, 2.0]], [0])
    got = look(backend, store, np.ones((1, 1, 1, 2)))
    np.testing.assert_array_equal(got.out[0, 0, 0], [1.0, 2.0])


def test_P02_nan_in_unwritten_key_slots_is_masked(backend):
    store = add(empty(pool=1, width=1), [[1.0, 1.0]], [[0.0, 1.0]], [0])
    codes = store.keys.codes.at[0, :, 1:].set(jnp.nan)
    store = jax.tree.map(lambda x: x, store)
    object.__setattr__(store, "keys", type(store.keys)(codes, None))
    np.testing.assert_array_equal(look(backend, store, np.ones((1, 1, 1, 2))).out[0, 0, 0], [0.0, 1.0])


@pytest.mark.parametrize("codec", [Dense(), BF16(), FP8(), FP8(scale="token")])
def test_P03_stale_data_past_the_end_changes_no_bit(backend, codec):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 2))
    clean = add(empty(codec, pool=2, width=2), x[:5], x[:5], np.arange(5))
    stale = add(clean, np.full((3, 2), 400.0), np.full((3, 2), 400.0), np.arange(5, 8))
    object.__setattr__(stale, "positions", clean.positions)
    object.__setattr__(stale, "used", clean.used)
    q = rng.normal(size=(1, 1, 1, 2))
    np.testing.assert_array_equal(look(backend, clean, q).out, look(backend, stale, q).out)


def test_P04_a_row_without_tokens_gives_zero_and_minus_infinity(backend):
    store = empty(rows=2, pool=2, width=1)
    v = np.arange(16, dtype=np.float32).reshape(2, 1, 4, 2)
    store = add(
        store, np.ones((2, 1, 4, 2)), v, np.arange(4), valid=np.array([[True, True, False, False], [False] * 4])
    )
    got = look(backend, store, np.ones((2, 1, 1, 2)))
    np.testing.assert_allclose(got.out[0, 0, 0], [1.0, 2.0], rtol=1e-6)
    np.testing.assert_array_equal(got.out[1, 0, 0], [0.0, 0.0])
    assert got.lse[1, 0, 0] == -np.inf


def test_P16_query_heads_repeat_their_kv_head(backend):
    for heads, kv_heads in ((4, 2), (6, 2), (6, 3)):
        store = empty(kv_heads=kv_heads, head_dim=1, pool=kv_heads, width=1)
        values = np.arange(1, kv_heads + 1, dtype=np.float32).reshape(1, kv_heads, 1, 1)
        store = add(store, np.ones((1, kv_heads, 1, 1)), values, [0])
        got = look(backend, store, np.ones((1, heads, 1, 1)))
        np.testing.assert_array_equal(got.out.reshape(-1), np.repeat(values.reshape(-1), heads // kv_heads))


def test_only_earlier_tokens_are_seen(backend):
    store = add(empty(), *counting(6), np.arange(6))
    got = look(backend, store, np.ones((1, 1, 1, 2)), before=[4])
    np.testing.assert_allclose(got.out[0, 0, 0], 1.5, rtol=1e-6)


@pytest.mark.parametrize(("length", "mean"), [(6, 2.5), (7, 3), (8, 3.5), (9, 4.5), (10, 5.5)])
def test_L04_a_sliding_window_drops_no_token_early(backend, length, mean):
    """The newest token sees itself and window - 1 before it: here over the cache and itself, merged."""
    store = add(empty(pool=3, width=3), *counting(length - 1), np.arange(length - 1))
    q = jnp.ones((1, 1, 1, 2))
    past = look(backend, store, q, positions=[[length - 1]], before=[length - 1], window=8)
    own = attention.causal(q, q, q * (length - 1), jnp.ones((1, 1), bool), scale=1.0, window=8)
    np.testing.assert_allclose(attention.merge([past, own]).out[0, 0, 0], mean, rtol=1e-6)


def test_L06_chunks_that_do_not_fill_the_window(backend):
    """Window 4, chunks of 4 then 3: the last token sees 3, 4, 5, 6."""
    store = add(empty(), *counting(4), np.arange(4))
    k, v = (jnp.asarray(x)[None, None] for x in counting(3, start=4))
    q = jnp.ones((1, 1, 3, 2))
    past = look(backend, store, q, positions=[[4, 5, 6]], before=[4], window=4)
    own = attention.causal(q, k, v, jnp.ones((1, 3), bool), scale=1.0, window=4)
    np.testing.assert_allclose(attention.merge([past, own]).out[0, 0, :, 0], [2.5, 3.5, 4.5], rtol=1e-6)


def test_P05_queries_are_aligned_with_the_end_of_the_cache(backend):
    v = np.arange(8, dtype=np.float32).reshape(4, 2)
    store = add(empty(), np.ones((4, 2)), v, np.arange(4))
    one = look(backend, store, np.ones((1, 1, 1, 2)))
    np.testing.assert_allclose(one.out[0, 0, 0], [3, 4], rtol=1e-6)
    q = jnp.ones((1, 1, 2, 2))
    past = look(backend, store, q, positions=[[2, 3]], before=[2])
    own = attention.causal(q, q, jnp.asarray(v)[None, None, 2:], jnp.ones((1, 2), bool), scale=1.0)
    np.testing.assert_allclose(attention.merge([past, own]).out[0, 0], [[2, 3], [3, 4]], rtol=1e-6)


def test_after_a_fork_the_flat_backend_refuses_and_the_reference_is_taken():
    store = sharing.fork(add(empty(), *counting(4), np.arange(4)), jnp.array([0, 0]))
    with pytest.raises(NotImplementedError, match="fork"):
        look("flat", store, np.ones((2, 1, 1, 2)))
    np.testing.assert_allclose(look(None, store, np.ones((2, 1, 1, 2))).out[..., 0], 1.5, rtol=1e-6)
    assert attention.backend_for(store) == "reference"


def test_unknown_backend_is_an_error():
    with pytest.raises(ValueError, match="allowed: flat, reference"):
        look("fast", empty(), np.ones((1, 1, 1, 2)))


def test_merge_of_any_split_is_attention_over_the_whole(backend):
    rng = np.random.default_rng(0)
    k, v = rng.normal(size=(2, 12, 2))
    q = rng.normal(size=(1, 1, 1, 2))
    for cut in (0, 1, 5, 12):
        parts = [
            look(backend, add(empty(), k[piece], v[piece], np.arange(12)[piece]) if k[piece].size else empty(), q)
            for piece in (slice(0, cut), slice(cut, 12))
        ]
        merged: AttentionOutput = attention.merge(parts)
        out, lse = ref_attention(q[0, 0, 0], k, v)
        np.testing.assert_allclose(merged.out[0, 0, 0], out, atol=1e-6)
        np.testing.assert_allclose(merged.lse[0, 0, 0], lse, atol=1e-6)


def test_merge_where_nothing_is_seen_at_all(backend):
    nothing = look(backend, empty(), np.ones((1, 1, 1, 2)))
    merged = attention.merge([nothing, nothing])
    assert (np.asarray(merged.out) == 0).all()
    assert (np.asarray(merged.lse) == -np.inf).all()
