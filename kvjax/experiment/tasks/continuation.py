"""Task `continuation`: text fed through the compressed cache of what stands before it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int

from kvjax.attention import backend_for
from kvjax.compressor import Compressor
from kvjax.evaluate import agreement, continuation_logits, kl, nll
from kvjax.experiment.config import Experiment
from kvjax.models import Model
from kvjax.types import dense_bytes

UNCOMPRESSED = Compressor()


@dataclass(frozen=True, eq=False)
class Passage:
    """A stretch of text and the uncompressed run on its continuation."""

    ids: Int[np.ndarray, " len"]
    reference: Float[Array, "T V"]


@dataclass(frozen=True, eq=False)
class Continuation:
    """NLL, KL and top-1 agreement after each continuation token, against the uncompressed cache; bytes held."""

    model: Model
    text: Int[np.ndarray, " len"]
    experiment: Experiment

    def prepare(self, index: int) -> Passage:
        """Cuts passage `index` at a place drawn from (seed, index), and runs it uncompressed.

        Raises:
            ValueError: the text is shorter than a passage.
        """
        e = self.experiment
        ids = passage(self.text, e.context_tokens, e.continuation_tokens, e.seed, index, bos(self.model))
        reference, _ = continuation_logits(self.model, ids, e.context_tokens, UNCOMPRESSED)
        return Passage(ids, reference)

    def measure(self, shared: Passage, compressor: Compressor) -> dict[str, Any]:
        """Per-token lists over the continuation, and the bytes that the context's cache holds."""
        config, context = self.model.config, self.experiment.context_tokens
        logits, cache = continuation_logits(self.model, shared.ids, context, compressor)
        held = cache.nbytes()
        ours, theirs = np.asarray(logits), np.asarray(shared.reference)
        targets = shared.ids[context + 1 :]
        return {
            "context_tokens": context,
            "nll": _floats(nll(ours[:-1], targets)),
            "reference_nll": _floats(nll(theirs[:-1], targets)),
            "kl": _floats(kl(theirs, ours)),
            "agreement": agreement(theirs, ours).astype(int).tolist(),
            "nbytes": [held.payload, held.metadata],
            "attention": sorted({backend_for(store) for layer in cache.layers for store in layer.stores}),
            "dense_nbytes": dense_bytes(context, config.num_layers, config.num_kv_heads, config.head_dim),
        }


def passage(
    text: Int[np.ndarray, " len"], context: int, continuation: int, seed: int, index: int, bos: int | None
) -> Int[np.ndarray, " passage"]:
    """Token ids [context + continuation] from a place of the text drawn from (seed, index); BOS first if given.

    Raises:
        ValueError: the text is too short.
    """
    head = [] if bos is None else [bos]
    size = context + continuation - len(head)
    if size > len(text):
        raise ValueError(f"context_tokens + continuation_tokens take {size} tokens of text, which has {len(text)}")
    start = int(np.random.default_rng([seed, index]).integers(len(text) - size + 1))
    return np.concatenate([np.asarray(head, np.int32), text[start : start + size]])


def bos(model: Model) -> int | None:
    """The token that this model expects before any text, if there is one."""
    tokenizer = model.tokenizer
    return tokenizer.bos_id if tokenizer is not None and tokenizer.add_bos else None


def _floats(values: np.ndarray | Array) -> list[float]:
    return np.asarray(values, np.float32).tolist()
