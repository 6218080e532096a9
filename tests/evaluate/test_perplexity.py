"""Perplexity against logits that transformers recorded, and against the models' own plain forward pass."""

import jax.numpy as jnp
import numpy as np
import pytest

from kvjax.evaluate import perplexity, token_nll
from kvjax.models import logits


def expected_nll(logits, tokens):
    logits = np.asarray(logits, np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return [-log_p[t, tokens[t + 1]] for t in range(len(tokens) - 1)]


def test_one_chunk_against_the_recorded_logits(recorded):
    tokens = recorded.tokens[0]
    expected = expected_nll(recorded.logits[0], tokens)
    (measured,) = token_nll(recorded.model, tokens, chunk=128)
    np.testing.assert_allclose(measured, expected, atol=2e-5)
    assert perplexity(recorded.model, tokens, chunk=128) == pytest.approx(np.exp(np.mean(expected)), rel=1e-5)


def test_chunks_do_not_see_each_other(recorded):
    """11 tokens in chunks of 5: two whole chunks with 4 predictions each; the last token alone has none."""
    model, tokens = recorded.model, recorded.tokens[0][:11]
    measured = token_nll(model, tokens, chunk=5)
    assert [len(values) for values in measured] == [4, 4]
    for values, start in zip(measured, (0, 5), strict=True):
        piece = tokens[start : start + 5]
        plain = logits(model.config, model.params, jnp.asarray(piece[None]))[0]
        np.testing.assert_allclose(values, expected_nll(plain, piece), atol=2e-5)


def test_two_tokens_are_enough(recorded):
    tokens = recorded.tokens[0][:2]
    (measured,) = token_nll(recorded.model, tokens, chunk=128)
    np.testing.assert_allclose(measured, expected_nll(recorded.logits[0][:2], tokens), atol=2e-5)


@pytest.mark.parametrize(
    ("ids", "chunk", "message"),
    [
        ([1], 8, "at least 2 token ids"),
        (np.ones((1, 2), np.int32), 8, "one dimension"),
        ([1, 2], 1, "chunk must lie in 2..128"),
        ([1, 2], 129, "chunk must lie in 2..128"),
        ([96, 1], 8, "outside the vocabulary 0..95"),
        ([1, 2, 96], 8, "vocabulary 0..95"),
    ],
)
def test_bad_input(recorded, ids, chunk, message):
    with pytest.raises(ValueError, match=message):
        perplexity(recorded.model, ids, chunk=chunk)
