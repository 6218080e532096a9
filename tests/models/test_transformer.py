from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvjax.models import dense_attention, embed, layer, logits, rope_tables
from kvjax.models.huggingface import load_folder
from kvjax.models.params import params_from_tensors

run = partial(jax.jit, static_argnums=0)(logits)


def test_logits_equal_those_recorded_from_transformers(golden):
    got = np.asarray(run(golden.config, golden.params, jnp.asarray(golden.tokens)))
    np.testing.assert_allclose(got, golden.logits, rtol=0, atol=2e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_row_equals_the_row_alone(golden, side):
    """Padding on either side, whatever tokens it holds, changes nothing for the row's own tokens."""
    length, padded = 15, 24
    own = slice(padded - length, None) if side == "left" else slice(0, length)
    tokens, valid = golden.tokens.copy(), np.ones(golden.tokens.shape, bool)
    tokens[0, own] = golden.tokens[0, :length]
    valid[0] = False
    valid[0, own] = True
    got = np.asarray(run(golden.config, golden.params, jnp.asarray(tokens), jnp.asarray(valid)))
    np.testing.assert_allclose(got[0, own], golden.logits[0, :length], rtol=0, atol=2e-5)
    np.testing.assert_allclose(got[1], golden.logits[1], rtol=0, atol=2e-5)


@pytest.mark.parametrize("heads", [2, 6])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_P16_query_heads_repeat_kv_heads(heads, kv_heads):
    """One token, V head h holds h + 1: query heads of a group stand side by side (1,1,2,2), not in turn (1,2,1,2)."""
    k = jnp.zeros((1, kv_heads, 1, 4))
    v = jnp.broadcast_to(jnp.arange(1.0, kv_heads + 1)[None, :, None, None], k.shape)
    at = jnp.zeros((1, 1), jnp.int32)
    out = dense_attention(
        jnp.zeros((1, heads, 1, 4)), k, v, scale=0.5, query_positions=at, positions=at, valid=jnp.ones((1, 1), bool)
    )
    expected = np.repeat(np.arange(1.0, kv_heads + 1), heads // kv_heads)
    np.testing.assert_allclose(out[0, :, 0, 0], expected, rtol=1e-6)


def attention_float64(q, k, v, scale, query_positions, positions, valid, window):
    """One query at a time, with Python's own arithmetic on what it may see."""
    out = np.zeros(q.shape)
    group = q.shape[1] // k.shape[1]
    for b, h, t in np.ndindex(q.shape[:3]):
        own = query_positions[b, t]
        seen = [
            i
            for i in range(k.shape[2])
            if valid[b, i] and positions[b, i] <= own and (window is None or own - positions[b, i] < window)
        ]
        if seen:
            scores = np.array([q[b, h, t] @ k[b, h // group, i] * scale for i in seen])
            weights = np.exp(scores - scores.max())
            out[b, h, t] = weights @ v[b, h // group, seen] / weights.sum()
    return out


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**16),
    batch=st.integers(1, 2),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    length=st.integers(1, 9),
    window=st.one_of(st.none(), st.integers(1, 5)),
)
def test_dense_attention_is_the_float64_formula(seed, batch, kv_heads, group, length, window):
    rng = np.random.default_rng(seed)
    queries = rng.integers(1, length + 1)
    q = rng.normal(size=(batch, kv_heads * group, queries, 4))
    k, v = rng.normal(size=(2, batch, kv_heads, length, 4))
    positions = np.stack([rng.permutation(2 * length)[:length] for _ in range(batch)])  # gaps, any order
    query_positions = rng.integers(0, 2 * length, size=(batch, queries))
    valid = rng.random((batch, length)) < 0.7
    got = jax.jit(dense_attention, static_argnames=("scale", "window"))(
        *(jnp.asarray(x, jnp.float32) for x in (q, k, v)),
        scale=0.7,
        query_positions=jnp.asarray(query_positions, jnp.int32),
        positions=jnp.asarray(positions, jnp.int32),
        valid=jnp.asarray(valid),
        window=window,
    )
    expected = attention_float64(q, k, v, 0.7, query_positions, positions, valid, window)
    np.testing.assert_allclose(got, expected, atol=2e-5)


def test_what_is_not_valid_may_hold_anything():
    """NaN in padding reaches no output, and a query that sees nothing returns zeros."""
    k = jnp.ones((1, 1, 3, 2)).at[:, :, 1:].set(jnp.nan)
    positions = jnp.asarray([[5, 1, 2]], jnp.int32)
    out = dense_attention(
        jnp.ones((1, 1, 2, 2)),
        k,
        k,
        scale=1.0,
        query_positions=jnp.asarray([[4, 6]], jnp.int32),
        positions=positions,
        valid=jnp.asarray([[True, False, False]]),
    )
    np.testing.assert_array_equal(out[0, 0], [[0, 0], [1, 1]])


@pytest.mark.parametrize("token", [-1, 96, 2**30])
def test_token_outside_the_vocabulary_gives_nan_not_another_token(llama, token):
    x = embed(llama.config, llama.params, jnp.asarray([[3, token]], jnp.int32))
    assert not np.isnan(x[0, 0]).any() and np.isnan(x[0, 1]).all()


def test_layer_hands_attention_what_it_documents(golden):
    config, seen = golden.config, {}

    def attend(q, k, v, hidden):
        seen.update(q=q, k=k, v=v, hidden=hidden)
        return q, "aux"

    x = jnp.ones((2, 5, config.hidden_size))
    positions = jnp.broadcast_to(jnp.arange(5)[None], (2, 5))
    out, aux = layer(
        config, golden.params["layers"][0], x, rope_tables(config.layers[0].rope, config.head_dim, positions), attend
    )
    head_dim = config.head_dim
    assert seen["q"].shape == (2, config.num_heads, 5, head_dim)
    assert seen["k"].shape == seen["v"].shape == (2, config.num_kv_heads, 5, head_dim)
    assert seen["hidden"].shape == out.shape == x.shape and aux == "aux"
    # All inputs equal: values are equal at all positions, keys are turned by RoPE to where they stand.
    np.testing.assert_allclose(seen["v"][:, :, 0], seen["v"][:, :, 4], atol=1e-6)
    assert np.abs(np.asarray(seen["k"][:, :, 0] - seen["k"][:, :, 4])).max() > 1e-2


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_dtypes_run_strictly_and_come_near(golden, dtype):
    """Activations keep the weights' dtype throughout, logits are float32; the error is of the dtype's size."""
    params = params_from_tensors(golden.config, load_folder(golden.folder)[1], dtype)
    assert embed(golden.config, params, jnp.asarray(golden.tokens)).dtype == dtype
    got = run(golden.config, params, jnp.asarray(golden.tokens))
    assert got.dtype == jnp.float32
    error = np.sqrt(np.mean(np.square(np.asarray(got) - golden.logits)))
    assert error < 8 * float(jnp.finfo(dtype).eps) * golden.logits.std()
