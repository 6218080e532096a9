import sys

import numpy as np
import pytest

from kvjax.evaluate.text import default_text, default_tokens, fingerprint

PYTHON_3_11 = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the text differs between Python versions")

# Tokens 20,000 to 20,031 of the default text: transformers 5.2.0 on SmolLM2's GGUF file, CPython 3.11.
RECORDED = [
    42248, 476, 12468, 10425, 216, 378, 2191, 365, 5210, 654, 2127, 198, 4103, 32476, 25, 314,
    17272, 1523, 260, 2138, 1685, 30, 216, 378, 4530, 359, 42, 198, 198, 26, 330, 5758,
]  # fmt: skip


def test_text_is_the_topics_in_key_order():
    text = default_text()
    assert text.startswith('The "assert" statement')
    assert len(text) > 300_000


def test_fingerprint_is_the_hash_of_little_endian_ids():
    # printf '\1\0\0\0\2\0\0\0\3\0\0\0' | sha256sum
    assert fingerprint(np.array([1, 2, 3], np.int32)) == "4636993d3e1da4e9"
    assert fingerprint(np.array([1, 2, 4], np.int32)) != "4636993d3e1da4e9"


@PYTHON_3_11
@pytest.mark.model("smollm2-135m")
def test_tokens_are_those_that_the_peer_was_recorded_on():
    from kvjax.models.default import model_path
    from kvjax.models.gguf import load_gguf

    tokens = default_tokens(load_gguf(model_path("smollm2-135m"))[2])
    assert tokens.dtype == np.int32
    assert len(tokens) == 113_108
    assert tokens[20_000:20_032].tolist() == RECORDED
