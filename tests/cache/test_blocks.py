"""The pool and its tables: append, allocation, overflow, ragged heads, positions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvjax.cache import blocks
from kvjax.codecs import BF16, FP8, Dense
from kvjax.types import Entries
from tests.stores import add, counting, empty, held


def test_append_crosses_block_edges_and_keeps_order():
    store = empty(pool=3, slots=4, width=3)
    for start, count in ((0, 3), (3, 4), (7, 1)):
        store = add(store, *counting(count, start=start), np.arange(start, start + count))
    assert held(store) == (list(range(8)), [float(i) for i in range(8)])
    assert int(jnp.sum(store.references)) == 2
    assert not bool(store.overflow)


def test_L01_length_does_not_depend_on_the_data():
    store = empty()
    for position, value in enumerate((0.0, 1.0, 0.0)):
        token = np.full((1, 2), value)
        store = add(store, token, token, [position])
    assert store.tokens().tolist() == [[3]]


def test_P10_second_head_does_not_land_in_the_first():
    store = empty(kv_heads=2, head_dim=1, slots=8, pool=2, width=1)
    values = np.array([[[1], [2], [3], [4]], [[11], [12], [13], [14]]], np.float32)
    store = add(store, values, values, np.arange(4))
    assert held(store, head=0)[1] == [1, 2, 3, 4]
    assert held(store, head=1)[1] == [11, 12, 13, 14]
    codes = np.asarray(store.values.codes)[..., 0]
    np.testing.assert_array_equal(sorted(codes.tolist()), [[1, 2, 3, 4, 0, 0, 0, 0], [11, 12, 13, 14, 0, 0, 0, 0]])


@pytest.mark.parametrize(("pool", "slots", "head_dim"), [(2067, 1, 1_039_680), (65_536, 16 * 2 * 8, 128)])
def test_P11_a_pool_beyond_32_bit_offsets_is_refused(pool, slots, head_dim):
    with pytest.raises(ValueError, match=str(pool * slots * head_dim)):
        jax.eval_shape(lambda: empty(pool=pool, slots=slots, head_dim=head_dim))
    smaller = jax.eval_shape(lambda: empty(pool=2065 if slots == 1 else 65_535, slots=slots, head_dim=head_dim))
    assert smaller.blocks == (2065 if slots == 1 else 65_535)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("limit", ["pool", "table"])
def test_P12_a_write_past_the_end_changes_nothing_and_is_reported(jit, limit):
    store = empty(pool=2 if limit == "pool" else 9, slots=4, width=2 if limit == "table" else 9)
    store = add(store, *counting(6), np.arange(6))
    write = jax.jit(blocks.append) if jit else blocks.append
    k, v = (jnp.asarray(x)[None, None] for x in counting(3, start=100))
    after = write(store, k, v, jnp.arange(6, 9)[None], jnp.ones((1, 3), bool))
    assert bool(after.overflow)
    assert held(after) == held(store) == (list(range(6)), [float(i) for i in range(6)])


@pytest.mark.parametrize(("i", "j"), [(9, 0), (3, 5), (6, 0)])
def test_P13_reads_beyond_the_pool_are_empty_under_jit_as_eagerly(i, j):
    """Where nested slices would clamp differently, a slot without a token reads as none, compiled or not."""
    store = add(empty(pool=3, slots=4, width=3), *counting(10), np.arange(10))
    eager, jitted = blocks.gather(store), jax.jit(blocks.gather)(store)
    np.testing.assert_array_equal(eager.positions, jitted.positions)
    at = i + j
    expected = at if at < 10 else -1
    assert int(eager.positions[0, 0, at]) == int(jitted.positions[0, 0, at]) == expected


def test_P18_values_are_never_read_from_the_keys():
    for codec in (Dense(), BF16(), FP8()):
        for head_dim in (64, 128, 256):
            store = empty(codec, head_dim=head_dim)
            _, v = counting(4, head_dim)
            entries = blocks.gather(add(store, np.ones((4, head_dim)), v, np.arange(4)))
            np.testing.assert_allclose(np.mean(entries.v[0, 0, :4], axis=0), 1.5, rtol=0.05)


def test_build_gives_each_head_its_own_number_of_blocks():
    """Ragged heads: 5, 0, 9 and 1 tokens in blocks of 4 need 2 + 0 + 3 + 1 blocks, not 4 x 3."""
    counts = np.array([[5, 0], [9, 1]])
    positions = np.where(np.arange(9)[None, None] < counts[..., None], np.arange(9)[None, None] * 2, -1).astype(
        np.int32
    )
    k = jnp.asarray(np.random.default_rng(0).normal(size=(2, 2, 9, 3)), jnp.float32)
    store = blocks.build(Dense(), Entries(k, 2 * k, jnp.asarray(positions)), blocks=7, slots=4, table_width=3)
    assert int(jnp.sum(store.references > 0)) == 6
    assert store.tokens().tolist() == counts.tolist()
    entries = blocks.gather(store)
    for b in range(2):
        for h in range(2):
            n = counts[b, h]
            np.testing.assert_array_equal(entries.positions[b, h, :n], 2 * np.arange(n))
            np.testing.assert_array_equal(entries.k[b, h, :n], k[b, h, :n])
            np.testing.assert_array_equal(entries.v[b, h, :n], 2 * k[b, h, :n])


def test_build_that_does_not_fit_is_reported_and_holds_nothing():
    k = jnp.ones((1, 2, 5, 2))
    positions = jnp.broadcast_to(jnp.arange(5), (1, 2, 5))
    store = blocks.build(Dense(), Entries(k, k, positions), blocks=3, slots=4, table_width=2)
    assert bool(store.overflow)
    assert store.tokens().tolist() == [[0, 0]]


def test_freed_blocks_serve_another_row_only_then():
    from kvjax.cache import sharing

    store = empty(rows=2, pool=2, slots=4, width=2)
    store = add(store, *counting(8), np.arange(8), valid=np.array([[True] * 8, [False] * 8]))
    full = add(store, *counting(1), [0], valid=np.array([[False], [True]]))
    assert bool(full.overflow)
    freed = sharing.free(store, jnp.array([True, False]))
    served = add(freed, *counting(1, start=7), [0], valid=np.array([[False], [True]]))
    assert not bool(served.overflow)
    assert held(served, row=1) == ([0], [7.0])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(1, 5))
def test_any_chunking_gives_the_same_tokens(chunks, slots):
    """L-09: what is held does not depend on how it was cut."""
    total = sum(chunks)
    k, v = counting(total)
    at_once = add(empty(pool=40, slots=slots, width=40), k, v, np.arange(total))
    store, start = empty(pool=40, slots=slots, width=40), 0
    for count in chunks:
        piece = slice(start, start + count)
        store = add(store, k[piece], v[piece], np.arange(start, start + count))
        start += count
    assert held(store) == held(at_once)
    assert store.references.sum() == at_once.references.sum() == -(-total // slots)


def test_nbytes_counts_blocks_in_use_and_their_metadata():
    """64 tokens of 2 heads in blocks of 32, head_dim 64, FP8 by token: by hand."""
    store = add(
        empty(FP8(scale="token"), kv_heads=2, head_dim=64, pool=9, slots=32, width=3), *counting(64, 64), np.arange(64)
    )
    tokens = 64 * 2
    assert store.nbytes().payload == tokens * 128
    tables = 4 * (2 * 3 + 2 + 9 + 9)  # table, used, owner, references
    assert store.nbytes().metadata == tokens * (4 + 4 + 4) + tables  # two scales and a position a token
    assert store.pool_nbytes() == 9 * 32 * (128 + 12) + tables + 1


def test_state_keeps_its_shapes_through_append_and_cond():
    store = empty()
    k, v = (jnp.asarray(x)[None, None] for x in counting(1))
    args = (k, v, jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), bool))
    out = jax.lax.cond(True, lambda s: blocks.append(s, *args), lambda s: s, store)
    assert jax.tree.structure(out) == jax.tree.structure(store)
    for a, b in zip(jax.tree.leaves(out), jax.tree.leaves(store), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


def test_stores_stack_under_vmap():
    """A stack of independent pools, mapped over, does what each does alone."""
    store = empty()
    stack = jax.tree.map(lambda x: jnp.stack([x, x]), store)
    k, v = (jnp.stack([jnp.asarray(x)[None, None], 2 * jnp.asarray(x)[None, None]]) for x in counting(3))
    positions, valid = jnp.arange(3)[None], jnp.ones((1, 3), bool)
    mapped = jax.vmap(blocks.append, in_axes=(0, 0, 0, None, None))(stack, k, v, positions, valid)
    for row in (0, 1):
        alone = blocks.append(store, k[row], v[row], positions, valid)
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(mapped), strict=True):
            np.testing.assert_array_equal(a, b[row])
