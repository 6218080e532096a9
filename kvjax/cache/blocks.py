"""A pool of blocks, and the block table of every head: who owns which block, and what stands in each slot.

A block holds S tokens of one KV head of one sequence. Heads own different numbers of blocks; what a head does not
need is free and can be given to another head or sequence. Everything is a pytree of static shapes: allocation is index
arithmetic under jit. The index P (one beyond the pool) means "no block": reads give the fill value, writes are dropped.
"""

import dataclasses
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kvjax.codecs import Codec, Payload, decode_blocks, encode_blocks, init_blocks, write_tokens
from kvjax.types import Bytes, Entries, pytree

MAX_ELEMENTS = 2**31 - 1  # of one array: what int32 offsets can reach


@pytree
@dataclass(frozen=True)
class BlockStore:
    """One layer's pool and tables. A slot holds a token iff its position is not -1.

    A free block holds no token, and its values are zero: what a block's last owner left, even NaN, is gone before the
    next one writes its first token.
    """

    keys: Payload  # [P, D, S]
    values: Payload  # [P, S, D]
    positions: Int[Array, "P S"]  # of the token in each slot; -1: empty
    owner: Int[Array, " P"]  # b * H + h of the head that a block was given to
    table: Int[Array, "B H M"]  # each head's blocks in order; P: none
    used: Int[Array, "B H"]  # slots taken in a head's blocks, empty ones in between included
    references: Int[Array, " P"]  # table entries that name a block; 0: free
    overflow: Bool[Array, ""]  # True once a write did not fit (and was not done)
    codec: Codec = dataclasses.field(metadata={"static": True})
    shared: bool = dataclasses.field(default=False, metadata={"static": True})  # blocks may have several owners (fork)

    @property
    def blocks(self) -> int:
        """P."""
        return self.positions.shape[0]

    @property
    def slots(self) -> int:
        """S."""
        return self.positions.shape[1]

    @property
    def head_dim(self) -> int:
        """D."""
        return self.values.codes.shape[2]

    def tokens(self) -> Int[Array, "B H"]:
        """Tokens that each head holds, counted by their positions."""
        return jnp.sum(gather_positions(self) >= 0, axis=-1, dtype=jnp.int32)

    def nbytes(self) -> Bytes:
        """Bytes of the blocks in use (padding in partly filled blocks included), and of the tables as allocated."""
        used = int(jnp.sum(self.references > 0))
        payload = _bytes_per_block(self.keys.codes) + _bytes_per_block(self.values.codes)
        scales = sum(_bytes_per_block(p.scale) for p in (self.keys, self.values) if p.scale is not None)
        per_block = scales + _bytes_per_block(self.positions)
        tables = sum(x.size * x.dtype.itemsize for x in (self.table, self.used, self.owner, self.references))
        return Bytes(used * payload, used * per_block + tables)

    def pool_nbytes(self) -> int:
        """Bytes of every array that is held, free blocks included."""
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(self))


def _bytes_per_block(x: Array) -> int:
    return x.size * x.dtype.itemsize // x.shape[0]


def init(
    codec: Codec, *, rows: int, kv_heads: int, head_dim: int, blocks: int, slots: int, table_width: int
) -> BlockStore:
    """An empty store. Pure allocation: works under `jax.eval_shape`.

    Raises:
        ValueError: if a size is negative or one array would have more elements than int32 offsets reach.
    """
    if min(rows, kv_heads, head_dim, slots) < 1 or min(blocks, table_width) < 0:
        raise ValueError(f"bad cache size: {rows=}, {kv_heads=}, {head_dim=}, {blocks=}, {slots=}, {table_width=}")
    if blocks * slots * head_dim > MAX_ELEMENTS:
        raise ValueError(
            f"a pool of {blocks} blocks of {slots} x {head_dim} has {blocks * slots * head_dim} elements, more than "
            f"the {MAX_ELEMENTS} that 32-bit offsets reach; split the batch or use fewer blocks"
        )
    keys, values = init_blocks(codec, blocks, slots, head_dim)
    return BlockStore(
        keys=keys,
        values=values,
        positions=jnp.full((blocks, slots), -1, jnp.int32),
        owner=jnp.zeros(blocks, jnp.int32),
        table=jnp.full((rows, kv_heads, table_width), blocks, jnp.int32),
        used=jnp.zeros((rows, kv_heads), jnp.int32),
        references=jnp.zeros(blocks, jnp.int32),
        overflow=jnp.array(False),
        codec=codec,
    )


def build(codec: Codec, entries: Entries, *, blocks: int, slots: int, table_width: int) -> BlockStore:
    """A store that holds `entries` [B, H, K] slot for slot; behind a head's last token (position >= 0) nothing is held.

    Blocks are laid out head after head. If they need more than `blocks` blocks or `table_width` entries a head,
    `overflow` is set and nothing is stored.
    """
    rows, kv_heads, tokens, head_dim = entries.k.shape
    store = init(
        codec, rows=rows, kv_heads=kv_heads, head_dim=head_dim, blocks=blocks, slots=slots, table_width=table_width
    )
    taken = jnp.where(entries.positions >= 0, jnp.arange(1, tokens + 1, dtype=jnp.int32)[None, None], 0)
    used = jnp.max(taken, axis=-1, initial=0)
    need = -(-used // slots)
    last = jnp.cumsum(need.reshape(-1))
    fits = (last[-1] <= blocks) & (jnp.max(need) <= table_width)
    need, last = jnp.where(fits, need, 0), jnp.where(fits, last, 0)
    if blocks == 0 or tokens == 0:
        return dataclasses.replace(store, overflow=~fits)

    per_head = -(-tokens // slots)
    pad = per_head * slots - tokens
    shape = (rows, kv_heads, per_head, slots)
    positions = jnp.pad(entries.positions, ((0, 0), (0, 0), (0, pad)), constant_values=-1).reshape(shape)
    k = jnp.pad(entries.k, ((0, 0), (0, 0), (0, pad), (0, 0))).reshape(*shape, head_dim)
    v = jnp.pad(entries.v, ((0, 0), (0, 0), (0, pad), (0, 0))).reshape(*shape, head_dim)
    keys, values = encode_blocks(codec, k, v, positions >= 0)

    block = jnp.arange(blocks)
    owner = jnp.minimum(jnp.searchsorted(last, block, side="right"), rows * kv_heads - 1).astype(jnp.int32)
    start = last - need.reshape(-1)
    rank = block - start[owner]
    given = block < last[-1]
    source = owner * per_head + jnp.clip(rank, 0, per_head - 1)

    def place(empty: Array, coded: Array) -> Array:
        picked = coded.reshape(-1, *coded.shape[3:])[source]
        return jnp.where(given.reshape(-1, *[1] * (empty.ndim - 1)), picked, empty)

    columns = jnp.arange(table_width)
    table = start.reshape(rows, kv_heads, 1) + columns[None, None]
    return dataclasses.replace(
        store,
        keys=jax.tree.map(place, store.keys, keys),
        values=jax.tree.map(place, store.values, values),
        positions=place(store.positions, positions),
        owner=owner,
        table=jnp.where(columns[None, None] < need[..., None], table, blocks).astype(jnp.int32),
        used=jnp.where(fits, used, 0),
        references=given.astype(jnp.int32),
        overflow=~fits,
    )


def gather_positions(store: BlockStore) -> Int[Array, "B H T"]:
    """Positions of every head's slots in order, [B, H, M * S]; -1 where a slot is empty."""
    rows, kv_heads, width = store.table.shape
    positions = store.positions.at[store.table].get(mode="fill", fill_value=-1)
    index = jnp.arange(width * store.slots)[None, None]
    # `used` as well as -1, because a fork that was cropped leaves a shared block as it is
    return jnp.where(index < store.used[..., None], positions.reshape(rows, kv_heads, -1), -1)


def gather(store: BlockStore) -> Entries:
    """Every head's slots in order and decoded, [B, H, M * S]; positions -1 where one is empty.

    For reading, not for the hot path.
    """
    rows, kv_heads, width = store.table.shape
    k, v = decode_blocks(store.keys, store.values)
    shape = (rows, kv_heads, width * store.slots)
    positions = gather_positions(store)
    held = (positions >= 0)[..., None]
    k = k.at[store.table].get(mode="fill", fill_value=0).reshape(*shape, store.head_dim)
    v = v.at[store.table].get(mode="fill", fill_value=0).reshape(*shape, store.head_dim)
    return Entries(jnp.where(held, k, 0), jnp.where(held, v, 0), positions)


def append(
    store: BlockStore,
    k: Float[Array, "B H T D"],
    v: Float[Array, "B H T D"],
    positions: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
) -> BlockStore:
    """Add tokens behind each head's last one, taking free blocks as needed; invalid (padding) tokens are skipped.

    If the free blocks or a table do not suffice, `overflow` is set and nothing is written, in any row.
    """
    tokens = k.shape[2]
    more = jnp.sum(valid, axis=-1, dtype=jnp.int32)[:, None]
    if store.shared:
        store, owned = _own_last_block(store, jnp.broadcast_to(more > 0, store.used.shape))
        more, valid = jnp.where(owned, more, 0), valid & owned  # never into a block that others read
    store, fits = _allocate(store, jnp.broadcast_to(more, store.used.shape), tokens)

    nth = jnp.cumsum(valid, axis=-1, dtype=jnp.int32) - 1
    index = store.used[..., None] + nth[:, None]  # [B, H, T]
    block = jnp.take_along_axis(
        store.table, jnp.minimum(index // store.slots, store.table.shape[-1] - 1), axis=-1, mode="clip"
    )
    block = jnp.where(valid[:, None] & fits, block, store.blocks).reshape(-1)
    slot = (index % store.slots).reshape(-1)
    flat = (-1, store.head_dim)
    keys, values = write_tokens(store.codec, store.keys, store.values, k.reshape(flat), v.reshape(flat), block, slot)
    where = jnp.broadcast_to(positions[:, None], index.shape).reshape(-1)
    return dataclasses.replace(
        store,
        keys=keys,
        values=values,
        positions=store.positions.at[block, slot].set(where, mode="drop"),
        used=jnp.where(fits, store.used + more, store.used),
        overflow=store.overflow | ~fits,
    )


def _free_blocks(store: BlockStore, count: int) -> Int[Array, " count"]:
    """The first `count` free blocks; P where there are no more."""
    free = jnp.cumsum(store.references == 0, dtype=jnp.int32)
    wanted = jnp.arange(1, count + 1, dtype=jnp.int32)
    return jnp.searchsorted(free, wanted, method="compare_all").astype(jnp.int32)  # the default is a slow loop


def _take(store: BlockStore, wanted: Bool[Array, "*n"]) -> tuple[Int[Array, "*n"], Bool[Array, ""]]:
    """A free block for each True of `wanted` (P elsewhere), and whether there were enough."""
    number = jnp.cumsum(wanted.reshape(-1), dtype=jnp.int32)
    ids = _free_blocks(store, wanted.size)[number - 1]
    ids = jnp.where(wanted.reshape(-1), ids, store.blocks).reshape(wanted.shape)
    return ids, jnp.all(jnp.where(wanted, ids < store.blocks, True))


def _allocate(store: BlockStore, more: Int[Array, "B H"], most: int) -> tuple[BlockStore, Bool[Array, ""]]:
    """Give each head the blocks that `more` <= `most` further tokens need. All or nothing."""
    rows, kv_heads, width = store.table.shape
    have = -(-store.used // store.slots)
    need = -(-(store.used + more) // store.slots)
    column = have[..., None] + jnp.arange(-(-most // store.slots))[None, None]
    wanted = column < need[..., None]
    ids, enough = _take(store, wanted)
    fits = enough & (jnp.max(need) <= width)
    ids = jnp.where(fits, ids, store.blocks)
    row = jnp.arange(rows)[:, None, None]
    head = jnp.arange(kv_heads)[None, :, None]
    owner = jnp.broadcast_to(row * kv_heads + head, ids.shape).astype(jnp.int32)
    before = jnp.take_along_axis(store.table, jnp.maximum(have - 1, 0)[..., None], axis=-1, mode="clip")
    before = jnp.broadcast_to(jnp.where(have[..., None] > 0, before, store.blocks), ids.shape)

    def inherit(payload: Payload, token_axis: int) -> Payload:
        """A scale that a block's tokens share goes over from the head's block before; one where there is none."""
        if payload.scale is None or payload.scale.shape[token_axis] > 1:
            return payload
        scale = payload.scale.at[before].get(mode="fill", fill_value=1.0)
        return dataclasses.replace(payload, scale=payload.scale.at[ids].set(scale, mode="drop"))

    return dataclasses.replace(
        store,
        keys=inherit(store.keys, -1),
        values=inherit(store.values, -2),
        table=store.table.at[row, head, jnp.where(wanted, column, width)].set(ids, mode="drop"),
        references=store.references.at[ids].set(1, mode="drop"),
        owner=store.owner.at[ids].set(owner, mode="drop"),
    ), fits


def clear_free_blocks(store: BlockStore) -> BlockStore:
    """Make free blocks hold no token and zero values; due whenever reference counts may have fallen to zero."""
    free = store.references == 0
    codes = jnp.where(free[:, None, None], jnp.zeros((), store.values.codes.dtype), store.values.codes)
    return dataclasses.replace(
        store,
        values=dataclasses.replace(store.values, codes=codes),
        positions=jnp.where(free[:, None], -1, store.positions),
    )


def _own_last_block(store: BlockStore, heads: Bool[Array, "B H"]) -> tuple[BlockStore, Bool[Array, ""]]:
    """Copy on write: give `heads` their own copy of a partly filled last block that others name too.

    All or nothing; without enough free blocks `overflow` is set, and False returned beside the store.
    """
    have = -(-store.used // store.slots)
    column = jnp.maximum(have - 1, 0)[..., None]
    last = jnp.take_along_axis(store.table, column, axis=-1, mode="clip")[..., 0]
    shared = store.references.at[last].get(mode="fill", fill_value=0) > 1
    wanted = heads & shared & (store.used % store.slots > 0)
    ids, enough = _take(store, wanted)
    ids = jnp.where(enough, ids, store.blocks)
    moved = wanted & enough

    def copy(leaf: Array) -> Array:
        return leaf.at[ids].set(leaf.at[last].get(mode="clip"), mode="drop")

    rows, kv_heads, width = store.table.shape
    row, head = jnp.arange(rows)[:, None], jnp.arange(kv_heads)[None]
    own = jnp.arange(store.slots)[None, None] < (store.used % store.slots)[..., None]  # what was cropped stays behind
    kept = jnp.where(own, store.positions.at[last].get(mode="clip"), -1)
    left = jnp.where(moved, last, store.blocks)
    own_copy = dataclasses.replace(
        store,
        keys=jax.tree.map(copy, store.keys),
        values=jax.tree.map(copy, store.values),
        positions=store.positions.at[ids].set(kept, mode="drop"),
        owner=store.owner.at[ids].set((row * kv_heads + head).astype(jnp.int32), mode="drop"),
        table=store.table.at[row, head, jnp.where(moved, column[..., 0], width)].set(ids, mode="drop"),
        references=store.references.at[left].add(-1, mode="drop").at[ids].set(1, mode="drop"),
        overflow=store.overflow | ~enough,
    )
    return clear_free_blocks(own_copy), enough
