"""One layer's cache: tokens in the codec's format, and apart from them the sinks and recent tokens uncoded."""

import dataclasses
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kvjax.cache import blocks
from kvjax.cache.blocks import BlockStore
from kvjax.codecs import decode_blocks
from kvjax.types import Bytes, Entries, pytree


@pytree
@dataclass(frozen=True)
class LayerCache:
    """A layer's tokens in one or two stores; attention merges over them.

    `exact` (absent unless the compressor asks for sinks or recent tokens) holds the first tokens (sinks) and the last
    ones uncoded, the same tokens in every head: the sinks in `sink_blocks` blocks of their own, then the recent tokens.
    A whole block of them that lies behind the last `recent` is coded and moves to `coded` before the next tokens come.
    """

    coded: BlockStore
    exact: BlockStore | None
    sink_blocks: int = dataclasses.field(default=0, metadata={"static": True})
    recent: int = dataclasses.field(default=0, metadata={"static": True})

    @property
    def stores(self) -> tuple[BlockStore, ...]:
        """What attention reads."""
        return (self.coded,) if self.exact is None else (self.exact, self.coded)

    def nbytes(self) -> Bytes:
        """Bytes in use, all stores."""
        total = Bytes(0, 0)
        for store in self.stores:
            total = total.plus(store.nbytes())
        return total

    def entries(self) -> Entries:
        """All tokens decoded, each head's in order of position, positions -1 behind them. For reading and tests."""
        parts = [blocks.gather(store) for store in self.stores]
        k, v, positions = (
            jnp.concatenate(xs, axis=2) for xs in zip(*((p.k, p.v, p.positions) for p in parts), strict=True)
        )
        order = jnp.argsort(jnp.where(positions < 0, jnp.iinfo(jnp.int32).max, positions), axis=-1)
        pick = jax.vmap(jax.vmap(lambda x, at: x[at]))
        return Entries(pick(k, order), pick(v, order), pick(positions, order))


def append(
    cache: LayerCache,
    k: Float[Array, "B H T D"],
    v: Float[Array, "B H T D"],
    positions: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
) -> LayerCache:
    """Add new tokens; before that, a block of tokens that has left the recent window is coded.

    Where sinks or recent tokens are held apart, at most a block of tokens can be added at a time.
    """
    if cache.exact is None:
        return dataclasses.replace(cache, coded=blocks.append(cache.coded, k, v, positions, valid))
    if k.shape[2] > cache.exact.slots:
        raise ValueError(f"{k.shape[2]} tokens at once; a cache with a recent window takes {cache.exact.slots}")
    coded, exact = _retire_block(cache, cache.exact)
    return dataclasses.replace(cache, coded=coded, exact=blocks.append(exact, k, v, positions, valid))


def _retire_block(cache: LayerCache, exact: BlockStore) -> tuple[BlockStore, BlockStore]:
    """In each row that has a whole block of tokens behind its recent window, code that block and move it.

    Returns both stores, coded and exact.
    """
    slots = exact.slots
    rows, kv_heads, width = exact.table.shape
    first = cache.sink_blocks
    moves = exact.used - (first + 1) * slots >= cache.recent  # the same in every head of a row
    block = jnp.where(moves, exact.table[:, :, min(first, width - 1)], exact.blocks)
    k, v = decode_blocks(
        *(jax.tree.map(lambda x: x.at[block].get(mode="clip"), payload) for payload in (exact.keys, exact.values))
    )
    positions = exact.positions.at[block].get(mode="fill", fill_value=-1)[:, 0]
    coded = blocks.append(cache.coded, k, v, positions, jnp.broadcast_to(moves[:, :1], positions.shape))
    ahead = jnp.concatenate(
        [
            exact.table[..., :first],
            exact.table[..., first + 1 :],
            jnp.full((rows, kv_heads, 1), exact.blocks, jnp.int32),
        ],
        axis=-1,
    )
    exact = dataclasses.replace(
        exact,
        table=jnp.where(moves[..., None], ahead, exact.table),
        used=exact.used - jnp.where(moves, slots, 0),
        references=exact.references.at[block].add(-1, mode="drop"),
        positions=exact.positions.at[block].set(-1, mode="drop"),
        values=dataclasses.replace(
            exact.values, codes=exact.values.codes.at[block].set(jnp.zeros((), exact.values.codes.dtype), mode="drop")
        ),
    )
    return coded, exact
