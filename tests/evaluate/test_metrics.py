"""Metrics against values by hand and against their definitions in float64; laws by hypothesis."""

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kvjax.evaluate import metrics

pairs = arrays.arrays(np.float64, (2, 3, 7), elements=st.floats(-30, 30, width=32))
one = arrays.arrays(np.float64, (3, 7), elements=st.floats(-30, 30, width=32))


def test_nll_by_hand():
    """Weights 1, 2, 5 of 8: NLL of the second is log 4; uniform over 4: log 4 whatever the target."""
    logits = np.log(np.array([[1.0, 2.0, 5.0, 1e-30], [3.0, 3.0, 3.0, 3.0]]))
    np.testing.assert_allclose(metrics.nll(logits, np.array([1, 3])), [np.log(4), np.log(4)], rtol=1e-12)


def test_kl_by_hand():
    """KL((1/2, 1/2) || (1/4, 3/4)) = log(4 / 3) / 2; the other way round 3/4 log 3 - log 2."""
    even, odd = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    np.testing.assert_allclose(metrics.kl(even, odd), [np.log(4 / 3) / 2], rtol=1e-12)
    np.testing.assert_allclose(metrics.kl(odd, even), [0.75 * np.log(3) - np.log(2)], rtol=1e-12)


def test_agreement_by_hand_takes_the_first_of_equals():
    reference = np.array([[0.0, 2.0, 1.0], [5.0, 5.0, 0.0], [0.0, 0.0, 1.0]])
    other = np.array([[1.0, 9.0, 8.0], [6.0, 0.0, 0.0], [3.0, 0.0, 1.0]])
    assert metrics.agreement(reference, other).tolist() == [True, True, False]
    assert metrics.agreement(jnp.asarray(reference), jnp.asarray(other)).tolist() == [True, True, False]


def test_huge_logits_do_not_overflow():
    logits = np.array([[1e4, 0.0, -1e4]])
    assert metrics.nll(logits, np.array([2])).tolist() == [2e4]
    assert metrics.nll(jnp.asarray(logits, jnp.float32), jnp.array([2])).tolist() == [2e4]
    assert metrics.kl(logits, -logits).tolist() == [2e4]


@hypothesis.given(pairs, st.integers(0, 6))
def test_definitions(logits, target):
    """Straight from the formulas, normalised probabilities first."""
    p, q = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    targets = np.full(3, target)
    np.testing.assert_allclose(metrics.nll(logits[0], targets), -np.log(p[:, target]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(metrics.kl(*logits), (p * np.log(p / q)).sum(-1), rtol=1e-9, atol=1e-12)


@hypothesis.settings(deadline=None)
@hypothesis.given(pairs)
def test_jax_agrees_with_numpy(logits):
    single = jnp.asarray(logits, jnp.float32)
    targets = np.array([0, 3, 6])
    np.testing.assert_allclose(metrics.kl(*single), metrics.kl(*logits), rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(
        metrics.nll(single[0], jnp.asarray(targets)), metrics.nll(logits[0], targets), rtol=1e-5, atol=2e-6
    )


@hypothesis.settings(deadline=None)
@hypothesis.given(pairs)
def test_kl_is_not_negative(logits):
    assert (metrics.kl(*logits) >= 0).all()
    assert (metrics.kl(*jnp.asarray(logits, jnp.float32)) >= 0).all()


@hypothesis.given(one, st.integers(0, 6), st.floats(0.01, 5))
def test_kl_is_zero_only_between_equals(logits, token, change):
    """Raising one logit moves a distribution, unless that token has next to no weight."""
    other = logits.copy()
    other[:, token] += change
    assert (metrics.kl(logits, logits) == 0).all()
    weight = np.exp(metrics.log_softmax(logits)[:, token])
    moved = (weight > 1e-3) & (weight < 1 - 1e-3)
    assert (metrics.kl(logits, other)[moved] > 0).all()


@hypothesis.given(pairs, st.floats(-100, 100), st.floats(-100, 100))
def test_constant_shifts_change_nothing(logits, first, second):
    reference, other = logits
    targets = np.array([0, 3, 6])
    np.testing.assert_allclose(
        metrics.kl(reference + first, other + second), metrics.kl(reference, other), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        metrics.nll(reference + first, targets), metrics.nll(reference, targets), rtol=1e-9, atol=1e-12
    )


def test_small_divergence_survives_float32():
    """Logits moved by e = 1e-3 times noise: KL is half the variance of e under p: 5e-7, as float32 rounds log p."""
    draw = np.random.default_rng(0)
    logits = draw.normal(0, 2, (4, 5000)).astype(np.float32)
    noise = draw.normal(0, 1, logits.shape).astype(np.float32)
    other = logits + np.float32(1e-3) * noise
    exact = metrics.kl(logits, other)
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(-1, keepdims=True)
    moved = other.astype(np.float64) - logits
    variance = (p * moved**2).sum(-1) - (p * moved).sum(-1) ** 2
    np.testing.assert_allclose(exact, variance / 2, rtol=1e-2)
    np.testing.assert_allclose(metrics.kl(jnp.asarray(logits), jnp.asarray(other)), exact, rtol=0.1)


def test_functions_trace_and_differentiate():
    """The gradient of NLL is softmax minus one-hot."""
    logits = jnp.log(jnp.array([[0.2, 0.3, 0.5]], jnp.float32))
    gradient = jax.jit(jax.grad(lambda x: metrics.nll(x, jnp.array([2]))[0]))(logits)
    np.testing.assert_allclose(gradient, [[0.2, 0.3, -0.5]], atol=1e-6)


def test_perplexity_of_uniform_choice_among_four_is_four():
    assert metrics.perplexity_of(metrics.nll(np.zeros((5, 4)), np.arange(5) % 4)) == pytest.approx(4)
