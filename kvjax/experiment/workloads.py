"""What a compressor asks of a device: from the cache's own layout to the sizes that `kvjax.hardware` reads.

No weights and no cache are made: shapes are enough (`jax.eval_shape`).
"""

import functools
import math

import jax
from jaxtyping import Array

from kvjax.budgets import LayerPlace
from kvjax.cache import blocks
from kvjax.cache.compress import EXACT_CODEC, bytes_per_token, holds_exact, plan_layer
from kvjax.codecs import Codec
from kvjax.compressor import Compressor
from kvjax.hardware import KVFormat, Workload, workload_from_dims
from kvjax.models import ModelConfig
from kvjax.types import Bytes


def workload(config: ModelConfig, compressor: Compressor, input_tokens: int, name: str) -> Workload:
    """Sizes of a model in BF16 whose cache is held by a compressor after a prompt of `input_tokens` tokens.

    Raises:
        ValueError: the prompt is too short for the compressor's score or budget.
    """
    compressor.check(input_tokens)
    if compressor.budget is not None:
        compressor.budget.check(input_tokens)
    return workload_from_dims(
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        intermediate_size=config.intermediate_size,
        vocab_size=config.vocab_size,
        gated_mlp=config.architecture != "gpt",
        tie_embeddings=config.tie_embeddings,
        windows=[layer.window for layer in config.layers],
        kv=kv_formats(config, compressor, input_tokens),
        name=name,
    )


def kv_formats(config: ModelConfig, compressor: Compressor, input_tokens: int) -> list[KVFormat]:
    """How each layer of a compressor's cache holds a prompt of `input_tokens` tokens.

    Where sinks and recent tokens are held apart, bytes are the mean over the tokens that a head keeps.
    """
    heads, head_dim, block = config.num_kv_heads, config.head_dim, compressor.block
    coded, exact = (entry_bytes(codec, head_dim, block) for codec in (compressor.codec, EXACT_CODEC))
    size = bytes_per_token(compressor.codec, heads, head_dim, block)
    formats = []
    for index, layer in enumerate(config.layers):
        place = LayerPlace(index, config.num_layers, heads, size)
        _, totals = plan_layer(compressor, [input_tokens], place, window=layer.window, max_new_tokens=0)
        seen = input_tokens if layer.window is None else min(input_tokens, layer.window - 1)
        kept = int(totals[0]) / heads
        apart = min(kept, compressor.sinks + compressor.recent) / kept if holds_exact(compressor) else 0.0
        formats.append(
            KVFormat(
                payload_bytes=apart * exact[0] + (1 - apart) * coded[0],
                metadata_bytes=apart * exact[1] + (1 - apart) * coded[1],
                kept_prompt=kept / seen,
                block_tokens=block,
            )
        )
    return formats


def entry_bytes(codec: Codec, head_dim: int, slots: int) -> tuple[float, float]:
    """Payload and metadata bytes of one token of one KV head in a full block, tables included.

    >>> from kvjax.codecs import BF16
    >>> entry_bytes(BF16(), 64, 64)[0]
    256.0
    """
    held = full_block(codec, head_dim, slots)
    return held.payload / slots, held.metadata / slots


def full_block(codec: Codec, head_dim: int, slots: int) -> Bytes:
    """Bytes that one more full block takes, its entries in the tables included."""

    def arrays(count: int) -> tuple[list[Array], list[Array]]:
        """Codes, and all arrays, of a store of `count` blocks (lists: a store of bare shapes could not be built)."""
        sizes = {"rows": 1, "kv_heads": 1, "head_dim": head_dim, "slots": slots}
        store = blocks.init(codec, **sizes, blocks=count, table_width=count)
        return [store.keys.codes, store.values.codes], jax.tree.leaves(store)

    (payload, one), (_, two) = (map(_nbytes, jax.eval_shape(functools.partial(arrays, count))) for count in (1, 2))
    return Bytes(payload, two - one - payload)


def _nbytes(shapes: list[jax.ShapeDtypeStruct]) -> int:
    return sum(math.prod(shape.shape) * shape.dtype.itemsize for shape in shapes)
