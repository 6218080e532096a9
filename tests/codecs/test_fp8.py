"""FP8: saturation, rounding, scales. Right answers by hand from the OCP format."""

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from kvjax.codecs import FP8, Float8, decode

KEYS = -1


def coded(values, fmt):
    x = jnp.asarray(values, jnp.float32).reshape(1, 1, 1, -1)
    return np.asarray(decode(fmt.encode(x, jnp.ones((1, 1, x.shape[-1]), bool), KEYS))).reshape(-1)


def test_q01_cast_saturates():
    values = [448.0, 464.0, 465.0, 1000.0, -1000.0, np.inf, -np.inf]
    np.testing.assert_array_equal(coded(values, Float8(scale="none")), [448, 448, 448, 448, -448, 448, -448])
    assert coded([61440.0], Float8("e5m2", "none"))[0] == 57344.0
    assert np.isnan(coded([np.nan], Float8(scale="none"))[0])


def test_q01_later_tokens_saturate_under_an_earlier_scale():
    fmt = Float8()
    late = fmt.encode_tokens(jnp.full((1, 1, 1), 1000.0), jnp.ones((1, 1, 1)), KEYS)
    assert float(decode(late)[0, 0, 0]) == 448.0


def test_q02_all_finite_codes_round_trip_and_ties_go_to_even():
    codes = np.arange(256, dtype=np.uint8)
    values = np.asarray(jnp.asarray(codes).view(jnp.float8_e4m3fn).astype(jnp.float32))
    finite = np.isfinite(values)
    assert finite.sum() == 254
    np.testing.assert_array_equal(coded(values[finite], Float8(scale="none")), values[finite])
    ties = coded([272.0, 304.0, 336.0, 368.0, 2.0**-10, 3 * 2.0**-10], Float8(scale="none"))
    np.testing.assert_array_equal(ties, [256, 320, 320, 384, 0, 2.0**-8])


def test_q07_scale_is_not_floored_at_one():
    values = np.array([0.49, -0.3, 0.2, 0.05])
    assert np.abs(coded(values, Float8()) / values - 1).max() < 2**-4


def test_q22_keys_and_values_have_their_own_scales():
    from kvjax.codecs import encode_blocks

    shape = (1, 1, 1, 4, 1)
    k = jnp.asarray([4.0, -4.0, 1.0, 2.0]).reshape(shape)
    v = jnp.asarray([0.1, -0.05, 0.02, 0.08]).reshape(shape)
    keys, values = encode_blocks(FP8(), k, v, jnp.ones(shape[:-1], bool))
    assert float(keys.scale.reshape(())) == pytest.approx(4 / 448, rel=1e-6)
    assert float(values.scale.reshape(())) == pytest.approx(0.1 / 448, rel=1e-6)


@pytest.mark.parametrize(
    ("scale", "groups"),
    [("tensor", [8.0] * 8), ("head", [2.0, 2.0, 2.0, 2.0, 8.0, 8.0, 8.0, 8.0]), ("token", range(1, 9))],
)
def test_what_shares_a_scale(scale, groups):
    """Two heads of two blocks of two tokens; token i has magnitude i: by hand."""
    magnitude = jnp.asarray(
        [1.0, 2.0, 1.0, 2.0, 5.0, 6.0, 7.0, 8.0] if scale != "token" else [float(i) for i in range(1, 9)]
    )
    x = jnp.broadcast_to(magnitude.reshape(2, 2, 1, 2), (2, 2, 3, 2))
    payload = Float8("e4m3", scale).encode(x, jnp.ones((2, 2, 2), bool), KEYS)
    scales = jnp.broadcast_to(payload.scale, (2, 2, 1, 2)).reshape(-1)
    np.testing.assert_allclose(scales * 448, list(groups), rtol=1e-6)


@pytest.mark.parametrize("bad", [{"variant": "e4m4"}, {"scale": "channel"}])
def test_unknown_options_are_errors(bad):
    jaxtyping.config.update("jaxtyping_disable", True)  # users run without the annotation checks
    try:
        with pytest.raises(ValueError, match="allowed"):
            FP8(**bad)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
