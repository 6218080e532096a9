"""Select: from scores and counts to kept columns, against a sort of plain Python and numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvjax.budgets.select import columns_of, select, take_columns

INF = np.inf


def chosen(scores, counts, capacity):
    return select(jnp.array(scores, jnp.float32), jnp.array(counts, jnp.int32), capacity).tolist()


@pytest.mark.parametrize(
    "scores, counts, capacity, want",
    [
        ([[3, 1, 2, 4]], [2], 2, [[0, 3]]),  # ascending, not by score
        ([[3, 1, 2, 4]], [2], 4, [[0, 3, 4, 4]]),  # padded with T
        ([[1, 5, 5, 5]], [2], 2, [[1, 2]]),  # ties go to the earlier token
        ([[0, 0, 0, 0]], [3], 4, [[0, 1, 2, 4]]),
        ([[1, -INF, 2, -INF]], [4], 4, [[0, 2, 4, 4]]),  # -inf is never kept, whatever the count
        ([[-INF, -INF]], [1], 2, [[2, 2]]),
        ([[1, INF, 2, INF]], [2], 2, [[1, 3]]),  # +inf comes first
        ([[INF, INF, INF]], [2], 2, [[0, 1]]),
        ([[3, 1, 2]], [0], 2, [[3, 3]]),
        ([[3, 1, 2]], [99], 3, [[0, 1, 2]]),  # a count larger than what there is
        ([[3, 1, 2]], [99], 2, [[0, 2]]),  # the capacity is the end
        ([[3, 1, 2], [1, 2, 3]], [1, 2], 2, [[0, 3], [1, 2]]),  # each head its own
    ],
)
def test_by_hand(scores, counts, capacity, want):
    assert chosen(scores, counts, capacity) == want


HEADS, TOKENS = 2, 12
levels = st.sampled_from([-INF, -2.5, 0.0, 0.125, 1.0, 7.0, INF])  # few, so that ties are common


@settings(deadline=None)
@given(
    st.lists(st.lists(levels, min_size=TOKENS, max_size=TOKENS), min_size=HEADS, max_size=HEADS),
    st.lists(st.integers(0, TOKENS + 3), min_size=HEADS, max_size=HEADS),
    st.sampled_from([1, 5, TOKENS]),
)
def test_law_equals_a_stable_sort(scores, counts, capacity):
    want = []
    for head, count in zip(np.array(scores), counts, strict=True):
        ranked = [column for column in np.argsort(-head, kind="stable").tolist() if head[column] > -INF]
        kept = sorted(ranked[: min(count, capacity)])
        want.append(kept + [TOKENS] * (capacity - len(kept)))
    assert chosen(scores, counts, capacity) == want


def test_counts_are_data_under_jit():
    """Another budget in the same pool compiles nothing."""
    compiled = jax.jit(select, static_argnames="capacity")
    scores = jnp.array([[3.0, 1.0, 2.0]])
    assert [compiled(scores, jnp.array([n], jnp.int32), capacity=3).tolist() for n in (1, 2, 3)] == [
        [[0, 3, 3]], [[0, 2, 3]], [[0, 1, 2]],
    ]  # fmt: skip
    assert compiled._cache_size() == 1


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=8, max_size=8))
def test_law_columns_of_a_mask(mask):
    want = [column for column, held in enumerate(mask) if held]
    got = columns_of(jnp.array([mask]), capacity=8).tolist()
    assert got == [want + [8] * (8 - len(want))]


def test_take_columns_fills_where_there_is_none():
    x = jnp.arange(12, dtype=jnp.float32).reshape(1, 2, 3, 2)
    columns = jnp.array([[[2, 3], [0, 1]]], jnp.int32)
    assert take_columns(x, columns, 0).tolist() == [[[[4, 5], [0, 0]], [[6, 7], [8, 9]]]]
    assert take_columns(x[..., 0].astype(jnp.int32), columns, -1).tolist() == [[[4, -1], [6, 8]]]
