"""Tiny recorded checkpoints: experiments/record_golden_logits.py made them with transformers 5.2.0 (float32)."""

from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from kvjax.models.config import ModelConfig
from kvjax.models.hf_config import config_from_hf
from kvjax.models.huggingface import load_folder
from kvjax.models.params import Params, params_from_tensors

FOLDER = Path(__file__).parents[1] / "data" / "golden"


@dataclass(frozen=True)
class Golden:
    """One recorded checkpoint with the tokens i32 [B, T] and transformers' logits f32 [B, T, V]."""

    name: str
    folder: Path
    config: ModelConfig
    params: Params
    tokens: np.ndarray
    logits: np.ndarray


def read_golden(name: str) -> Golden:
    fields, tensors = load_folder(FOLDER / name)
    config = config_from_hf(fields)
    params = params_from_tensors(config, tensors, jnp.float32, source=name)
    with np.load(FOLDER / name / "golden.npz") as arrays:
        return Golden(name, FOLDER / name, config, params, arrays["tokens"], arrays["logits"])


@pytest.fixture(scope="session", params=sorted(path.name for path in FOLDER.iterdir()))
def golden(request: pytest.FixtureRequest) -> Golden:
    """Each recorded checkpoint in turn."""
    return read_golden(request.param)


@pytest.fixture(scope="session")
def llama() -> Golden:
    """One recorded checkpoint, for tests of what architectures share (it has biases and tied embeddings)."""
    return read_golden("llama")


@pytest.fixture(scope="session")
def golden_folder() -> Path:
    """Where the recorded checkpoints lie, a folder each."""
    return FOLDER
