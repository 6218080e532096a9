"""The cache of a whole model: one `LayerCache` a layer, and where each sequence stands."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from kvjax.cache import sharing
from kvjax.cache.blocks import BlockStore
from kvjax.cache.layer import LayerCache
from kvjax.types import Bytes, pytree


class CacheOverflow(RuntimeError):
    """A write did not fit the pool; nothing of it was stored."""


@pytree
@dataclass(frozen=True)
class Cache:
    """A compressed cache: a pytree, passed in and out.

    `next_position` and the number of tokens stored are two numbers: after eviction a sequence goes on where it was.
    """

    layers: tuple[LayerCache, ...]
    next_position: Int[Array, " B"]  # of the token that comes next
    committed: Int[Array, " B"]  # tokens before this position were chosen or coded for good: no rollback behind it

    @property
    def rows(self) -> int:
        """B."""
        return self.next_position.shape[0]

    def nbytes(self) -> Bytes:
        """Bytes in use: what the tokens occupy, padding inside blocks, scales, positions and tables included."""
        total = Bytes(payload=0, metadata=self.next_position.nbytes + self.committed.nbytes)
        for layer in self.layers:
            total = total.plus(layer.nbytes())
        return total

    def pool_nbytes(self) -> int:
        """Bytes of all arrays that are held, free blocks included."""
        return sum(store.pool_nbytes() for layer in self.layers for store in layer.stores)

    def kept(self, row: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Positions held of one sequence: i32 [L, H, max] ascending, padded with -1, and how many, i32 [L, H]."""
        layers = [np.asarray(layer.entries().positions[row]) for layer in self.layers]
        length = np.array([(positions >= 0).sum(-1) for positions in layers], np.int32)
        most = max(1, int(length.max(initial=0)))
        kept = np.full((*length.shape, most), -1, np.int32)
        for layer, positions in enumerate(layers):
            width = min(most, positions.shape[-1])
            kept[layer, :, :width] = positions[:, :width]
        return kept, length

    def check(self) -> "Cache":
        """This cache, or CacheOverflow if a write did not fit. Waits for the cache to be computed."""
        for index, layer in enumerate(self.layers):
            for store in layer.stores:
                if bool(store.overflow):
                    raise CacheOverflow(
                        f"the cache of layer {index} is full: {store.blocks} blocks of {store.slots} slots, tables of "
                        f"{store.table.shape[-1]}; nothing of the last tokens was stored. Give prefill a larger "
                        "max_new_tokens, or grow() the cache"
                    )
        return self


def _map_stores(cache: Cache, change: Callable[[BlockStore], BlockStore]) -> tuple[LayerCache, ...]:
    return tuple(
        dataclasses.replace(
            layer, coded=change(layer.coded), exact=None if layer.exact is None else change(layer.exact)
        )
        for layer in cache.layers
    )


def crop(cache: Cache, end: Array | np.ndarray | Sequence[int]) -> Cache:
    """Roll back: as if the tokens at position `end` and later had never been seen.

    Raises:
        ValueError: if that needs tokens that were evicted or coded because of later ones, or lies in the future.
    """
    at = jnp.asarray(end, jnp.int32)
    if bool(jnp.any(at < cache.committed)) or bool(jnp.any(at > cache.next_position)):
        raise ValueError(
            f"cannot roll back to position {np.asarray(at).tolist()}: what lies before "
            f"{np.asarray(cache.committed).tolist()} was compressed together with later tokens, and "
            f"{np.asarray(cache.next_position).tolist()} have been seen; fork() before appending keeps the older state"
        )
    return dataclasses.replace(
        cache, layers=_map_stores(cache, lambda store: sharing.crop(store, at)), next_position=at
    )


def fork(cache: Cache, rows: Array | np.ndarray | Sequence[int], max_new_tokens: int = 0) -> Cache:
    """A cache whose row i continues row `rows[i]`, each with room for `max_new_tokens` more tokens.

    Nothing is copied until a row writes into a partly filled block that it shares; no row sees another's tokens.

    Raises:
        ValueError: if a row does not exist.
    """
    index = np.asarray(rows, np.int32)
    if index.ndim != 1 or index.size == 0 or index.min() < 0 or index.max() >= cache.rows:
        raise ValueError(f"fork rows {index.tolist()} must name rows 0..{cache.rows - 1}")

    def one(store: BlockStore) -> BlockStore:
        kv_heads = store.table.shape[1]
        per_head = -(-max_new_tokens // store.slots) + 1  # and the copy of a shared last block
        forked = sharing.fork(store, jnp.asarray(index))
        return sharing.grow(forked, blocks=len(index) * kv_heads * per_head, table_width=per_head)

    return Cache(_map_stores(cache, one), cache.next_position[index], cache.committed[index])


def free(cache: Cache, rows: Array | np.ndarray | Sequence[bool]) -> Cache:
    """Give back all blocks of the rows where `rows` is True."""
    gone = jnp.asarray(rows, bool)
    return dataclasses.replace(cache, layers=_map_stores(cache, lambda store: sharing.free(store, gone)))


def grow(cache: Cache, max_new_tokens: int) -> Cache:
    """Room for `max_new_tokens` further tokens in every row."""

    def one(store: BlockStore) -> BlockStore:
        rows, kv_heads, _ = store.table.shape
        per_head = -(-max_new_tokens // store.slots) + 1
        return sharing.grow(store, blocks=rows * kv_heads * per_head, table_width=per_head)

    return dataclasses.replace(cache, layers=_map_stores(cache, one))
