"""The probe against logits that transformers recorded, kept sets known by the method's definition, bytes by hand."""

import dataclasses
import os

import numpy as np
import pytest

from kvjax import compressor
from kvjax.evaluate import continuation_logits, probe

CONTEXT = 7
STREAMING = "streaming_llm | uniform(keep=0.5)"


@pytest.fixture(scope="module")
def dense(recorded):
    return probe(recorded.model, recorded.tokens[0], CONTEXT, compressor("dense"), recorded.logits[0, CONTEXT:])


def log_softmax(logits):
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_dense_nll_is_that_of_the_recorded_logits(recorded, dense):
    """Token N+1 is predicted by the logits after token N."""
    tokens, logits = recorded.tokens[0], recorded.logits[0]
    expected = [-log_softmax(logits[t - 1])[tokens[t]] for t in range(CONTEXT + 1, len(tokens))]
    assert dense.nll.shape == (len(tokens) - CONTEXT - 1,) and dense.nll.dtype == np.float32
    np.testing.assert_allclose(dense.nll, expected, atol=2e-5)
    np.testing.assert_allclose(dense.last_logits, logits[-1], atol=2e-5)


def test_dense_diverges_from_nothing(recorded, dense):
    assert dense.kl.shape == (len(recorded.tokens[0]) - CONTEXT,) and dense.kl.dtype == np.float32
    assert (dense.kl >= 0).all() and dense.kl.max() < 1e-8


def test_dense_keeps_everything(dense):
    """2 layers, 2 KV heads."""
    np.testing.assert_array_equal(dense.kept, np.broadcast_to(np.arange(CONTEXT), (2, 2, CONTEXT)))
    np.testing.assert_array_equal(dense.length, np.full((2, 2), CONTEXT))
    assert dense.kept.dtype == dense.length.dtype == np.int32


def test_bytes_by_hand(recorded, dense):
    """BF16: 7 tokens x 2 layers x 2 heads x (8 + 8) elements x 2 bytes. Float32 in blocks of 64 slots: whole blocks."""
    assert dense.dense_nbytes == 7 * 2 * 2 * 16 * 2
    payload, metadata, total = dense.nbytes
    assert payload == 64 * 2 * 2 * 16 * 4
    assert total == payload + metadata and metadata > 64 * 2 * 2 * 4  # a position a slot, and the tables
    assert dense.nbytes.dtype == np.int64 and dense.stored_nbytes == -1
    small = probe(recorded.model, recorded.tokens[0], CONTEXT, compressor("bf16 | block(7)"))
    assert small.nbytes[0] == dense.dense_nbytes  # its blocks are just full


def test_bytes_are_the_context_s_whatever_follows(recorded, dense):
    short = probe(recorded.model, recorded.tokens[0][: CONTEXT + 2], CONTEXT, compressor("dense"))
    np.testing.assert_array_equal(short.nbytes, dense.nbytes)
    np.testing.assert_allclose(short.nll, dense.nll[:1], atol=1e-5)


def test_streaming_llm_keeps_sinks_and_the_last(recorded):
    """Half of 12 tokens: 4 sinks and the last 2."""
    some = probe(recorded.model, recorded.tokens[0], 12, compressor(STREAMING))
    np.testing.assert_array_equal(some.kept, np.broadcast_to([0, 1, 2, 3, 10, 11], (2, 2, 6)))
    assert some.kl is None


def test_kl_is_that_of_each_token(recorded):
    """Formula in float64, reference first."""
    tokens, chosen = recorded.tokens[0], compressor(STREAMING)
    measured = probe(recorded.model, tokens, 12, chosen, recorded.logits[0, 12:])
    logits, cache = continuation_logits(recorded.model, tokens, 12, chosen)
    log_p, log_q = log_softmax(recorded.logits[0, 12:]), log_softmax(np.asarray(logits))
    expected = (np.exp(log_p) * (log_p - log_q)).sum(-1)
    np.testing.assert_allclose(measured.kl, expected, rtol=1e-4, atol=1e-8)
    assert measured.kl.max() > 1e-6
    assert cache.next_position.tolist() == [12]  # the cache of the context, before the continuation


def test_file_has_the_named_arrays_and_nothing_beside_it(dense, tmp_path):
    path = tmp_path / "probe"  # not "probe.npz": the name is taken as given
    dense.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["probe"]
    with np.load(path, allow_pickle=False) as arrays:
        assert {name: arrays[name].dtype.name for name in arrays} == {
            "nll": "float32", "last_logits": "float32", "kept": "int32", "length": "int32",
            "nbytes": "int64", "stored_nbytes": "int64", "dense_nbytes": "int64", "kl": "float32",
        }  # fmt: skip
        np.testing.assert_array_equal(arrays["nll"], dense.nll)
        assert arrays["stored_nbytes"].shape == () and arrays["stored_nbytes"] == -1
    dataclasses.replace(dense, kl=None).save(path)
    with np.load(path, allow_pickle=False) as arrays:
        assert "kl" not in arrays


def test_a_failed_write_leaves_the_older_file(dense, tmp_path, monkeypatch):
    def full(*_):
        raise OSError("No space left on device")

    path = tmp_path / "probe.npz"
    path.write_bytes(b"older")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        dense.save(path)
    assert path.read_bytes() == b"older" and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(FileNotFoundError):
        dense.save(tmp_path / "absent" / "probe.npz")


@pytest.mark.parametrize(
    ("ids", "context", "message"),
    [
        ([], 1, "no token ids"),
        (np.ones(5), 2, "whole numbers in one dimension, got float64"),
        (np.ones((2, 5), np.int32), 2, r"shape \[2, 5\]"),
        ([1, 2, 96, 3], 2, r"vocabulary 0..95, got 1..96"),
        ([1, -1, 2, 3], 2, r"vocabulary 0..95, got -1..3"),
        ([1, 2, 3, 4], 0, "context must be 1 or more and leave at least 2 of the 4"),
        ([1, 2, 3, 4], 3, "leave at least 2 of the 4 token ids after it, got 3"),
        ([1] * 129, 2, "129 token ids exceed the model's context limit of 128"),
    ],
)
def test_bad_input_is_one_clear_line(recorded, ids, context, message):
    with pytest.raises(ValueError, match=message) as caught:
        probe(recorded.model, ids, context, compressor("dense"))
    assert "\n" not in str(caught.value)


def test_a_reference_of_another_shape_is_refused(recorded):
    with pytest.raises(ValueError, match=r"shape \[3, 96\], got \[4, 96\]"):
        probe(recorded.model, [1, 2, 3, 4, 5], 2, compressor("dense"), np.zeros((4, 96), np.float32))
