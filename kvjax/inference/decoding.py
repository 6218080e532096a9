"""Decode: one token a step over the cache; generate: many, until each row has stopped."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from kvjax.cache import Cache
from kvjax.inference.prefilling import check_room
from kvjax.inference.rows import Ids
from kvjax.inference.sampling import GREEDY, Sampling, sample
from kvjax.inference.step import decode_step
from kvjax.models import Model, ModelConfig, Params

step = jax.jit(decode_step, static_argnames="config")


@dataclass(frozen=True)
class Generation:
    """What `generate` returns.

    Args:
        tokens: int32 [B, n], each row's tokens without the stop token, padded with -1.
        lengths: int32 [B].
        cache: has seen every token of a row but its last.
        logits: [B, V] after the last token that the cache has seen.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    cache: Cache
    logits: Float[Array, "B V"]


def decode(
    model: Model, cache: Cache, tokens: Ids, active: Bool[Array, " B"] | None = None
) -> tuple[Float[Array, "B V"], Cache]:
    """One more token in every row (in the `active` ones): logits after it, and the cache with it.

    Raises:
        ValueError: ids outside the vocabulary, another number of rows than the cache has, the model's context limit.
        CacheOverflow: the cache has no room; `cache` is unchanged.
    """
    ids = np.asarray(tokens, np.int32)
    if ids.size and (ids.min() < 0 or ids.max() >= model.config.vocab_size):
        raise ValueError(f"token ids {ids.tolist()} are not all inside the vocabulary 0..{model.config.vocab_size - 1}")
    check_room(model, cache, ids.size, 1)
    rows = jnp.ones(ids.size, bool) if active is None else jnp.asarray(active)
    logits, cache = step(model.config, model.params, cache, jnp.asarray(ids), rows)
    return logits, cache.check()


def generate(
    model: Model,
    cache: Cache,
    logits: Float[Array, "B V"],
    *,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    key: PRNGKeyArray | None = None,
    stop_ids: Sequence[int] | None = None,
) -> Generation:
    """Go on from `cache` until every row has produced a stop token or `max_new_tokens` tokens.

    Args:
        model: from `load_model`.
        cache: from `prefill` or `forward`; stays usable (the loop works on a copy, in place).
        logits: after the last token that the cache has seen.
        max_new_tokens: most tokens of a row; the cache must have room for them.
        sampling: how tokens are drawn.
        key: for sampling; a temperature above 0 needs one.
        stop_ids: tokens that end a row; the tokenizer's end tokens if absent.

    Raises:
        ValueError: no key for sampling, the model's context limit, nothing to generate.
        CacheOverflow: the cache has no room.
    """
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens={max_new_tokens} must be 1 or more")
    if sampling.temperature > 0 and key is None:
        raise ValueError(f"sampling at temperature {sampling.temperature} needs key=jax.random.key(seed)")
    check_room(model, cache, logits.shape[0], max_new_tokens - 1)
    if stop_ids is None:
        stop_ids = model.tokenizer.eos_ids if model.tokenizer is not None else ()
    key = jax.random.key(0) if key is None else key
    stops = jnp.asarray(sorted(stop_ids), jnp.int32)
    cache = jax.tree.map(jnp.copy, cache)

    active = jnp.ones(logits.shape[0], bool)
    produced: list[Array] = []
    for number in range(max_new_tokens - 1):
        tokens, active, logits, cache = draw_and_decode(
            model.config, sampling, model.params, cache, logits, active, stops, jax.random.fold_in(key, number)
        )
        produced.append(tokens)
        # Read one step late, while the next step is under way; a step in which no row is active changes nothing.
        if number and not (np.asarray(produced[-2]) >= 0).any():
            break
    else:
        produced.append(_draw(sampling, logits, active, stops, jax.random.fold_in(key, max_new_tokens - 1))[0])
    drawn = np.stack([np.asarray(tokens) for tokens in produced], axis=1)
    drawn = drawn[:, : int((drawn >= 0).any(axis=0).sum())]
    return Generation(drawn, (drawn >= 0).sum(axis=1).astype(np.int32), cache.check(), logits)


def _draw(
    sampling: Sampling,
    logits: Float[Array, "B V"],
    active: Bool[Array, " B"],
    stops: Int[Array, " n"],
    key: PRNGKeyArray,
) -> tuple[Int[Array, " B"], Bool[Array, " B"]]:
    """The next token of every row, -1 where a row has stopped or stops now, and which rows go on."""
    tokens = sample(logits, sampling, key)
    active = active & ~jnp.isin(tokens, stops)
    return jnp.where(active, tokens, -1), active


@partial(jax.jit, static_argnames=("config", "sampling"), donate_argnames="cache")
def draw_and_decode(
    config: ModelConfig,
    sampling: Sampling,
    params: Params,
    cache: Cache,
    logits: Float[Array, "B V"],
    active: Bool[Array, " B"],
    stops: Int[Array, " n"],
    key: PRNGKeyArray,
) -> tuple[Int[Array, " B"], Bool[Array, " B"], Float[Array, "B V"], Cache]:
    """Draw the next tokens and run them through the model, the cache written in place."""
    tokens, active = _draw(sampling, logits, active, stops, key)
    new, cache = decode_step(config, params, cache, jnp.maximum(tokens, 0), active)
    return tokens, active, jnp.where(active[:, None], new, logits), cache
