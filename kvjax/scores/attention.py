"""Attention probabilities that scores are made of, recomputed from an observation's queries and keys."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kvjax.types import Observation


def window_attention(obs: Observation, window: int) -> Float[Array, "H G T"]:
    """Mean causal attention of the last `window` queries over all tokens, for each query head.

    The queries are those of the last `window` columns, which padding never occupies.
    """
    kv_heads, tokens, head_dim = obs.k.shape
    q = obs.q[:, -window:].reshape(kv_heads, -1, window, head_dim)
    logits = jnp.einsum("hgwd,htd->hgwt", q, obs.k) * obs.scale
    column = jnp.arange(tokens)
    visible = (column[None] <= column[tokens - window :, None]) & obs.valid[None]
    logits = jnp.where(visible[None, None], logits, -jnp.inf)
    return jnp.mean(jax.nn.softmax(logits, axis=-1), axis=2)
