"""The words that every room uses: dimensions, and the few records that travel between rooms.

Dimension letters in shapes, everywhere in kvjax:

=====  ==========================================================
B      sequences in a batch (rows)
L      layers
Hq, H  query heads, KV heads; ``G = Hq / H`` query heads share a KV head
T      tokens;  ``K`` tokens kept
D      head_dim
E      hidden size
P, S   blocks in a pool, slots in a block
M      entries of a block table (blocks that one head may own)
V      vocabulary
=====  ==========================================================
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
from jaxtyping import Array, Bool, Float, Int

C = TypeVar("C", bound=type)


def pytree(cls: C) -> C:
    """Make a frozen dataclass a pytree; fields with `metadata={"static": True}` belong to its structure.

    Rebuilding it from leaves does not run `__init__`, because JAX also rebuilds with shapes, axes or None as leaves.
    """
    fields = dataclasses.fields(cls)
    static = tuple(field.name for field in fields if field.metadata.get("static"))
    dynamic = tuple(field.name for field in fields if not field.metadata.get("static"))

    keys = tuple(jax.tree_util.GetAttrKey(name) for name in dynamic)

    def flatten(x: Any) -> tuple[list[Any], tuple[Any, ...]]:  # runs at every call of a jitted function: kept lean
        held = x.__dict__
        return [held[name] for name in dynamic], tuple([held[name] for name in static])

    def flatten_with_keys(x: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        leaves, values = flatten(x)
        return list(zip(keys, leaves, strict=True)), values

    def unflatten(values: tuple[Any, ...], leaves: Iterable[Any]) -> Any:
        x: Any = object.__new__(cls)
        x.__dict__.update(zip(dynamic, leaves, strict=True))
        x.__dict__.update(zip(static, values, strict=True))
        return x

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


class Bytes(NamedTuple):
    """Bytes that are held: `payload` codes the keys and values; `metadata` is all that is needed to read them.

    Metadata are scales, positions, block tables, lengths, reference counts. Padding inside a partly filled block
    counts with what it pads.
    """

    payload: int
    metadata: int

    @property
    def total(self) -> int:
        """Payload and metadata together."""
        return self.payload + self.metadata

    def plus(self, other: "Bytes") -> "Bytes":
        """Sum part by part (`+` on a NamedTuple would concatenate)."""
        return Bytes(self.payload + other.payload, self.metadata + other.metadata)


def dense_bytes(tokens: int, num_layers: int, num_kv_heads: int, head_dim: int) -> int:
    """Bytes of a BF16 cache of `tokens` tokens: the denominator of every ratio in kvjax.

    >>> dense_bytes(tokens=1, num_layers=30, num_kv_heads=3, head_dim=64)
    23040
    """
    return tokens * num_layers * num_kv_heads * head_dim * 2 * 2


@pytree
@dataclass(frozen=True)
class Entries:
    """Cached tokens of one layer in plain form, ragged over heads: a slot holds a token iff its position is not -1."""

    k: Float[Array, "*B H T D"]
    v: Float[Array, "*B H T D"]
    positions: Int[Array, "*B H T"]


@pytree
@dataclass(frozen=True)
class Observation:
    """What a score may look at: one layer of one sequence, just after its attention ran.

    `q` holds the queries of the last `Tq <= T` tokens. Keys and queries are as attention used them (after norms and
    RoPE). `valid` is False for padding, which may stand anywhere but behind the last token. What a score does not
    read costs nothing: XLA removes it.
    """

    q: Float[Array, "Hq Tq D"]
    k: Float[Array, "H T D"]
    v: Float[Array, "H T D"]
    positions: Int[Array, " T"]
    valid: Bool[Array, " T"]
    layer: Int[Array, ""]  # its index
    scale: Float[Array, ""]  # what logits q.k are multiplied by


class AttentionOutput(NamedTuple):
    """Attention over some of a sequence's tokens; partial outputs merge exactly through `lse`.

    `lse` is the log of the sum of exp(logits); -inf with an output of zeros where no token was visible.
    """

    out: Float[Array, "B Hq T D"]
    lse: Float[Array, "B Hq T"]
