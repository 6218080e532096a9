"""8-bit floats (OCP FP8): E4M3 and E5M2 under a scale per tensor, head or token, or none.

Casts to FP8 do not saturate by themselves (E4M3 gives NaN above 464, E5M2 infinity above 61,439), so values are
clipped first: infinity is held as the largest finite value, NaN stays NaN. A scale is amax / largest finite value, in
float32. Where tokens share a scale, tokens that join later saturate at the range of those that set it; a head that
starts empty has scale one.

Source: Micikevicius et al., "FP8 Formats for Deep Learning", arXiv 2209.05433; the OCP 8-bit floating point
specification for the saturating conversion.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kvjax.codecs.base import Format
from kvjax.codecs.floats import Plain
from kvjax.codecs.payload import Payload

Variant = Literal["e4m3", "e5m2"]
ScalePer = Literal["none", "tensor", "head", "token"]

DTYPES = {"e4m3": jnp.float8_e4m3fn, "e5m2": jnp.float8_e5m2}
SCALES = ("none", "tensor", "head", "token")
# A scale must divide without overflow: below this magnitude a group's values are all coded as zero.
SMALLEST_SCALE = float(jnp.finfo(jnp.float32).tiny)


@dataclass(frozen=True)
class Float8:
    """FP8 codes under float32 scales.

    Args:
        variant: "e4m3" (largest 448, 3 mantissa bits) or "e5m2" (largest 57,344, 2 mantissa bits).
        scale: what shares a scale: "tensor" (a sequence's layer), "head", "token" (one token of one head), or "none".
    """

    variant: Variant = "e4m3"
    scale: ScalePer = "head"

    def __post_init__(self) -> None:
        if self.variant not in DTYPES:
            raise ValueError(f"fp8 variant {self.variant!r} is unknown; allowed: {', '.join(DTYPES)}")
        if self.scale not in SCALES:
            raise ValueError(f"fp8 scale {self.scale!r} is unknown; allowed: {', '.join(SCALES)}")

    def init(self, blocks: int, rows: int, columns: int, token_axis: int) -> Payload:
        """Zeros under scales of one."""
        codes = jnp.zeros((blocks, rows, columns), DTYPES[self.variant])
        if self.scale == "none":
            return Payload(codes, None)
        shape = [blocks, 1, 1]
        if self.scale == "token":
            shape[token_axis] = codes.shape[token_axis]
        return Payload(codes, jnp.ones(shape, jnp.float32))

    def encode(self, x: Float[Array, "H N R C"], valid: Bool[Array, "H N S"], token_axis: int) -> Payload:
        """Scale by the largest magnitude among valid tokens of each group, clip, cast."""
        if self.scale == "none":
            return Payload(_cast(x, self.variant), None)
        magnitude = jnp.where(jnp.expand_dims(valid, -3 - token_axis), jnp.abs(x), 0.0)
        axes = {"token": (-3 - token_axis,), "head": (-3, -2, -1), "tensor": (-4, -3, -2, -1)}[self.scale]
        amax = jnp.max(magnitude, axis=axes, keepdims=True)
        shape = amax.shape if self.scale == "token" else (*x.shape[:2], 1, 1)
        return self._scaled(x, jnp.broadcast_to(self._scale_of(amax), shape))

    def encode_tokens(self, x: Float[Array, "N R C"], scale: Float[Array, "N r c"] | None, token_axis: int) -> Payload:
        """Code tokens under the scale of the block they join, or under their own."""
        if self.scale == "none":
            return Payload(_cast(x, self.variant), None)
        if self.scale == "token" or scale is None:
            scale = self._scale_of(jnp.max(jnp.abs(x), axis=(-2, -1), keepdims=True))
        return self._scaled(x, scale)

    def _scale_of(self, amax: Float[Array, "*n"]) -> Float[Array, "*n"]:
        scale = jnp.minimum(amax, float(jnp.finfo(jnp.float32).max)) / float(jnp.finfo(DTYPES[self.variant]).max)
        return jnp.where(scale < SMALLEST_SCALE, 1.0, scale)

    def _scaled(self, x: Float[Array, "*n R C"], scale: Float[Array, "*n r c"]) -> Payload:
        return Payload(_cast(x / jnp.broadcast_to(scale, x.shape), self.variant), scale)


def _cast(x: Float[Array, "*n"], variant: str) -> Array:
    limit = float(jnp.finfo(DTYPES[variant]).max)
    return jnp.clip(x, -limit, limit).astype(DTYPES[variant])


@dataclass(frozen=True)
class FP8:
    """Keys and values in FP8: 2 x head_dim bytes a token and head, half of BF16.

    Args:
        variant: "e4m3" (default) or "e5m2".
        scale: "tensor", "head" (default), "token" or "none".
    """

    name: ClassVar[str] = "fp8"
    variant: Variant = "e4m3"
    scale: ScalePer = "head"

    def __post_init__(self) -> None:
        Float8(self.variant, self.scale)

    @property
    def keys(self) -> Format:
        """FP8."""
        return Float8(self.variant, self.scale)

    @property
    def values(self) -> Format:
        """FP8."""
        return Float8(self.variant, self.scale)


@dataclass(frozen=True)
class K16V8:
    """The GP7000 document's mixed precision: float16 keys, FP8 values; 3 x head_dim bytes a token and head.

    Args:
        variant: FP8 variant of the values, "e4m3" (default) or "e5m2".
        scale: what shares a value scale: "tensor", "head" (default), "token" or "none".
    """

    name: ClassVar[str] = "k16v8"
    variant: Variant = "e4m3"
    scale: ScalePer = "head"

    def __post_init__(self) -> None:
        Float8(self.variant, self.scale)

    @property
    def keys(self) -> Format:
        """float16."""
        return Plain("float16")

    @property
    def values(self) -> Format:
        """FP8."""
        return Float8(self.variant, self.scale)
