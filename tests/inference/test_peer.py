"""The real model against transformers and kvpress as recorded (tests/data/oracle/README.md)."""

from pathlib import Path

import numpy as np
import pytest

from kvjax.compressor import compressor
from kvjax.evaluate import default_tokens, perplexity, probe
from kvjax.inference import ask
from kvjax.models import load_model

ORACLE = np.load(Path(__file__).parents[1] / "data" / "oracle" / "kvpress_smollm2_512.npz")
IDS = np.concatenate([ORACLE["context"], ORACLE["continuation"]]).astype(np.int32)

pytestmark = pytest.mark.model("smollm2-135m")


@pytest.fixture(scope="module")
def smollm2():
    return load_model("smollm2-135m")


def test_dense_equals_transformers(smollm2):
    got = probe(smollm2, IDS, 512, compressor("dense"))
    assert np.abs(got.nll - ORACLE["full.nll"]).mean() <= 1e-3
    assert np.abs(got.last_logits - ORACLE["full.last_logits"]).max() <= 5e-3
    assert got.dense_nbytes == 512 * 23_040


@pytest.mark.parametrize("method", ["knorm", "snapkv", "streaming_llm"])
def test_methods_equal_kvpress(smollm2, method):
    got = probe(smollm2, IDS, 512, compressor(f"{method} | uniform(keep=0.5)"))
    kept = ORACLE[f"{method}.kept"]
    assert got.length.tolist() == [[256] * 3] * 30
    same = sum(np.intersect1d(got.kept[i, h], kept[i, h]).size for i in range(30) for h in range(3))
    assert same / kept.size >= 0.995
    assert np.abs(got.nll - ORACLE[f"{method}.nll"]).mean() <= 2e-3


def test_fp8_holds_128_bytes_a_token_layer_and_head(smollm2):
    """Payload by the arrays: half of BF16; metadata are scales (4 + 4 bytes a block of 64), positions and tables."""
    got = probe(smollm2, IDS[:576], 512, compressor("fp8"))
    tokens = 512 * 30 * 3
    assert got.nbytes[0] == 128 * tokens
    assert got.dense_nbytes == 256 * tokens
    assert got.nbytes[1] <= (4 + 8 / 64 + 1) * tokens


def test_perplexity_of_the_default_text(smollm2):
    """transformers gives 11.8832 over tokens 0..2,047."""
    assert perplexity(smollm2, default_tokens(smollm2.tokenizer)[:2048]) == pytest.approx(11.883, abs=2e-3)


def test_several_questions_on_one_compressed_context(smollm2):
    """Each answer is what its question alone would get, and comes from the context."""
    context = "Anna lives in Lisbon and keeps bees. Her brother Peter lives in Oslo and builds boats."
    questions = ["In which city does Anna live?", "In which city does Peter live?"]
    together = ask(smollm2, context, questions, compressor("fp8"), max_new_tokens=12)
    assert "Lisbon" in together[0]
    assert "Oslo" in together[1]
    assert ask(smollm2, context, questions[1:], compressor("fp8"), max_new_tokens=12) == together[1:]
