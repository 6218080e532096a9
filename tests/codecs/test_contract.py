"""The contract that every codec joins: a new one is a line in CODECS below."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvjax.codecs import (
    BF16,
    CODECS,
    FP8,
    FP16,
    K16V8,
    Dense,
    Payload,
    decode_blocks,
    encode_blocks,
    init_blocks,
    weighted_rows,
    write_tokens,
)

# Codec, and the largest relative error of a value that is not tiny beside its group: half a step of the mantissa.
TABLE = {
    "dense": (Dense(), 0.0),
    "bf16": (BF16(), 2**-8),
    "fp16": (FP16(), 2**-11),
    "fp8": (FP8(), 2**-4),
    "fp8-token": (FP8(scale="token"), 2**-4),
    "fp8-tensor": (FP8(scale="tensor"), 2**-4),
    "fp8-none": (FP8(scale="none"), 2**-4),
    "fp8-e5m2": (FP8(variant="e5m2"), 2**-3),
    "k16v8": (K16V8(), 2**-4),
}
SHAPE = (2, 3, 2, 8, 16)  # B H N S D


@pytest.fixture(params=TABLE)
def case(request):
    return TABLE[request.param]


def blocks(seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return jnp.asarray(scale * rng.normal(size=(2, *SHAPE)), jnp.float32)


def full():
    return jnp.ones(SHAPE[:-1], bool)


def round_trip(codec, k, v, valid=None):
    return decode_blocks(*encode_blocks(codec, k, v, full() if valid is None else valid))


def flat(payload):
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), payload)


def test_every_named_codec_is_in_the_table():
    assert {type(codec) for codec, _ in TABLE.values()} == set(CODECS.values())


def test_round_trip_within_half_a_step(case):
    codec, relative = case
    k, v = blocks()
    for x, back in zip((k, v), round_trip(codec, k, v), strict=True):
        x, back = np.float64(x), np.float64(back)
        assert (np.abs(back - x) <= relative * np.abs(x) + 1e-3 * (relative > 0)).all()


def test_weighted_rows_equals_decode_then_sum(case):
    codec, _ = case
    k, v = blocks(1)
    keys, values = encode_blocks(codec, k, v, full())
    wide_k, wide_v = decode_blocks(keys, values)
    rng = np.random.default_rng(2)
    for count in (2, 40):  # the fused sum and the matrix product
        q = jnp.asarray(rng.normal(size=(12, count, 16)), jnp.float32)
        p = jnp.asarray(rng.uniform(size=(12, count, 8)), jnp.float32)
        scores = np.einsum("pqd,psd->pqs", np.float64(q), np.float64(wide_k).reshape(12, 8, 16))
        out = np.einsum("pqs,psd->pqd", np.float64(p), np.float64(wide_v).reshape(12, 8, 16))
        np.testing.assert_allclose(weighted_rows(flat(keys), q), scores, atol=2e-4)
        np.testing.assert_allclose(weighted_rows(flat(values), p), out, atol=2e-4)


def test_jit_equals_eager_bit_for_bit(case):
    codec, _ = case
    k, v = blocks(3)
    eager = encode_blocks(codec, k, v, full())
    jitted = jax.jit(lambda k, v: encode_blocks(codec, k, v, full()))(k, v)
    for a, b in zip(jax.tree.leaves(eager), jax.tree.leaves(jitted), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a.astype(jnp.float32)), np.asarray(b.astype(jnp.float32)))


@pytest.mark.parametrize("fill", [0.0, -0.0, 5.0, 1e-40, 1e-30, 1e-6, 1e6, 1e30])
def test_constant_blocks_stay_finite_and_close(case, fill):
    """Q-04, Q-05: zero, constant, tiny and huge blocks."""
    codec, relative = case
    x = jnp.full(SHAPE, fill, jnp.float32)
    for back in round_trip(codec, x, x):
        back = np.float64(back)
        assert np.isfinite(back).all()
        if abs(fill) <= 448:
            assert (np.abs(back - fill) <= max(relative, 1e-7) * abs(fill) + 2.0**-10 * (abs(fill) < 1e-2)).all()
        if fill == 0:
            assert (back == 0).all()


def test_invalid_slots_do_not_influence_others(case):
    codec, _ = case
    k, v = blocks(4)
    valid = full().at[..., 5:].set(False)
    loud = jnp.where(valid[..., None], k, 1e30), jnp.where(valid[..., None], v, 1e30)
    for quiet, noisy in zip(round_trip(codec, k, v, valid), round_trip(codec, *loud, valid), strict=True):
        np.testing.assert_array_equal(quiet[..., :5, :], noisy[..., :5, :])


def test_rows_do_not_influence_each_other(case):
    """Q-12: a group never spans two sequences."""
    codec, _ = case
    k, v = blocks(5)
    loud = k.at[1].multiply(1e4), v.at[1].multiply(1e4)
    for alone, beside in zip(round_trip(codec, k, v), round_trip(codec, *loud), strict=True):
        np.testing.assert_array_equal(alone[0], beside[0])


def test_tokens_written_singly_decode_as_whole_blocks(case):
    """One token after another into an empty pool: exact for per-token codes, within a step under a shared scale."""
    codec, relative = case
    k, v = (x[0, 0, :1] for x in blocks(6))  # [1, S, D]
    keys, values = init_blocks(codec, 1, 8, 16)
    for slot in range(8):
        at = jnp.array([slot])
        keys, values = write_tokens(codec, keys, values, k[:, slot], v[:, slot], jnp.zeros(1, jnp.int32), at)
    for x, back in zip((k, v), decode_blocks(keys, values), strict=True):
        assert (
            np.abs(np.float64(back) - np.float64(x)) <= relative * np.abs(np.float64(x)) + 1e-2 * (relative > 0)
        ).all()


def test_write_beyond_the_pool_writes_nothing(case):
    """P-12: an index one beyond the end is dropped, never clamped or wrapped."""
    codec, _ = case
    keys, values = init_blocks(codec, 2, 8, 16)
    token = jnp.ones((1, 16), jnp.float32)
    after = write_tokens(codec, keys, values, token, token, jnp.array([2]), jnp.array([0]))
    for a, b in zip(jax.tree.leaves((keys, values)), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(np.asarray(a.astype(jnp.float32)), np.asarray(b.astype(jnp.float32)))


def test_bytes_are_what_the_arrays_hold():
    expected = {"dense": 512, "bf16": 256, "fp16": 256, "fp8": 128, "k16v8": 192}  # bytes of 64 + 64 values
    for name, nbytes in expected.items():
        keys, values = init_blocks(CODECS[name](), 10, 32, 64)
        assert keys.codes.nbytes + values.codes.nbytes == nbytes * 10 * 32


def test_layout_is_channel_major_keys_and_slot_major_values(case):
    codec, _ = case
    keys, values = init_blocks(codec, 3, 8, 16)
    assert keys.codes.shape == (3, 16, 8)
    assert values.codes.shape == (3, 8, 16)


def test_weighted_rows_folds_row_and_column_scales():
    codes = jnp.array([[[1, 2], [3, 4]]], jnp.int8)
    weights = jnp.array([[[1.0, 10.0]]])
    per_column = Payload(codes, jnp.array([[[2.0, 3.0]]]))
    per_row = Payload(codes, jnp.array([[[2.0], [3.0]]]))
    np.testing.assert_array_equal(weighted_rows(per_column, weights), [[[62.0, 126.0]]])  # (1+30)*2, (2+40)*3
    np.testing.assert_array_equal(weighted_rows(per_row, weights), [[[92.0, 124.0]]])  # 1*2+3*30, 2*2+4*30
