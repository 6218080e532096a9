"""The contract that every score joins (a new one is a line in TABLE), and each method against its paper in float64."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvjax import spec
from kvjax.budgets.select import select
from kvjax.scores import SCORES, Knorm, Random, Score, SnapKV, StreamingLLM
from kvjax.types import Observation

# A score, and its reference in float64 numpy (None where draws are random: those have tests of their own).
TABLE: dict[str, Score] = {
    "knorm": Knorm(),
    "snapkv": SnapKV(window=4),
    "snapkv-7-3": SnapKV(window=7, kernel=3),
    "snapkv-1-1": SnapKV(window=1, kernel=1),
    "streaming_llm": StreamingLLM(),
    "streaming_llm-0": StreamingLLM(sinks=0),
    "random": Random(),
    "random-7": Random(seed=7),
}
HEADS, GROUP, TOKENS, DIM = 2, 3, 24, 8
SCALE = 0.4


def observe(seed: int = 0, padding: int = 0, layer: int = 2, tokens: int = TOKENS) -> Observation:
    """Random queries, keys and values of one sequence, with garbage in front of it."""
    rng, garbage = np.random.default_rng(seed), np.random.default_rng(99)

    def make(heads):
        noise = 50 * garbage.normal(size=(heads, padding, DIM))
        return jnp.asarray(np.concatenate([noise, rng.normal(size=(heads, tokens, DIM))], axis=1), jnp.float32)

    order = np.arange(-padding, tokens)
    return Observation(
        q=make(HEADS * GROUP),
        k=make(HEADS),
        v=make(HEADS),
        positions=jnp.asarray(np.maximum(order, 0), jnp.int32),
        valid=jnp.asarray(order >= 0),
        layer=jnp.int32(layer),
        scale=jnp.float32(SCALE),
    )


@pytest.fixture(params=TABLE)
def score(request):
    return TABLE[request.param]


def test_every_named_score_is_in_the_table():
    assert {type(score) for score in TABLE.values()} == set(SCORES.values())


def test_shape_and_values(score):
    got = score(observe())
    assert got.shape == (HEADS, TOKENS) and got.dtype == jnp.float32
    assert bool(jnp.all(jnp.isfinite(got) | (got == jnp.inf)))


def test_jit_equals_eager(score):
    np.testing.assert_allclose(jax.jit(score)(observe()), score(observe()), rtol=1e-6)


@pytest.mark.parametrize("padding", [1, 5])
def test_padding_in_front_changes_nothing(score, padding):
    padded = score(observe(padding=padding))
    assert padded.shape == (HEADS, padding + TOKENS)
    np.testing.assert_allclose(padded[:, padding:], score(observe()), atol=1e-5)


def test_rows_together_equal_rows_alone(score):
    rows = [observe(seed, layer=layer) for seed, layer in ((1, 0), (2, 3), (3, 3))]
    together = jax.vmap(score)(jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows))
    np.testing.assert_allclose(together, np.stack([score(row) for row in rows]), rtol=1e-5, atol=1e-6)


def test_hashable_and_read_back_from_text(score):
    (again,) = spec.parse(spec.unparse(score), SCORES)
    assert again == score and hash(again) == hash(score)
    assert isinstance(score, Score) and dataclasses.fields(score) is not None


def test_reads_no_more_queries_than_it_says(score):
    """What an observation holds beyond `queries` does not matter: prefill may leave it out."""
    whole = observe()
    cut = dataclasses.replace(whole, q=whole.q[:, TOKENS - max(1, score.queries) :])
    assert 0 <= score.queries < TOKENS
    np.testing.assert_allclose(score(cut), score(whole), rtol=1e-6)


# --- each method against its paper ---------------------------------------------------------------------------------


def test_knorm_is_the_negative_norm_of_the_key():
    obs = observe()
    np.testing.assert_allclose(Knorm()(obs), -np.sqrt((np.asarray(obs.k, np.float64) ** 2).sum(-1)), rtol=1e-6)
    by_hand = dataclasses.replace(obs, k=jnp.zeros((HEADS, TOKENS, DIM)).at[0, 1, :2].set(jnp.array([3.0, 4.0])))
    assert Knorm()(by_hand)[0, :3].tolist() == [0.0, -5.0, 0.0]


def snapkv_reference(obs: Observation, window: int, kernel: int) -> np.ndarray:
    """SnapKV step by step, one query and one token at a time; +inf inside the window."""
    q, k = np.asarray(obs.q, np.float64), np.asarray(obs.k, np.float64)
    tokens, first = k.shape[1], k.shape[1] - window
    scores = np.full((HEADS, tokens), np.inf)
    for head in range(HEADS):
        pooled = np.zeros((GROUP, first))
        for member in range(GROUP):
            votes = np.zeros(first)
            for query in range(first, tokens):
                logits = k[head, : query + 1] @ q[head * GROUP + member, query] * SCALE
                weights = np.exp(logits - logits.max())
                votes += (weights / weights.sum())[:first] / window
            for token in range(first):
                for near in range(token - kernel // 2, token + kernel // 2 + 1):
                    pooled[member, token] += (votes[near] if 0 <= near < first else 0.0) / kernel
        scores[head, :first] = pooled.mean(axis=0)
    return scores


@pytest.mark.parametrize("window, kernel", [(4, 5), (7, 3), (1, 1), (8, 1), (23, 5), (16, 15)])
def test_snapkv_equals_its_definition(window, kernel):
    obs = observe(seed=5)
    np.testing.assert_allclose(SnapKV(window, kernel)(obs), snapkv_reference(obs, window, kernel), rtol=1e-5, atol=1e-7)


def test_snapkv_pools_with_zeros_beyond_the_ends():
    """Keys of zero: each of the 8 tokens before the last gets 1/9 of its attention; the average over 5 sees 3, 4, 5."""
    obs = dataclasses.replace(observe(tokens=9), k=jnp.zeros((HEADS, 9, DIM)))
    want = np.array([3, 4, 5, 5, 5, 5, 4, 3]) / 5 / 9
    got = np.asarray(SnapKV(window=1, kernel=5)(obs))
    np.testing.assert_allclose(got[:, :8], np.stack([want, want]), rtol=1e-6)
    assert np.isposinf(got[:, 8]).all()


def test_snapkv_averages_the_query_heads_of_its_own_kv_head():
    """Query heads h*G .. h*G+G-1 vote for KV head h and for no other."""
    obs = observe(seed=6)
    changed = dataclasses.replace(obs, q=obs.q.at[GROUP:].multiply(-2.0))
    before, after = SnapKV(window=4)(obs), SnapKV(window=4)(changed)
    np.testing.assert_allclose(before[0], after[0], rtol=1e-6)
    assert float(jnp.max(jnp.abs(before[1, :20] - after[1, :20]))) > 1e-3


def ranking(score: Score, obs: Observation, count: int) -> list[list[int]]:
    return select(score(obs), jnp.full(HEADS, count, jnp.int32), count).tolist()


@pytest.mark.parametrize(
    "sinks, count, want",
    [(4, 7, [0, 1, 2, 3, 21, 22, 23]), (1, 3, [0, 22, 23]), (0, 3, [21, 22, 23]), (4, 3, [0, 1, 2])],
)
def test_streaming_llm_keeps_the_first_and_the_last(sinks, count, want):
    assert ranking(StreamingLLM(sinks), observe(), count) == [want] * HEADS


def test_E03_no_sinks_protect_nothing():
    assert not bool(jnp.any(jnp.isinf(StreamingLLM(sinks=0)(observe()))))
    assert int(jnp.sum(jnp.isinf(StreamingLLM(sinks=1)(observe())))) == HEADS


def test_random_is_uniform_in_the_unit_interval():
    """Kolmogorov-Smirnov: 8192 draws stay within 1.63 / sqrt(n) of the uniform distribution (1 % level)."""
    draws = np.sort(np.asarray(Random()(observe(tokens=4096))).ravel())
    assert draws[0] >= 0 and draws[-1] < 1
    steps = np.arange(len(draws) + 1) / len(draws)
    distance = max(np.max(steps[1:] - draws), np.max(draws - steps[:-1]))
    assert distance < 1.63 / np.sqrt(len(draws))


def test_random_differs_by_seed_layer_and_head_and_repeats_otherwise():
    tokens = 512
    rows = {
        (seed, layer, head): np.asarray(Random(seed)(observe(layer=layer, tokens=tokens)))[head]
        for seed in (0, 1)
        for layer in (0, 1)
        for head in range(HEADS)
    }
    for one, other in itertools.combinations(rows.values(), 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(tokens)
    again = np.asarray(Random(1)(observe(seed=3, layer=1, tokens=tokens)))  # other keys, same draws
    np.testing.assert_array_equal(again[0], rows[1, 1, 0])


def test_random_draws_belong_to_positions():
    """A token has the draw of its position, whatever stands around it."""
    whole = observe()
    part = jax.tree.map(lambda x: x[:, 5:9] if x.ndim == 3 else x[5:9] if x.ndim == 1 else x, whole)
    np.testing.assert_array_equal(Random(3)(part), Random(3)(whole)[:, 5:9])


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_random_refuses_seeds_that_would_repeat_others(seed):
    with pytest.raises(ValueError, match=rf"random\(seed={seed}\): seed must be in 0..4294967295"):
        Random(seed)
