import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvjax.models.config import FrequencyFactors, LinearScaling, Llama3Scaling, RopeConfig
from kvjax.models.rope import apply_rope, inverse_frequencies, rope_tables

LLAMA31 = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192)


def test_R07_angles_are_float32_from_integer_positions():
    """Integers above 256 are not exact in bf16, which gives -0.0398, -0.0398, 0.5624, -0.2680 here."""
    cos, sin = rope_tables(RopeConfig(10000.0), 2, jnp.asarray([256, 257, 1001, 15962], jnp.int32))
    assert cos.dtype == sin.dtype == jnp.float32
    np.testing.assert_allclose(cos[:, 0], [-0.0398, 0.8193, -0.3919, -0.9080], atol=5e-5)


def test_R07_bfloat16_activations_are_turned_by_float32_angles():
    cos, sin = rope_tables(RopeConfig(10000.0), 2, jnp.asarray([[15962]], jnp.int32))
    turned = apply_rope(jnp.asarray([1.0, 0.0], jnp.bfloat16)[None, None, None], cos, sin)
    assert turned.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(turned, np.float32).ravel(), [math.cos(15962), math.sin(15962)], atol=4e-3)


def test_default_frequencies():
    np.testing.assert_allclose(inverse_frequencies(RopeConfig(10000.0), 8), [1, 0.1, 0.01, 0.001], rtol=1e-7)


def test_linear_scaling_divides_positions():
    scaled = inverse_frequencies(RopeConfig(10000.0, LinearScaling(4.0)), 8)
    np.testing.assert_allclose(scaled, [0.25, 0.025, 0.0025, 0.00025], rtol=1e-7)


def test_llama3_scaling_by_hand():
    """Base 500000, head_dim 128: pair 0 is short (kept), pair 63 is long (1/8), pair 32 lies between.

    Pair 32: frequency 500000^-0.5 = 0.00141421, so 8192 tokens are 1.84384 turns, a share (1.84384 - 1) / 3 =
    0.281280 unscaled: 0.281280 f + 0.718720 f / 8 = 0.371120 f = 5.24843e-4.
    """
    got = inverse_frequencies(RopeConfig(500000.0, LLAMA31), 128)
    assert got[0] == 1.0
    assert got[63] == pytest.approx(500000 ** (-126 / 128) / 8, rel=1e-6)
    assert got[32] == pytest.approx(5.24843e-4, rel=1e-5)


def test_frequency_factors_divide_pair_by_pair_and_must_fit():
    got = inverse_frequencies(RopeConfig(10000.0, FrequencyFactors((1.0, 2.0))), 4)
    np.testing.assert_allclose(got, [1.0, 0.005], rtol=1e-7)
    with pytest.raises(ValueError, match="2 RoPE frequency factors for 4 pairs"):
        inverse_frequencies(RopeConfig(10000.0, FrequencyFactors((1.0, 2.0))), 8)


def test_halves_convention():
    """Dimension i turns with i + D/2. At position 1, frequencies 1 and 0.01, x = (1, 0, 0, 1)."""
    cos, sin = rope_tables(RopeConfig(10000.0), 4, jnp.asarray([[1]], jnp.int32))
    turned = apply_rope(jnp.asarray([1.0, 0.0, 0.0, 1.0])[None, None, None], cos, sin)
    expected = [math.cos(1), -math.sin(0.01), math.sin(1), math.cos(0.01)]
    np.testing.assert_allclose(np.asarray(turned).ravel(), expected, atol=1e-6)


@settings(deadline=None, max_examples=30)
@given(a=st.integers(0, 2000), b=st.integers(0, 2000), shift=st.integers(0, 2000), seed=st.integers(0, 99))
def test_scores_depend_on_distance_only_and_turning_back_undoes(a, b, shift, seed):
    rope = RopeConfig(500000.0, LLAMA31)
    x = jnp.asarray(np.random.default_rng(seed).normal(size=(1, 1, 2, 8)), jnp.float32)

    def turned(first, second):
        cos, sin = rope_tables(rope, 8, jnp.asarray([[first, second]], jnp.int32))
        return apply_rope(x, cos, sin), cos, sin

    near, cos, sin = turned(a, b)
    far, _, _ = turned(a + shift, b + shift)
    score = np.sum(np.asarray(near[0, 0, 0]) * np.asarray(near[0, 0, 1]))
    assert score == pytest.approx(np.sum(np.asarray(far[0, 0, 0]) * np.asarray(far[0, 0, 1])), abs=1e-2)
    np.testing.assert_allclose(apply_rope(near, cos, -sin), x, atol=1e-5)
