"""Attention of new tokens among themselves: causal, uncompressed, in tiles that stay in a core's cache.

The tiling with a running softmax is that of FlashAttention (Dao et al., NeurIPS 2022, arXiv 2205.14135). Tiles are
loops of one compiled body each: compile time does not grow with the context.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kvjax.attention.base import finish, softmax_parts
from kvjax.types import AttentionOutput

QUERY_TILE, KEY_TILE = 256, 512  # KEY_TILE is a multiple of QUERY_TILE

# Running softmax of one tile's queries: largest logit, sum of exp(logit - largest), the same sum of V.
Running = tuple[Float[Array, " Q"], Float[Array, " Q"], Float[Array, "Q D"]]


def causal(
    q: Float[Array, "B Hq T D"],
    k: Float[Array, "B H T D"],
    v: Float[Array, "B H T D"],
    valid: Bool[Array, "B T"] | None = None,
    *,
    scale: float,
    window: int | None = None,
) -> AttentionOutput:
    """Each token attends to itself and the tokens before it, at most `window` of them (itself included).

    Padding (`valid` False; None: there is none) is never attended to, whatever it holds; what sees nothing has output
    zero and log-sum-exp -inf.
    """
    rows, heads, tokens, head_dim = q.shape
    kv_heads = k.shape[1]
    q = (q * scale).reshape(rows, kv_heads, heads // kv_heads, tokens, head_dim)
    if valid is not None:
        k, v = (jnp.where(valid[:, None, :, None], x, 0.0) for x in (k, v))
    attend = _one_tile if tokens <= QUERY_TILE else _tiles
    out, lse = attend(q, k, v, valid, window)
    return AttentionOutput(out.reshape(rows, heads, tokens, head_dim), lse.reshape(rows, heads, tokens))


def _one_tile(
    q: Float[Array, "B H G T D"],
    k: Float[Array, "B H T D"],
    v: Float[Array, "B H T D"],
    valid: Bool[Array, "B T"] | None,
    window: int | None,
) -> tuple[Float[Array, "B H G T D"], Float[Array, "B H G T"]]:
    """All queries against all keys at once."""
    column = jnp.arange(q.shape[3])
    visible = _visible(column, column, window)[None, None, None]
    if valid is not None:
        visible = visible & valid[:, None, None, None]
    logits = jnp.einsum("bhgtd,bhsd->bhgts", q, k)
    largest, total, weights = softmax_parts(logits, jnp.broadcast_to(visible, logits.shape))
    return finish(largest, total, jnp.einsum("bhgts,bhsd->bhgtd", weights, v))


def _tiles(
    q: Float[Array, "B H G T D"],
    k: Float[Array, "B H T D"],
    v: Float[Array, "B H T D"],
    valid: Bool[Array, "B T"] | None,
    window: int | None,
) -> tuple[Float[Array, "B H G T D"], Float[Array, "B H G T"]]:
    """Tile by tile: for each KV head and tile of queries, only the key tiles that it can see."""
    rows, kv_heads, group, tokens, head_dim = q.shape
    tiles = -(-tokens // QUERY_TILE)
    pad = tiles * QUERY_TILE - tokens
    owners = rows * kv_heads
    k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, pad), (0, 0))).reshape(owners, -1, head_dim) for x in (k, v))
    keys = jnp.swapaxes(k, 1, 2)
    hidden = None  # what padding adds to logits
    if valid is not None:
        hidden = jnp.repeat(jnp.where(jnp.pad(valid, ((0, 0), (0, pad))), 0.0, -jnp.inf), kv_heads, axis=0)
    within = jnp.arange(QUERY_TILE)
    diagonal = jnp.where(jnp.tile(_visible(within, within, window), (group, 1)), 0.0, -jnp.inf)
    q = jnp.pad(q, ((0, 0), (0, 0), (0, 0), (0, pad), (0, 0))).reshape(owners, group, tiles, QUERY_TILE, head_dim)
    q = q.transpose(0, 2, 1, 3, 4).reshape(owners * tiles, group * QUERY_TILE, head_dim)

    def tile(args: tuple[Int[Array, ""], Float[Array, "Q D"]]) -> tuple[Float[Array, "Q D"], Float[Array, " Q"]]:
        index, query = args
        owner, start = index // tiles, index % tiles * QUERY_TILE
        at = start + jnp.arange(QUERY_TILE)

        def add(width: int, first: Int[Array, ""], running: Running, bias: Array | None = None) -> Running:
            """Take in the keys of one tile."""
            logits = query @ jax.lax.dynamic_slice(keys, (owner, 0, first), (1, head_dim, width))[0]
            if bias is not None:
                logits = logits + bias
            elif window is not None:
                seen = _visible(at, first + jnp.arange(width), window)
                logits = jnp.where(jnp.tile(seen, (group, 1)), logits, -jnp.inf)
            if hidden is not None:
                logits = logits + jax.lax.dynamic_slice(hidden, (owner, first), (1, width))
            largest, total, weighted = running
            top = jnp.maximum(largest, jnp.max(logits, axis=-1))
            base = jnp.where(top > -jnp.inf, top, 0.0)
            weights, shrink = jnp.exp(logits - base[:, None]), jnp.exp(largest - base)
            values = jax.lax.dynamic_slice(v, (owner, first, 0), (1, width, head_dim))[0]
            return top, total * shrink + jnp.sum(weights, axis=-1), weighted * shrink[:, None] + weights @ values

        size = group * QUERY_TILE
        running = (jnp.full(size, -jnp.inf), jnp.zeros(size), jnp.zeros((size, head_dim)))
        running = add(QUERY_TILE, start, running, diagonal)
        for width, end in ((KEY_TILE, start // KEY_TILE * KEY_TILE), (QUERY_TILE, start)):
            begin = 0 if width == KEY_TILE else start // KEY_TILE * KEY_TILE
            begin = begin if window is None else jnp.maximum(begin, (start - window + 1) // width * width)
            running = jax.lax.fori_loop(
                begin // width, end // width, lambda j, r, width=width: add(width, j * width, r), running
            )
        return finish(*running)

    out, lse = jax.lax.map(tile, (jnp.arange(owners * tiles), q))

    def untile(x: Array) -> Array:
        x = x.reshape(rows, kv_heads, tiles, group, QUERY_TILE, *x.shape[2:])
        return jnp.moveaxis(x, 3, 2).reshape(rows, kv_heads, group, -1, *x.shape[5:])[:, :, :, :tokens]

    return untile(out), untile(lse)


def _visible(query: Int[Array, " Q"], key: Int[Array, " S"], window: int | None) -> Bool[Array, "Q S"]:
    seen = key[None] <= query[:, None]
    return seen if window is None else seen & (key[None] > query[:, None] - window)
