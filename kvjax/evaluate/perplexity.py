"""Perplexity of a token stream under the uncompressed model, in plain chunks."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kvjax.compressor import Compressor
from kvjax.evaluate import metrics
from kvjax.inference import forward, prefill
from kvjax.models import Model

DENSE = Compressor()


def token_nll(model: Model, ids: np.ndarray | Sequence[int], chunk: int = 2048) -> list[Float[np.ndarray, " T"]]:
    """NLL in nats of every token but the first of each chunk, given the chunk's tokens before it: one array a chunk.

    Chunks do not overlap; the last may be shorter, and a last chunk of one token is left out. Nothing is put before a
    chunk: where a model expects a BOS token, put it into the ids.

    Args:
        model: From `load_model`.
        ids: Token ids [T].
        chunk: Tokens in a chunk, at most the model's context limit.

    Raises:
        ValueError: fewer than two tokens, ids outside the vocabulary, a chunk beyond the model's limit.
    """
    tokens = np.asarray(ids)
    if tokens.ndim != 1 or len(tokens) < 2:
        raise ValueError(f"perplexity needs at least 2 token ids in one dimension, got shape {list(tokens.shape)}")
    if not 2 <= chunk <= model.config.max_context:
        raise ValueError(f"chunk must lie in 2..{model.config.max_context} (the limit of {model.name}), got {chunk}")
    chunks = [tokens[start : start + chunk] for start in range(0, len(tokens), chunk)]
    return [_chunk_nll(model, piece) for piece in chunks if len(piece) > 1]


def perplexity(model: Model, ids: np.ndarray | Sequence[int], chunk: int = 2048) -> float:
    """Exponential of the mean NLL of a token stream (see `token_nll`: the same arguments and errors)."""
    return metrics.perplexity_of(np.concatenate(token_nll(model, ids, chunk)))


def _chunk_nll(model: Model, tokens: np.ndarray) -> Float[np.ndarray, " T"]:
    first, cache = prefill(model, tokens[:1], DENSE, max_new_tokens=len(tokens) - 1)
    rest, _ = forward(model, cache, tokens[None, 1:])
    logits = jnp.concatenate([first, rest[0, :-1]])
    return np.asarray(metrics.nll(logits, jnp.asarray(tokens[1:], jnp.int32)))
