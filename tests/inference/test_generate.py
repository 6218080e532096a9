"""Generation: greedy against full recomputation, sampling laws, stops, forks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvjax.cache import CacheOverflow, crop, fork, free
from kvjax.compressor import compressor
from kvjax.inference import Sampling, decode, forward, generate, prefill
from kvjax.inference.sampling import sample
from kvjax.models import logits as dense_logits
from tests.inference.conftest import recorded

DENSE = compressor("dense | block(4)")


def greedy(model, tokens, count):
    """By recomputing everything for each token."""
    tokens = list(tokens)
    for _ in range(count):
        tokens.append(int(jnp.argmax(dense_logits(model.config, model.params, jnp.asarray([tokens]))[0, -1])))
    return tokens[-count:]


def test_greedy_equals_recomputation_in_every_row(model):
    tokens = recorded("llama")[0]
    batch, lengths = np.stack([tokens[0, :10], np.r_[tokens[1, :6], [0] * 4]]), [10, 6]
    logits, cache = prefill(model, batch, DENSE, lengths=lengths, max_new_tokens=7)
    done = generate(model, cache, logits, max_new_tokens=8, stop_ids=())
    assert done.tokens[0].tolist() == greedy(model, tokens[0, :10], 8)
    assert done.tokens[1].tolist() == greedy(model, tokens[1, :6], 8)
    assert done.cache.next_position.tolist() == [17, 13]


def test_a_row_stops_at_its_own_stop_token_and_goes_no_further(model):
    tokens = recorded("llama")[0][:, :10]
    logits, cache = prefill(model, tokens, DENSE, max_new_tokens=12)
    free_run = generate(model, cache, logits, max_new_tokens=10, stop_ids=()).tokens
    stop = int(free_run[0, 3])
    done = generate(model, cache, logits, max_new_tokens=10, stop_ids=[stop])
    for row in range(2):
        want = free_run[row].tolist()
        want = want[: want.index(stop)] if stop in want else want
        assert done.tokens[row, : done.lengths[row]].tolist() == want
        assert (done.tokens[row, done.lengths[row] :] == -1).all()


def test_the_given_cache_is_not_consumed(model):
    logits, cache = prefill(model, [1, 2, 3], DENSE, max_new_tokens=6)
    first = generate(model, cache, logits, max_new_tokens=5, stop_ids=())
    again = generate(model, cache, logits, max_new_tokens=5, stop_ids=())
    np.testing.assert_array_equal(first.tokens, again.tokens)


def test_forked_questions_do_not_see_each_other(model):
    """Each row of a fork answers as the context alone would with that question."""
    tokens = recorded("llama")[0][0]
    _, cache = prefill(model, tokens[:10], compressor("fp8 | block(4)"))
    questions = np.array([[5, 6, 7], [8, 9, 0], [5, 6, 7]], np.int32)
    lengths = [3, 2, 3]
    rows = fork(cache, [0, 0, 0], max_new_tokens=12)
    logits, rows = forward(model, rows, questions, lengths=lengths)
    together = generate(model, rows, logits[:, -1], max_new_tokens=6, stop_ids=())
    for row, n in enumerate(lengths):
        own = fork(cache, [0], max_new_tokens=12)
        alone, own = forward(model, own, questions[row, :n])
        np.testing.assert_allclose(logits[row, -1], alone[0, -1], atol=1e-5)
        assert (
            generate(model, own, alone[:, -1], max_new_tokens=6, stop_ids=()).tokens[0].tolist()
            == together.tokens[row].tolist()
        )
    assert cache.next_position.tolist() == [10]


def test_L08_a_fork_of_a_compressed_cache_is_as_compressed(model):
    _, cache = prefill(model, list(range(20)), compressor("knorm | uniform(tokens=4) | fp8 | block(4)"))
    one = fork(cache, [0])
    assert one.layers[0].coded.codec == cache.layers[0].coded.codec
    assert one.nbytes().payload == cache.nbytes().payload
    assert fork(cache, [0, 0, 0]).nbytes().payload == cache.nbytes().payload
    for a, b in zip(one.kept(), cache.kept(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_L03_rollback_equals_never_having_seen(model):
    tokens = recorded("llama")[0][:1]
    _, cache = prefill(model, tokens[:, :6], DENSE, max_new_tokens=8)
    _, ahead = forward(model, cache, tokens[:, 6:10])
    back = crop(ahead, [6])
    np.testing.assert_array_equal(forward(model, back, [[60]])[0], forward(model, cache, [[60]])[0])


@pytest.mark.parametrize("spec", ["knorm | uniform(keep=0.5)", "fp8 | recent(2) | block(2)"])
def test_L03_rollback_into_what_was_compressed_is_refused(model, spec):
    tokens = recorded("llama")[0][:1]
    _, cache = prefill(model, tokens[:, :8], compressor(spec), max_new_tokens=8)
    with pytest.raises(ValueError, match="cannot roll back"):
        crop(cache, [7])
    _, ahead = forward(model, cache, tokens[:, 8:9])
    assert crop(ahead, [8]).next_position.tolist() == [8]
    for step in range(9, 13):
        _, ahead = forward(model, ahead, tokens[:, step : step + 1])
    if "recent" in spec:  # tokens 8.. have left the window and were coded meanwhile
        with pytest.raises(ValueError, match="cannot roll back"):
            crop(ahead, [8])
    with pytest.raises(ValueError, match="have been seen"):
        crop(ahead, [99])


def test_freed_rows_give_their_blocks_back(model):
    tokens = recorded("llama")[0][:, :9]
    _, cache = prefill(model, tokens, DENSE)
    used = cache.nbytes().payload
    freed = free(cache, [True, False])
    assert freed.nbytes().payload * 2 == used
    np.testing.assert_array_equal(freed.kept(1)[0], cache.kept(1)[0])


def test_sampling_draws_with_the_stated_probabilities():
    """20,000 draws from [.5, .3, .15, .05]: within four standard errors of theory, cut and renormalised."""
    logits = jnp.log(jnp.array([0.5, 0.3, 0.15, 0.05]))
    count = 20_000
    for sampling, want in [
        (Sampling(1.0), [0.5, 0.3, 0.15, 0.05]),
        (Sampling(0.5), np.array([0.25, 0.09, 0.0225, 0.0025]) / 0.365),
        (Sampling(1.0, top_k=2), [0.625, 0.375, 0, 0]),
        (Sampling(1.0, top_p=0.79), [0.625, 0.375, 0, 0]),
        (Sampling(1.0, top_p=0.1), [1, 0, 0, 0]),
    ]:
        drawn = sample(jnp.broadcast_to(logits, (count, 4)), sampling, jax.random.key(0))
        share = np.bincount(np.asarray(drawn), minlength=4) / count
        want = np.asarray(want, float)
        assert (np.abs(share - want) <= 4 * np.sqrt(want * (1 - want) / count) + 1e-9).all()


def test_sampling_repeats_with_its_key(model):
    logits, cache = prefill(model, [1, 2, 3], DENSE, max_new_tokens=9)
    runs = [
        generate(model, cache, logits, max_new_tokens=9, sampling=Sampling(1.5), key=jax.random.key(seed), stop_ids=())
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(runs[0].tokens, runs[1].tokens)
    assert (runs[0].tokens != runs[2].tokens).any()


@pytest.mark.parametrize(
    "bad", [{"temperature": -1.0}, {"temperature": 1.0, "top_k": 0}, {"temperature": 1.0, "top_p": 0.0}, {"top_k": 3}]
)
def test_bad_sampling_is_a_clear_error(bad):
    with pytest.raises(ValueError, match=r"must be|no effect"):
        Sampling(**bad)


def test_bad_generation_is_a_clear_error(model):
    logits, cache = prefill(model, [1, 2, 3], DENSE, max_new_tokens=1)
    with pytest.raises(ValueError, match="key"):
        generate(model, cache, logits, max_new_tokens=2, sampling=Sampling(1.0))
    with pytest.raises(ValueError, match="1 or more"):
        generate(model, cache, logits, max_new_tokens=0)
    with pytest.raises(ValueError, match="limit of llama"):
        generate(model, cache, logits, max_new_tokens=200)
    with pytest.raises(CacheOverflow):
        generate(model, cache, logits, max_new_tokens=9, stop_ids=())
    with pytest.raises(ValueError, match="vocabulary"):
        decode(model, cache, [96])
