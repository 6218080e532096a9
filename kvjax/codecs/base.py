"""What a codec is: one format for keys, one for values, and how a layer's blocks are coded with them.

A new format is a frozen dataclass with the three methods of `Format`; a new codec is a frozen dataclass with `keys`
and `values`. Nothing needs to be registered to be used from Python; a name in a spec string needs a line in
`kvjax.codecs.CODECS`.
"""

from typing import ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kvjax.codecs.payload import Payload, decode

KEY_TOKENS, VALUE_TOKENS = -1, -2  # the token axis of keys held [D, S] and of values held [S, D]


@runtime_checkable
class Format(Protocol):
    """How matrices of one kind (keys or values) are coded. Frozen, hashable, without state.

    Matrices are [R, C]; `token_axis` tells which of the two runs over tokens.
    """

    def init(self, blocks: int, rows: int, columns: int, token_axis: int) -> Payload:
        """An empty payload of `blocks` blocks: zeros under scales of one."""
        ...

    def encode(self, x: Float[Array, "H N R C"], valid: Bool[Array, "H N S"], token_axis: int) -> Payload:
        """Code all blocks of one sequence in one layer, N blocks a head, [H, N, ...] in every leaf.

        What stands in slots where `valid` is False must not influence the others.
        """
        ...

    def encode_tokens(self, x: Float[Array, "N R C"], scale: Float[Array, "N r c"] | None, token_axis: int) -> Payload:
        """Code single tokens (size 1 along `token_axis`) that join blocks which already hold others.

        `scale` is the blocks' scale where tokens share it; a format with a scale per token makes its own.
        """
        ...


@runtime_checkable
class Codec(Protocol):
    """A format for keys and one for values; `name` is the codec's name in spec strings."""

    name: ClassVar[str]

    @property
    def keys(self) -> Format:
        """Format of keys."""
        ...

    @property
    def values(self) -> Format:
        """Format of values."""
        ...


def init_blocks(codec: Codec, blocks: int, slots: int, head_dim: int) -> tuple[Payload, Payload]:
    """Empty key and value payloads of a pool of `blocks` blocks of `slots` tokens."""
    return (
        codec.keys.init(blocks, head_dim, slots, KEY_TOKENS),
        codec.values.init(blocks, slots, head_dim, VALUE_TOKENS),
    )


def encode_blocks(
    codec: Codec, k: Float[Array, "B H N S D"], v: Float[Array, "B H N S D"], valid: Bool[Array, "B H N S"]
) -> tuple[Payload, Payload]:
    """Code whole blocks, sequence by sequence: no sequence influences another's codes or scales."""
    keys = jax.vmap(lambda x, ok: codec.keys.encode(x, ok, KEY_TOKENS))(jnp.swapaxes(k, -1, -2), valid)
    values = jax.vmap(lambda x, ok: codec.values.encode(x, ok, VALUE_TOKENS))(v, valid)
    return keys, values


def decode_blocks(keys: Payload, values: Payload) -> tuple[Float[Array, "*N S D"], Float[Array, "*N S D"]]:
    """Keys and values of coded blocks in float32, both slot-major."""
    return jnp.swapaxes(decode(keys), -1, -2), decode(values)


def write_tokens(
    codec: Codec,
    keys: Payload,
    values: Payload,
    k: Float[Array, "N D"],
    v: Float[Array, "N D"],
    block: Int[Array, " N"],
    slot: Int[Array, " N"],
) -> tuple[Payload, Payload]:
    """Write N tokens into slots of blocks that already have their scales; an index beyond the pool writes nothing."""

    def put(held: Array, new: Array, token_axis: int) -> Array:
        if token_axis == KEY_TOKENS:
            return held.at[block, :, slot].set(new[:, :, 0], mode="drop")
        return held.at[block, slot, :].set(new[:, 0, :], mode="drop")

    def write(fmt: Format, held: Payload, x: Float[Array, "N R C"], token_axis: int) -> Payload:
        if held.scale is None:
            return Payload(put(held.codes, fmt.encode_tokens(x, None, token_axis).codes, token_axis), None)
        if held.scale.shape[token_axis] == 1:  # tokens of a block share it
            scale = held.scale.at[block].get(mode="fill", fill_value=1.0)
            return Payload(put(held.codes, fmt.encode_tokens(x, scale, token_axis).codes, token_axis), held.scale)
        new = fmt.encode_tokens(x, None, token_axis)
        return jax.tree.map(lambda old, leaf: put(old, leaf, token_axis), held, new)

    return write(codec.keys, keys, k[:, :, None], KEY_TOKENS), write(codec.values, values, v[:, None, :], VALUE_TOKENS)
