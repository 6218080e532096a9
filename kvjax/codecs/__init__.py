"""Resident formats, one layer at a time, that attention reads without widening the whole cache."""

from kvjax.codecs.base import Codec, Format, decode_blocks, encode_blocks, init_blocks, write_tokens
from kvjax.codecs.floats import BF16, FP16, Dense, Plain
from kvjax.codecs.fp8 import FP8, K16V8, Float8
from kvjax.codecs.payload import Payload, decode, weighted_rows

CODECS: dict[str, type] = {codec.name: codec for codec in (Dense, BF16, FP16, FP8, K16V8)}
"""Codecs by their name in spec strings."""

__all__ = [
    "BF16",
    "CODECS",
    "FP8",
    "FP16",
    "K16V8",
    "Codec",
    "Dense",
    "Float8",
    "Format",
    "Payload",
    "Plain",
    "decode",
    "decode_blocks",
    "encode_blocks",
    "init_blocks",
    "weighted_rows",
    "write_tokens",
]  # fmt: skip
