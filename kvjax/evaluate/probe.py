"""The probe: one context under one compressor, all numbers per token; what other measurements are made of."""

import dataclasses
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from kvjax import types
from kvjax.cache import Cache, grow
from kvjax.compressor import Compressor
from kvjax.evaluate import metrics
from kvjax.files import write_atomic
from kvjax.inference import forward, prefill
from kvjax.models import Model, ModelConfig

_ROWS_AT_ONCE = 64  # of logits in float64: bounds memory


@dataclass(frozen=True, eq=False)
class Probe:
    """What `kvjax probe` writes. N context tokens, `len` tokens in all.

    Attributes:
        nll: NLL in nats of ids[N+1:], each given all tokens before it.
        last_logits: Logits after the last token.
        kept: Context positions held by each layer and head, ascending, padded with -1.
        length: How many those are.
        nbytes: Payload, metadata and total bytes that the context's cache holds, as resident.
        stored_nbytes: Bytes of the entropy-coded form, or -1 if it was not made.
        dense_nbytes: Bytes of the same context in a BF16 cache.
        kl: KL(uncompressed || compressed) in nats after each token of ids[N:]; None without a reference.
    """

    nll: Float[np.ndarray, " T"]
    last_logits: Float[np.ndarray, " V"]
    kept: Int[np.ndarray, "L H K"]
    length: Int[np.ndarray, "L H"]
    nbytes: Int[np.ndarray, " 3"]
    stored_nbytes: int
    dense_nbytes: int
    kl: Float[np.ndarray, "T+1"] | None = None

    def save(self, path: str | Path) -> None:
        """Write the fields as arrays of an .npz file under exactly this name, whole or not at all; no `kl` if None.

        Raises:
            OSError: the folder does not exist or cannot be written, or the disk is full. An older file stays as it was.
        """
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in fields.items() if value is not None}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        write_atomic(Path(path), buffer.getvalue())


def probe(
    model: Model,
    ids: np.ndarray | Sequence[int],
    context: int,
    compressor: Compressor,
    reference: Float[np.ndarray | Array, "T V"] | None = None,
) -> Probe:
    """Prefill and compress ids[:context], then teacher-force the rest through that cache at the true positions.

    Args:
        model: From `load_model`.
        ids: Token ids [len]; at least two come after the context (the first one only predicts).
        context: Tokens to prefill and compress, N.
        compressor: What the cache keeps, and how.
        reference: Logits [len-N, V] of the uncompressed run, from `continuation_logits(..., compressor("dense"))`.
            One reference serves all compressors.

    Raises:
        ValueError: unusable ids, context or reference, or a context that the compressor cannot work on.
    """
    tokens = check_tokens(model.config, ids, context)
    config, new = model.config, len(tokens) - context
    if reference is not None and reference.shape != (new, config.vocab_size):
        raise ValueError(f"reference must be logits of shape {[new, config.vocab_size]}, got {list(reference.shape)}")
    logits, cache = continuation_logits(model, tokens, context, compressor)
    kept, length = cache.kept()
    held = cache.nbytes()
    return Probe(
        nll=_by_rows(metrics.nll, logits[:-1], tokens[context + 1 :]),
        last_logits=np.asarray(logits[-1]),
        kept=kept,
        length=length,
        nbytes=np.array([held.payload, held.metadata, held.total], np.int64),
        stored_nbytes=-1,
        dense_nbytes=types.dense_bytes(context, config.num_layers, config.num_kv_heads, config.head_dim),
        kl=None if reference is None else _by_rows(metrics.kl, reference, logits),
    )


def continuation_logits(
    model: Model, ids: np.ndarray | Sequence[int], context: int, compressor: Compressor
) -> tuple[Float[Array, "T V"], Cache]:
    """Logits after each token of ids[context:], and the cache of ids[:context] before it saw any of them.

    Raises:
        ValueError: unusable ids or context, or a context that the compressor cannot work on.
    """
    tokens = check_tokens(model.config, ids, context)
    _, cache = prefill(model, tokens[:context], compressor)
    # Room for the continuation is added afterwards, so that the context's cache counts no bytes that it does not need.
    logits, _ = forward(model, grow(cache, len(tokens) - context), tokens[None, context:])
    return logits[0], cache


def check_tokens(config: ModelConfig, ids: np.ndarray | Sequence[int], context: int) -> Int[np.ndarray, " T"]:
    """The ids as int32, if they can be probed with this context.

    Raises:
        ValueError: ids that are empty, not whole numbers in one dimension, outside the vocabulary or beyond the model's
            limit; a context that leaves fewer than two tokens or none itself.
    """
    tokens = np.asarray(ids)
    if tokens.size == 0:
        raise ValueError("no token ids; give at least 3 (a context and two tokens after it)")
    if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
        raise ValueError(
            f"token ids must be whole numbers in one dimension, got {tokens.dtype} of shape {list(tokens.shape)}"
        )
    if tokens.min() < 0 or tokens.max() >= config.vocab_size:
        raise ValueError(
            f"token ids must lie inside the vocabulary 0..{config.vocab_size - 1}, got {tokens.min()}..{tokens.max()}"
        )
    if not 1 <= context <= len(tokens) - 2:
        raise ValueError(
            f"context must be 1 or more and leave at least 2 of the {len(tokens)} token ids after it, got {context}"
        )
    if len(tokens) > config.max_context:
        raise ValueError(f"{len(tokens)} token ids exceed the model's context limit of {config.max_context}")
    return tokens.astype(np.int32)


def _by_rows(metric: Callable[..., Any], *arrays: np.ndarray | jax.Array) -> Float[np.ndarray, " T"]:
    """A metric of each row, computed in float64 on the host, some rows at a time; float32."""
    starts = range(0, len(arrays[0]), _ROWS_AT_ONCE)
    parts = [metric(*(np.asarray(x[start : start + _ROWS_AT_ONCE]) for x in arrays)) for start in starts]
    return np.concatenate(parts).astype(np.float32)
