"""A recorded tiny model, and a random one with a tokenizer of bytes and a chat template."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from kvjax.models import Model, load_config, load_model
from kvjax.models.params import params_from_tensors, tensor_shapes
from kvjax.models.tokenizer import Tokenizer

LLAMA = Path(__file__).parents[1] / "data" / "golden" / "llama"
TEMPLATE = "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>{% endfor %}<s>assistant{{ '\\n' }}"


@dataclass(frozen=True)
class Recorded:
    """The model, tokens i32 [B, T], and transformers' logits f32 [B, T, V] of them."""

    model: Model
    tokens: np.ndarray
    logits: np.ndarray


@pytest.fixture(scope="session")
def recorded() -> Recorded:
    with np.load(LLAMA / "golden.npz") as arrays:
        return Recorded(load_model(LLAMA), arrays["tokens"], arrays["logits"])


def byte_tokenizer() -> Tokenizer:
    """A token a byte, and two special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate([*alphabet, "<s>", "</s>"])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "</s>"])
    return Tokenizer(backend, eos_ids=(vocabulary["</s>"],), chat_template=TEMPLATE)


@pytest.fixture(scope="session")
def chatty() -> Model:
    """Random weights: its answers mean nothing, but are the same however they are computed."""
    config = dataclasses.replace(load_config(LLAMA / "config.json"), vocab_size=258, max_context=400)
    draw = np.random.default_rng(0)
    tensors = {name: draw.normal(0, 0.2, shape).astype(np.float32) for name, shape in tensor_shapes(config).items()}
    params = params_from_tensors(config, tensors, jnp.float32)
    return Model(config, params, byte_tokenizer(), "chatty", "0")
