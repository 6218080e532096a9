"""How far one next-token distribution is from the truth or from another: pure functions of logits.

All work on numpy arrays, in float64, and on JAX arrays, in float32 (under jit, grad and vmap too). Logits are finite.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

AnyArray = np.ndarray | jax.Array


def log_softmax(logits: Float[AnyArray, "*T V"]) -> Float[AnyArray, "*T V"]:
    """Log-probabilities in nats; no overflow whatever the size of the logits.

    >>> log_softmax(np.array([1000.0, 1000.0])).round(4).tolist()
    [-0.6931, -0.6931]
    """
    xp, exact = _wide(logits)
    shifted = exact - exact.max(-1, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(-1, keepdims=True))


def nll(logits: Float[AnyArray, "*T V"], targets: Int[AnyArray, "*T"]) -> Float[AnyArray, "*T"]:
    """Negative log-likelihood of each target token in nats; `logits[t]` predicts `targets[t]`, ids in 0..V-1.

    >>> nll(np.log([[0.25, 0.75]]), np.array([0])).round(4).tolist()
    [1.3863]
    """
    xp, _ = _wide(logits)
    return -xp.take_along_axis(log_softmax(logits), targets[..., None], axis=-1)[..., 0]


def kl(reference: Float[AnyArray, "*T V"], logits: Float[AnyArray, "*T V"]) -> Float[AnyArray, "*T"]:
    """KL(reference || compressed) of the next-token distributions, in nats.

    Summed as q - p + p (log p - log q), which is the same since p and q both sum to 1: no term is negative, and a
    rounding error in the two normalisers, which would drown a small divergence, cancels to first order.

    >>> kl(np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])).round(4).tolist()
    [0.1438]
    """
    xp, _ = _wide(reference)
    log_p, log_q = log_softmax(reference), log_softmax(logits)
    p, q = xp.exp(log_p), xp.exp(log_q)
    terms = (q - p) + p * (log_p - log_q)
    return xp.maximum(terms.sum(-1), xp.zeros_like(terms[..., 0]))  # below 0 by rounding only


def agreement(reference: Float[AnyArray, "*T V"], logits: Float[AnyArray, "*T V"]) -> Bool[AnyArray, "*T"]:
    """Whether both have the same most likely next token (the first of equals).

    >>> agreement(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.0, 9.0], [0.0, 9.0]])).tolist()
    [True, False]
    """
    return reference.argmax(-1) == logits.argmax(-1)


def perplexity_of(nll: Float[AnyArray, "*T"]) -> float:
    """Exponential of the mean NLL."""
    return float(np.exp(np.asarray(nll, np.float64).mean()))


def _wide(x: AnyArray) -> tuple[Any, Any]:
    """The array library that x belongs to, and x in the precision that metrics are computed in."""
    return (np, x.astype(np.float64)) if isinstance(x, np.ndarray) else (jnp, x.astype(jnp.float32))
