"""Plain floating-point storage: the uncompressed cache in float32, bfloat16 or float16."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kvjax.codecs.base import Format
from kvjax.codecs.payload import Payload


@dataclass(frozen=True)
class Plain:
    """Values rounded to a wide floating type, no scales. float16 saturates at its largest value instead of inf."""

    dtype: str

    def init(self, blocks: int, rows: int, columns: int, token_axis: int) -> Payload:
        """Zeros."""
        return Payload(jnp.zeros((blocks, rows, columns), self.dtype), None)

    def encode(self, x: Float[Array, "H N R C"], valid: Bool[Array, "H N S"], token_axis: int) -> Payload:
        """Round; each value by itself."""
        return Payload(_round(x, self.dtype), None)

    def encode_tokens(self, x: Float[Array, "N R C"], scale: Float[Array, "N r c"] | None, token_axis: int) -> Payload:
        """Round; each value by itself."""
        return Payload(_round(x, self.dtype), None)


def _round(x: Float[Array, "*N"], dtype: str) -> Array:
    limit = float(jnp.finfo(dtype).max)
    return jnp.clip(x, -limit, limit).astype(dtype) if dtype == "float16" else x.astype(dtype)


class _PlainCodec:
    """Keys and values alike in one plain format."""

    dtype: ClassVar[str]

    @property
    def keys(self) -> Format:
        """Format of keys."""
        return Plain(self.dtype)

    @property
    def values(self) -> Format:
        """Format of values."""
        return Plain(self.dtype)


@dataclass(frozen=True)
class Dense(_PlainCodec):
    """The uncompressed cache, held as it was computed: float32, 8 x head_dim bytes a token and head."""

    name: ClassVar[str] = "dense"
    dtype: ClassVar[str] = "float32"


@dataclass(frozen=True)
class BF16(_PlainCodec):
    """Keys and values in bfloat16, 4 x head_dim bytes a token and head: what all ratios are measured against."""

    name: ClassVar[str] = "bf16"
    dtype: ClassVar[str] = "bfloat16"


@dataclass(frozen=True)
class FP16(_PlainCodec):
    """Keys and values in float16, saturating at +-65504; 4 x head_dim bytes a token and head."""

    name: ClassVar[str] = "fp16"
    dtype: ClassVar[str] = "float16"
