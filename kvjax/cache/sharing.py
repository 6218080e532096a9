"""Operations on whole rows and lengths of a store: crop (rollback), fork, free, grow."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from kvjax.cache.blocks import BlockStore, clear_free_blocks, gather_positions, init


def crop(store: BlockStore, end: Int[Array, " B"]) -> BlockStore:
    """Forget every token at position `end` or later, and free the blocks that this empties.

    The state is as if those tokens had never been appended, also where a row shares blocks with a fork: shared blocks
    are cut by what is used of them, never written.
    """
    width, slots = store.table.shape[-1], store.slots
    held = gather_positions(store)
    stays = (held >= 0) & (held < end[:, None, None])
    used = jnp.max(jnp.where(stays, jnp.arange(1, held.shape[-1] + 1)[None, None], 0), axis=-1).astype(jnp.int32)
    column = jnp.arange(width)[None, None]
    table = jnp.where(column < -(-used // slots)[..., None], store.table, store.blocks)
    store = _recount(dataclasses.replace(store, table=table, used=used))
    if store.shared:
        return store
    row = jnp.minimum(store.owner // table.shape[1], table.shape[0] - 1)
    cut = store.positions >= end[row][:, None]

    def clean(codes: Array, hole: Bool[Array, "P r c"]) -> Array:
        return jnp.where(hole, jnp.zeros((), codes.dtype), codes)

    return dataclasses.replace(
        store,
        keys=dataclasses.replace(store.keys, codes=clean(store.keys.codes, cut[:, None])),
        values=dataclasses.replace(store.values, codes=clean(store.values.codes, cut[..., None])),
        positions=jnp.where(cut, -1, store.positions),
    )


def fork(store: BlockStore, rows: Int[Array, " B2"]) -> BlockStore:
    """A store whose row i continues row `rows[i]`: blocks are shared and copied when first written to."""
    return _recount(dataclasses.replace(store, table=store.table[rows], used=store.used[rows], shared=True))


def free(store: BlockStore, rows: Bool[Array, " B"]) -> BlockStore:
    """Give back the blocks of `rows`; what other rows share stays."""
    gone = rows[:, None]
    return _recount(
        dataclasses.replace(
            store,
            table=jnp.where(gone[..., None], store.blocks, store.table),
            used=jnp.where(gone, 0, store.used),
        )
    )


def grow(store: BlockStore, *, blocks: int, table_width: int) -> BlockStore:
    """Room for more: `blocks` further free blocks, and tables `table_width` entries wider."""
    rows, kv_heads, width = store.table.shape
    more = init(
        store.codec,
        rows=rows,
        kv_heads=kv_heads,
        head_dim=store.head_dim,
        blocks=store.blocks + blocks,
        slots=store.slots,
        table_width=width + table_width,
    )

    def extend(held: Array, empty: Array) -> Array:
        return jnp.concatenate([held, empty[held.shape[0] :]])

    table = jnp.where(store.table == store.blocks, more.blocks, store.table)
    return dataclasses.replace(
        store,
        keys=jax.tree.map(extend, store.keys, more.keys),
        values=jax.tree.map(extend, store.values, more.values),
        positions=extend(store.positions, more.positions),
        owner=extend(store.owner, more.owner),
        references=extend(store.references, more.references),
        table=jnp.concatenate([table, more.table[..., width:]], axis=-1),
    )


def _recount(store: BlockStore) -> BlockStore:
    """Reference counts from the tables; blocks that nobody names any more are cleared."""
    counts = jnp.zeros(store.blocks, jnp.int32).at[store.table].add(1, mode="drop")
    return clear_free_blocks(dataclasses.replace(store, references=counts))
