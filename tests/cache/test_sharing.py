"""Fork, copy on write, free, grow and rollback."""

import jax.numpy as jnp
import numpy as np
import pytest

from kvjax.cache import blocks, sharing
from kvjax.codecs import FP8, Dense
from tests.stores import add, counting, empty, held


def forked(tokens=6, slots=4, rows=(0, 0), pool=8):
    store = add(empty(pool=pool, slots=slots, width=4), *counting(tokens), np.arange(tokens))
    return store, sharing.fork(store, jnp.asarray(rows))


def test_P14_branches_of_a_partly_filled_block_do_not_see_each_other():
    parent, store = forked()
    assert sorted(store.references.tolist(), reverse=True)[:2] == [2, 2]
    values = np.array([100.0, 200.0], np.float32).reshape(2, 1, 1, 1)
    store = add(store, np.ones((2, 1, 1, 2)), np.broadcast_to(values, (2, 1, 1, 2)), [6])
    assert held(store, row=0) == (list(range(7)), [0, 1, 2, 3, 4, 5, 100])
    assert held(store, row=1) == (list(range(7)), [0, 1, 2, 3, 4, 5, 200])
    full = store.table[0, 0, 0]
    assert int(store.references[full]) == 2
    assert held(parent) == (list(range(6)), [0, 1, 2, 3, 4, 5])
    alone = sharing.free(store, jnp.array([True, False]))
    assert int(alone.references[full]) == 1
    assert held(alone, row=1) == (list(range(7)), [0, 1, 2, 3, 4, 5, 200])


def test_P15_a_freed_rows_shared_blocks_are_not_given_away():
    _, store = forked(tokens=4, rows=(0, 0, 0), pool=2)
    store = sharing.free(store, jnp.array([True, False, True]))
    store = add(store, np.full((1, 2), 7.0), np.full((1, 2), 7.0), [0], valid=np.array([[False], [False], [True]]))
    assert held(store, row=1) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert held(store, row=2) == ([0], [7.0])


def test_fork_of_a_full_block_copies_nothing():
    _, store = forked(tokens=8)
    before = int(jnp.sum(store.references > 0))
    store = add(store, *counting(1, start=9), [8])
    assert int(jnp.sum(store.references > 0)) == before + 2


def test_crop_is_as_if_the_tokens_had_never_been_seen():
    store = add(empty(), *counting(6), np.arange(6))
    longer = add(store, *counting(5, start=50), np.arange(6, 11))
    back = sharing.crop(longer, jnp.array([6]))
    assert held(back) == held(store)
    assert back.references.sum() == store.references.sum()
    again = add(back, *counting(1, start=60), [6])
    assert held(again) == (list(range(7)), [0, 1, 2, 3, 4, 5, 60])


def test_crop_of_a_fork_leaves_the_other_row_alone():
    _, store = forked(tokens=6)
    cut = sharing.crop(store, jnp.array([5, 6]))
    assert held(cut, row=0)[0] == [0, 1, 2, 3, 4]
    assert held(cut, row=1)[0] == [0, 1, 2, 3, 4, 5]
    more = add(cut, *counting(1, start=9), np.array([[5], [6]]))
    assert held(more, row=0) == ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 9])
    assert held(more, row=1) == ([0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 9])


def test_cropped_slots_hold_zeros():
    """P-01 from the cache's side: what is behind the end is finite, even if NaN stood there."""
    store = add(empty(), *counting(2), np.arange(2))
    bad = add(store, np.full((1, 2), np.nan), np.full((1, 2), np.nan), [2])
    clean = sharing.crop(bad, jnp.array([2]))
    assert np.isfinite(np.asarray(clean.values.codes)).all()
    assert np.isfinite(np.asarray(clean.keys.codes)).all()


@pytest.mark.parametrize("codec", [Dense(), FP8(), FP8(scale="token")])
def test_Q24_grow_and_fork_move_blocks_with_their_scales(codec):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 16)) * np.array([0.01, 1, 100, 1, 1, 3, 9])[:, None]
    store = add(empty(codec, head_dim=16), x, x, np.arange(7))
    grown = sharing.grow(sharing.fork(store, jnp.array([0, 0])), blocks=3, table_width=2)
    before, after = blocks.gather(store), blocks.gather(grown)
    assert grown.blocks == store.blocks + 3
    for row in (0, 1):
        np.testing.assert_array_equal(after.k[row, :, :7], before.k[0, :, :7])
        np.testing.assert_array_equal(after.v[row, :, :7], before.v[0, :, :7])


def test_grown_room_is_usable():
    store = add(empty(pool=1, width=1), *counting(4), np.arange(4))
    assert bool(add(store, *counting(1), [4]).overflow)
    grown = sharing.grow(store, blocks=1, table_width=1)
    more = add(grown, *counting(1, start=4), [4])
    assert not bool(more.overflow)
    assert held(more)[0] == [0, 1, 2, 3, 4]


def test_without_room_for_its_own_copy_a_fork_writes_nothing():
    """Both rows share a block with two free slots; there is no block left to copy it to."""
    _, store = forked(tokens=6, pool=2)
    full = add(store, *counting(1, start=9), [6])
    assert bool(full.overflow)
    for row in (0, 1):
        assert held(full, row=row) == (list(range(6)), [0, 1, 2, 3, 4, 5])
