"""Attention: among new tokens (causal), over the blocked cache (several backends, one test suite), merged exactly."""

import contextlib
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kvjax.attention import flat, reference
from kvjax.attention.base import merge
from kvjax.attention.new_tokens import causal
from kvjax.cache.blocks import BlockStore
from kvjax.types import AttentionOutput

BACKENDS: dict[str, Callable[..., AttentionOutput]] = {"flat": flat.attend, "reference": reference.attend}
"""Backends by name, in the order in which they are tried."""


def over_blocks(
    q: Float[Array, "B Hq T D"],
    store: BlockStore,
    positions: Int[Array, "B T"],
    before: Int[Array, " B"],
    *,
    scale: float,
    window: int | None = None,
    backend: str | None = None,
) -> AttentionOutput:
    """Attention of queries over the tokens that a store holds of their row and that came before all of them.

    Args:
        q: queries, after RoPE.
        store: one of a layer's stores.
        positions: of the queries; a token is seen if it is fewer than `window` positions away.
        before: only tokens at positions below this are seen; what the queries' own tokens see of each other is
            `causal`'s part.
        scale: logits are q.k times this.
        window: of a sliding-window layer; None sees everything.
        backend: a name of `BACKENDS`; None takes the first that can do this case.

    Raises:
        ValueError: unknown backend.
        NotImplementedError: the named backend cannot do this case.
    """
    if backend is not None:
        if backend not in BACKENDS:
            raise ValueError(f"unknown attention backend {backend!r}; allowed: {', '.join(BACKENDS)}")
        return BACKENDS[backend](q, store, positions, before, scale=scale, window=window)
    refusals = []
    for attend in BACKENDS.values():
        try:
            return attend(q, store, positions, before, scale=scale, window=window)
        except NotImplementedError as refusal:
            refusals.append(refusal)
    raise NotImplementedError("no attention backend can do this case: " + "; ".join(map(str, refusals)))


def backend_for(store: BlockStore) -> str:
    """Name of the backend that `over_blocks` takes for a store: for the run record."""
    rows, kv_heads, _ = store.table.shape
    q = jax.ShapeDtypeStruct((rows, kv_heads, 1, store.head_dim), jnp.float32)
    positions, before = jax.ShapeDtypeStruct((rows, 1), jnp.int32), jax.ShapeDtypeStruct((rows,), jnp.int32)
    for name, attend in BACKENDS.items():
        with contextlib.suppress(NotImplementedError):
            jax.eval_shape(partial(attend, scale=1.0, window=None), q, store, positions, before)
            return name
    raise NotImplementedError("no attention backend can do this case")


__all__ = ["BACKENDS", "backend_for", "causal", "merge", "over_blocks"]
