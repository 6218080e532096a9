"""Causal attention among new tokens: tiles and windows against float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from kvjax.attention import causal
from tests.stores import ref_attention


@pytest.mark.parametrize("tokens", [1, 7, 256, 257, 1100])
@pytest.mark.parametrize("window", [None, 1, 40, 300])
def test_matches_float64(tokens, window):
    rng = np.random.default_rng(0)
    q = rng.normal(size=(2, 4, tokens, 8)).astype(np.float32)
    k, v = rng.normal(size=(2, 2, 2, tokens, 8)).astype(np.float32)
    pads = tokens // 3
    valid = np.ones((2, tokens), bool)
    valid[1, :pads] = False
    got = causal(*map(jnp.asarray, (q, k, v, valid)), scale=0.4, window=window)
    for b in range(2):
        first = pads if b else 0
        for t in {first, tokens // 2, tokens - 1} - set(range(first)):
            low = first if window is None else max(first, t - window + 1)
            out, lse = ref_attention(q[b, 3, t], k[b, 1, low : t + 1], v[b, 1, low : t + 1], 0.4)
            np.testing.assert_allclose(got.out[b, 3, t], out, atol=3e-6)
            np.testing.assert_allclose(got.lse[b, 3, t], lse, atol=3e-6)


@pytest.mark.parametrize("tokens", [5, 300])
def test_padding_is_never_seen_whatever_it_holds(tokens):
    rng = np.random.default_rng(0)
    q = rng.normal(size=(1, 1, tokens, 4)).astype(np.float32)
    k, v = rng.normal(size=(2, 1, 1, tokens, 4)).astype(np.float32)
    valid = np.arange(tokens)[None] >= 2
    clean = causal(*map(jnp.asarray, (q, k, v, valid)), scale=1.0)
    k[:, :, :2], v[:, :, :2] = np.nan, np.inf
    dirty = causal(*map(jnp.asarray, (q, k, v, valid)), scale=1.0)
    np.testing.assert_array_equal(clean.out[:, :, 2:], dirty.out[:, :, 2:])
    assert (np.asarray(dirty.out[:, :, :2]) == 0).all()
    assert (np.asarray(dirty.lse[:, :, :2]) == -np.inf).all()
