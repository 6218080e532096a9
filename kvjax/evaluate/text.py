"""The embedded default text: CPython's own help topics, real technical English on every machine without a download."""

import hashlib
from pydoc_data.topics import topics

import numpy as np
from jaxtyping import Int32

from kvjax.models.tokenizer import Tokenizer


def default_text() -> str:
    """Python's help topics joined in key order with blank lines; differs a little between Python versions."""
    return "\n\n".join(topics[name] for name in sorted(topics))


def default_tokens(tokenizer: Tokenizer) -> Int32[np.ndarray, "T"]:
    """Token ids of the default text, without BOS: 113,108 with SmolLM2's tokenizer under CPython 3.11."""
    return np.asarray(tokenizer.encode(default_text(), add_bos=False), np.int32)


def fingerprint(tokens: Int32[np.ndarray, "T"]) -> str:
    """First 16 hex digits of the SHA-256 of token ids (as little-endian int32): says which text a result is about.

    >>> fingerprint(np.array([1, 2, 3], np.int32))
    '4636993d3e1da4e9'
    """
    return hashlib.sha256(tokens.astype("<i4").tobytes()).hexdigest()[:16]
