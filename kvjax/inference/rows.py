"""Token batches: checked ids, rows of different lengths, padding moved to the front."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from kvjax.models import ModelConfig

Padding = Literal["left", "right"]
Ids = np.ndarray | jax.Array | Sequence[Any]  # token ids: an array, or lists of them


@dataclass(frozen=True)
class Rows:
    """Rows of tokens that end in the same column: padding, if any, stands in front (id 0)."""

    tokens: np.ndarray  # int32 [B, T]
    lengths: np.ndarray  # int32 [B]

    @property
    def valid(self) -> np.ndarray:
        """Bool [B, T], False for padding."""
        return self.order >= 0

    @property
    def order(self) -> np.ndarray:
        """int32 [B, T]: each token's number in its row; negative for padding."""
        width = self.tokens.shape[1]
        return np.arange(width, dtype=np.int32)[None] - (width - self.lengths)[:, None]


def align(
    config: ModelConfig,
    tokens: Ids,
    lengths: Sequence[int] | None = None,
    padding: Padding = "right",
) -> Rows:
    """Rows that end together, from a sequence of ids or a padded batch of them.

    Args:
        config: gives the vocabulary.
        tokens: ids, [T] or [B, T].
        lengths: tokens of each row; all T if absent.
        padding: on which side of a row its padding stands.

    Raises:
        ValueError: empty input, ids that are not integers or outside the vocabulary, lengths that do not fit.
    """
    ids = np.asarray(tokens)
    if ids.size == 0:
        raise ValueError("the prompt is empty; give at least one token")
    if not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"token ids must be integers, got {ids.dtype}")
    if ids.ndim not in (1, 2):
        raise ValueError(f"tokens must have shape [T] or [B, T], got {ids.shape}")
    ids = np.atleast_2d(ids)
    rows, width = ids.shape
    counts = np.full(rows, width, np.int32) if lengths is None else np.asarray(lengths, np.int32)
    if counts.shape != (rows,) or counts.min() < 1 or counts.max() > width:
        raise ValueError(f"lengths {counts.tolist()} must give one number from 1 to {width} for each of {rows} rows")
    if padding not in ("left", "right"):
        raise ValueError(f"padding {padding!r} is unknown; allowed: left, right")
    aligned = np.zeros((rows, int(counts.max())), np.int32)
    for row, count in enumerate(counts):
        own = ids[row, :count] if padding == "right" else ids[row, width - count :]
        bad = own[(own < 0) | (own >= config.vocab_size)]
        if bad.size:
            raise ValueError(f"token id {bad[0]} is outside the vocabulary 0..{config.vocab_size - 1}")
        aligned[row, aligned.shape[1] - count :] = own
    return Rows(aligned, counts)
