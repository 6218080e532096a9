"""The next token from logits: greedy, temperature, top-k, top-p."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. The default is greedy.

    Args:
        temperature: logits are divided by it; 0 takes the most likely token (the first, on ties).
        top_k: only the k most likely tokens may be drawn.
        top_p: only the most likely tokens that together reach this probability may be drawn, at least one
            (Holtzman et al., "The Curious Case of Neural Text Degeneration", ICLR 2020).
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature={self.temperature} must be 0 (greedy) or positive")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k={self.top_k} must be 1 or more")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} must be in (0, 1]")
        if self.temperature == 0 and (self.top_k is not None or self.top_p is not None):
            raise ValueError("top_k and top_p have no effect at temperature 0 (greedy); set a temperature")


GREEDY = Sampling()


@partial(jax.jit, static_argnames="sampling")
def sample(logits: Float[Array, "B V"], sampling: Sampling, key: PRNGKeyArray) -> Int[Array, " B"]:
    """One token a row.

    >>> sample(jnp.array([[0.0, 2.0, 1.0]]), GREEDY, jax.random.key(0)).tolist()
    [1]
    """
    if sampling.temperature == 0:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    logits = logits / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < logits.shape[-1]:
        least = jax.lax.top_k(logits, sampling.top_k)[0][:, -1:]
        logits = jnp.where(logits < least, -jnp.inf, logits)
    if sampling.top_p is not None and sampling.top_p < 1:
        order = jnp.sort(logits, axis=-1, descending=True)
        probability = jax.nn.softmax(order, axis=-1)
        before = jnp.cumsum(probability, axis=-1) - probability  # of all more likely tokens
        least = jnp.min(jnp.where(before < sampling.top_p, order, jnp.inf), axis=-1, keepdims=True)
        logits = jnp.where(logits < least, -jnp.inf, logits)
    return jax.random.categorical(key, logits, axis=-1).astype(jnp.int32)
