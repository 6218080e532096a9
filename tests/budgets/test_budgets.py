"""Budgets: exact counts, against hand arithmetic."""

from fractions import Fraction

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvjax.budgets import BUDGETS, Budget, LayerPlace, Uniform, tokens_per_head

# Amounts of every budget; a new budget is a line here.
TABLE: dict[str, Budget] = {
    "uniform": Uniform(keep=0.3),
    "uniform-tokens": Uniform(tokens=7),
    "uniform-bytes": Uniform(bytes_per_token=100.0),
}
PLACE = LayerPlace(layer=0, num_layers=4, num_kv_heads=3, bytes_per_token=100.0)


def keep(length: int, fraction: float) -> int:
    return tokens_per_head(length, PLACE, fraction, None, None)


def test_every_named_budget_is_in_the_table():
    assert {type(budget) for budget in TABLE.values()} == set(BUDGETS.values())


@pytest.mark.parametrize("budget", TABLE.values(), ids=TABLE)
def test_shares_add_up_to_the_total(budget):
    """Nothing is lost between `total` and `split`, and no head has none."""
    assert isinstance(budget, Budget) and hash(budget) == hash(budget)
    scores = jnp.arange(60, dtype=jnp.float32).reshape(3, 20)
    total = budget.total(20, PLACE)
    shares = budget.split(scores, jnp.int32(total))
    assert shares.shape == (3,) and shares.dtype == jnp.int32
    assert int(shares.sum()) == total and int(shares.min()) >= 1
    assert budget.ragged or len(set(shares.tolist())) == 1


@pytest.mark.parametrize("length, fraction, count", [(10, 0.1, 1), (1000, 0.1, 100), (100, 0.29, 29)])
def test_E02_no_token_is_lost_to_float_truncation(length, fraction, count):
    assert keep(length, fraction) == count
    assert Uniform(keep=fraction).total(length, PLACE) == 3 * count


def test_E02_naive_arithmetic_loses_one_of_these():
    """The cases bite: these are what int(n * (1 - ratio)) and int(n * keep) give."""
    assert [int(n * (1 - r)) for n, r in [(10, 0.9), (1000, 0.9), (100, 0.71)]] == [0, 99, 29]
    assert int(100 * 0.29) == 28


@given(st.integers(1, 10_000), st.integers(1, 1000))
def test_E02_law_floor_of_the_decimal_as_written(length, thousandths):
    assert keep(length, thousandths / 1000) == max(1, length * thousandths // 1000)


@pytest.mark.parametrize(
    "length, fraction, count",
    [(7, 1.0, 7), (1, 1.0, 1), (3, 0.1, 1), (1, 0.001, 1), (10_000, 1e-9, 1), (9, 0.5, 4), (3, 0.9999, 2)],
)
def test_all_at_one_and_never_none(length, fraction, count):
    assert keep(length, fraction) == count


@pytest.mark.parametrize("tokens, length, count", [(5, 20, 5), (20, 20, 20), (1, 20, 1), (20, 12, 12)])
def test_fixed_tokens_and_shorter_rows_keep_all(tokens, length, count):
    assert Uniform(tokens=tokens).total(length, PLACE) == 3 * count


@pytest.mark.parametrize(
    "mean_bytes, per_layer_token, layers, length, count",
    [
        (200.0, 100.0, 4, 50, 25),  # 200 of 4 x 100 bytes: half
        (400.0, 100.0, 4, 50, 50),  # all
        (9999.0, 100.0, 4, 50, 50),  # more than all
        (1.0, 100.0, 4, 50, 1),  # less than a token
        (11520.0, 768.0, 30, 512, 256),  # SmolLM2-135M in BF16: 30 layers x 3 heads x 64 x 4 bytes; half of it
        (0.3, 0.1, 10, 10, 3),  # 0.3 of 1.0: exactly 3, though 0.3 / (0.1 * 10) * 10 is not
    ],
)
def test_bytes_per_token_by_hand(mean_bytes, per_layer_token, layers, length, count):
    place = LayerPlace(0, layers, 3, per_layer_token)
    assert Uniform(bytes_per_token=mean_bytes).total(length, place) == 3 * count


@given(st.floats(0.01, 1e6), st.floats(0.01, 1e4), st.integers(1, 80), st.integers(1, 10**6))
def test_bytes_are_never_exceeded_except_for_the_one_token(mean_bytes, per_layer_token, layers, length):
    count = tokens_per_head(length, LayerPlace(0, layers, 3, per_layer_token), None, None, mean_bytes)
    held = count * layers * Fraction(str(per_layer_token))
    assert 1 <= count <= length
    assert count == 1 or held <= length * Fraction(str(mean_bytes))


@pytest.mark.parametrize(
    "amounts, given",
    [
        ({}, "given: none"),
        ({"keep": 0.5, "tokens": 3}, "given: {'keep': 0.5, 'tokens': 3}"),
        ({"tokens": 3, "bytes_per_token": 1.0}, "given: {'tokens': 3, 'bytes_per_token': 1.0}"),
        ({"keep": 0.5, "tokens": 3, "bytes_per_token": 1.0}, "given"),
    ],
)
def test_exactly_one_amount(amounts, given):
    with pytest.raises(ValueError, match=f"uniform needs exactly one of keep=, tokens=, bytes_per_token=; {given}"):
        Uniform(**amounts)


@pytest.mark.parametrize(
    "amounts, message",
    [
        ({"keep": 0.0}, r"uniform\(keep=0.0\): keep is the fraction kept and must be in \(0, 1\]"),
        ({"keep": -0.5}, "must be in"),
        ({"keep": 1.01}, "must be in"),
        ({"keep": float("nan")}, "must be in"),
        ({"tokens": 0}, r"uniform\(tokens=0\): tokens must be 1 or more"),
        ({"tokens": -3}, "1 or more"),
        ({"bytes_per_token": 0.0}, "must be positive and finite"),
        ({"bytes_per_token": -1.0}, "must be positive and finite"),
        ({"bytes_per_token": float("inf")}, "must be positive and finite"),
        ({"bytes_per_token": float("nan")}, "must be positive and finite"),
    ],
)
def test_ranges(amounts, message):
    with pytest.raises(ValueError, match=message):
        Uniform(**amounts)


def test_more_fixed_tokens_than_context_is_an_error():
    with pytest.raises(
        ValueError, match=r"uniform\(tokens=21\) keeps more than the context's 20 tokens; lower tokens="
    ):
        Uniform(tokens=21).check(20)
    Uniform(tokens=20).check(20)
    Uniform(keep=1.0).check(1)
    Uniform(bytes_per_token=1e9).check(1)
