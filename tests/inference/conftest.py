"""Tiny models with logits recorded from transformers (experiments/record_golden_logits.py), loaded once."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kvjax.models import Model, load_model

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


@cache
def tiny(architecture: str) -> Model:
    """A recorded checkpoint: 96 ids, contexts up to 128, windows of 6 or 7 where it has any."""
    return load_model(GOLDEN / architecture)


@cache
def recorded(architecture: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [2, 24] and transformers' logits [2, 24, 96]."""
    with np.load(GOLDEN / architecture / "golden.npz") as arrays:
        return arrays["tokens"].astype(np.int32), arrays["logits"]


@pytest.fixture(scope="session")
def model() -> Model:
    return tiny("llama")
