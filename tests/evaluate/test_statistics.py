"""Intervals against hand-computed distributions, published tables, and the coverage that they promise."""

import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from kvjax.evaluate.statistics import (
    Interval,
    bootstrap_mean,
    bootstrap_ratio,
    mean_difference,
    relative_change,
    wilson,
)

finite = st.floats(-1e3, 1e3)


def test_two_items_have_three_resampled_means():
    """Means of resamples of {0, 1}: 0 (1/4), 1/2 (1/2), 1 (1/4). Both tails lie inside the outer quarters."""
    assert bootstrap_mean([0.0, 1.0]) == Interval(0.5, 0.0, 1.0, 0.95)


def test_level_reaches_the_inner_value():
    """n = 2: t at 60 % confidence = tan(0.3 pi), tail = Phi(-sqrt(2) t) = 0.0258 at 0.6; at 0.1 it is 0.411 > 1/4."""
    t = math.tan(math.pi * 0.05)  # Student's t with one degree of freedom is the Cauchy distribution
    tail = 0.5 * math.erfc(math.sqrt(2) * t / math.sqrt(2))
    assert tail > 0.4
    assert bootstrap_mean([0.0, 1.0], level=0.1) == Interval(0.5, 0.5, 0.5, 0.1)


def test_equal_items_have_no_width():
    assert bootstrap_mean([0.25] * 5) == Interval(0.25, 0.25, 0.25, 0.95)


def test_contexts_are_drawn_whole_and_tokens_count_once():
    """Contexts (0, 0, 0) and (4): resamples give 0, 4 / 4 = 1 and 4; the estimate is 4 / 4, not (0 + 4) / 2."""
    interval = bootstrap_mean([np.zeros(3), np.array([4.0])])
    assert (interval.estimate, interval.low, interval.high) == (1.0, 0.0, 4.0)


def test_one_context_draws_its_tokens():
    values = np.random.default_rng(3).normal(size=40)
    assert bootstrap_mean([values], seed=5) == bootstrap_mean(values, seed=5)


def test_more_tokens_of_the_same_contexts_add_no_certainty():
    """Twenty copies of each context's value are still three independent values."""
    means = [0.0, 1.0, 5.0]
    few, many = bootstrap_mean(means), bootstrap_mean([np.full(20, mean) for mean in means])
    assert (few.low, few.high) == pytest.approx((many.low, many.high))


def test_wide_data_matches_the_normal_interval():
    """n = 400: mean +- t * s / sqrt(n) of Student's t, to within the bootstrap's own noise."""
    values = np.random.default_rng(0).normal(2.0, 3.0, 400)
    interval = bootstrap_mean(values)
    half = 1.9659 * values.std(ddof=1) / 20  # t quantile 0.975 with 399 degrees of freedom
    assert interval.low == pytest.approx(values.mean() - half, abs=0.02)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.02)


@pytest.mark.parametrize("n", [4, 10, 30])
def test_coverage_of_a_known_mean(n):
    """Of 400 normal samples, a share near 95 % must have the true mean inside; plain percentiles give 0.80 at n = 4.

    Below 0.90 is 4 standard errors (0.011 each) away from 0.945. For n = 4 the interval is [min, max] of the sample,
    whose true coverage is known: 1 - 2 / 2**4 = 0.875.
    """
    draw = np.random.default_rng(n)
    samples = draw.normal(1.5, 2.0, (400, n))
    intervals = [bootstrap_mean(sample, resamples=1000) for sample in samples]
    covered = np.mean([interval.low <= 1.5 <= interval.high for interval in intervals])
    assert covered > (0.81 if n == 4 else 0.90)
    assert covered < 0.985


def test_pairing_removes_what_both_share():
    """Contexts differ by nats, the compressor adds exactly 0.01 everywhere: the difference has no width."""
    reference = [np.array([1.0, 2.0]), np.array([8.0, 4.0, 6.0])]
    interval = mean_difference([values + 0.01 for values in reference], reference)
    assert interval.estimate == pytest.approx(0.01)
    assert interval.low == pytest.approx(0.01) and interval.high == pytest.approx(0.01)


def test_relative_change_by_hand():
    """Sums 3 -> 3.3 and 18 -> 18.9: 1.2 / 21; resamples of one context alone give 0.3 / 3 = 0.1 and 0.9 / 18 = 0.05."""
    reference = [np.array([1.0, 2.0]), np.array([8.0, 4.0, 6.0])]
    ours = [np.array([1.1, 2.2]), np.array([8.4, 4.2, 6.3])]
    interval = relative_change(ours, reference)
    assert interval.estimate == pytest.approx(1.2 / 21)
    assert (interval.low, interval.high) == pytest.approx((0.05, 0.1))


def test_ratio_of_a_constant_factor_is_exact():
    interval = bootstrap_ratio([1.0, 2.0, 30.0], [2.0, 4.0, 60.0])
    assert (interval.estimate, interval.low, interval.high) == (0.5, 0.5, 0.5)


def test_accuracy_difference_by_hand():
    """Hits 1,1 -> 1,0: differences 0, -1."""
    assert mean_difference([1, 0], [1, 1]) == Interval(-0.5, -1.0, 0.0, 0.95)


@hypothesis.given(st.lists(finite, min_size=2, max_size=8), finite)
def test_shift_moves_the_interval(values, shift):
    plain = bootstrap_mean(values, resamples=100)
    moved = bootstrap_mean([value + shift for value in values], resamples=100)
    expected = [x + shift for x in (plain.estimate, plain.low, plain.high)]
    np.testing.assert_allclose([moved.estimate, moved.low, moved.high], expected, atol=1e-9)


@hypothesis.given(st.lists(finite, min_size=2, max_size=8), st.integers(0, 5))
def test_same_seed_same_interval_inside_the_range(values, seed):
    interval = bootstrap_mean(values, resamples=100, seed=seed)
    assert interval == bootstrap_mean(values, resamples=100, seed=seed)
    assert min(values) - 1e-9 <= interval.low <= interval.high <= max(values) + 1e-9


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_against_newcombe_1998_table_1(successes, trials, low, high):
    """R. G. Newcombe, Statistics in Medicine 17 (1998) 857-872, Table I, method 3 (Wilson without correction)."""
    interval = wilson(successes, trials)
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)
    assert interval.estimate == successes / trials


@hypothesis.given(st.integers(1, 50), st.data())
def test_wilson_is_symmetric_and_inside_0_to_1(trials, data):
    successes = data.draw(st.integers(0, trials))
    one, other = wilson(successes, trials), wilson(trials - successes, trials)
    assert 0 <= one.low <= one.estimate <= one.high <= 1
    assert (one.low, one.high) == pytest.approx((1 - other.high, 1 - other.low))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_mean([]), "at least two values"),
        (lambda: bootstrap_mean([1.0]), "at least two values"),
        (lambda: bootstrap_mean([np.array([1.0])]), "at least two values"),
        (lambda: bootstrap_mean([1.0, math.nan]), "not finite"),
        (lambda: bootstrap_mean([np.array([1.0]), np.array([])]), "context 1 must hold"),
        (lambda: bootstrap_mean([1.0, 2.0], level=1.0), "level must lie in"),
        (lambda: bootstrap_mean([1.0, 2.0], resamples=0), "resamples must be 1 or more"),
        (lambda: bootstrap_ratio([1.0, 2.0], [1.0, 2.0, 3.0]), "pair value by value"),
        (lambda: bootstrap_ratio([1.0, 2.0], [1.0, 0.0]), "positive mean"),
        (lambda: mean_difference([np.ones(2), np.ones(3)], [np.ones(3), np.ones(2)]), "one by one"),
        (lambda: wilson(0, 0), "got 0 of 0"),
        (lambda: wilson(3, 2), "got 3 of 2"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()
