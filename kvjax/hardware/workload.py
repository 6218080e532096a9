"""What a model asks of a device: sizes per layer in plain numbers, no weights and no cache arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvjax.hardware.errors import check_whole

COMPUTE_FORMATS = {"bf16": 2, "fp8": 2, "fp32": 4}
"""Number formats that matrix units compute in -> bytes of an activation between layers (BF16 under FP8)."""


@dataclass(frozen=True)
class KVFormat:
    """How one layer's cache holds its tokens, averaged over heads and tokens.

    Attributes:
        payload_bytes: codes of one token's key and value, of one KV head.
        metadata_bytes: scales, positions, indices, tables for the same.
        kept_prompt: fraction of the prompt's tokens that the cache keeps.
        kept_generated: fraction of the generated tokens that it keeps.
        read_fraction: fraction of the kept tokens that one decode step reads (1: all; less: query-time selection).
        block_tokens: slots are allocated in blocks of this many tokens, per head.
    """

    payload_bytes: int | float
    metadata_bytes: int | float = 0.0
    kept_prompt: int | float = 1.0
    kept_generated: int | float = 1.0
    read_fraction: int | float = 1.0
    block_tokens: int = 1

    def __post_init__(self) -> None:
        """Refuses sizes that cannot be.

        Raises:
            ValueError: naming the field, what was given and what is allowed.
        """
        if not 0 < self.payload_bytes < float("inf"):
            raise ValueError(f"payload_bytes must be greater than 0, got {self.payload_bytes!r}")
        if not 0 <= self.metadata_bytes < float("inf"):
            raise ValueError(f"metadata_bytes must be 0 or more, got {self.metadata_bytes!r}")
        for name in ("kept_prompt", "kept_generated", "read_fraction"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in (0, 1], got {getattr(self, name)!r}")
        check_whole("block_tokens", self.block_tokens)

    @property
    def entry_bytes(self) -> float:
        """Bytes of one kept token of one KV head."""
        return float(self.payload_bytes + self.metadata_bytes)


def dense_kv(key_dim: int, value_dim: int | None = None) -> KVFormat:
    """The uncompressed BF16 cache, key and value both.

    >>> dense_kv(128).entry_bytes
    512.0
    """
    return KVFormat(payload_bytes=2.0 * (key_dim + (key_dim if value_dim is None else value_dim)))


@dataclass(frozen=True)
class LayerLoad:
    """One layer.

    Attributes:
        weight_bytes: resident, and read in every step.
        linear_flops: of its matrix products, per token.
        query_heads: Hq.
        kv_heads: H, what the cache stores.
        key_dim: width of one key.
        value_dim: width of one value.
        window: tokens that attention sees and the cache holds; None for all.
        kv: how its cache is held.
    """

    weight_bytes: float
    linear_flops: float
    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None
    kv: KVFormat

    @property
    def stored_bytes_per_token(self) -> float:
        """Bytes that one token of the prompt adds to the cache: all KV heads, key and value, after eviction."""
        return self.kv_heads * self.kv.entry_bytes * self.kv.kept_prompt

    @property
    def allocated_bytes_per_block(self) -> float:
        """Bytes that are taken when every head of the layer needs one more block."""
        return self.kv_heads * self.kv.entry_bytes * self.kv.block_tokens

    @property
    def moved_bytes_per_token(self) -> float:
        """Bytes that one decode step reads for one token of the prompt."""
        return self.stored_bytes_per_token * self.kv.read_fraction


@dataclass(frozen=True)
class Workload:
    """A model with its cache format, as sizes.

    Attributes:
        name: for messages.
        layers: one entry a layer.
        hidden_size: E, what devices exchange per token.
        embedding_bytes: resident but not streamed (a step reads a few rows): 0 when tied to the unembedding.
        unembedding_bytes: resident and read in every step.
        unembedding_flops: per token whose logits are wanted.
        compute: number format of the matrix products, a key of `COMPUTE_FORMATS`.
    """

    name: str
    layers: tuple[LayerLoad, ...]
    hidden_size: int
    embedding_bytes: float
    unembedding_bytes: float
    unembedding_flops: float
    compute: str

    @property
    def weight_bytes(self) -> float:
        """All resident weights."""
        return sum(layer.weight_bytes for layer in self.layers) + self.embedding_bytes + self.unembedding_bytes

    @property
    def stored_bytes_per_token(self) -> float:
        """KV bytes that one prompt token adds, over all layers (inside the window of those that have one)."""
        return sum(layer.stored_bytes_per_token for layer in self.layers)

    @property
    def allocated_bytes_per_block(self) -> float:
        """KV bytes of one more block in every head of every layer."""
        return sum(layer.allocated_bytes_per_block for layer in self.layers)

    @property
    def moved_bytes_per_token(self) -> float:
        """KV bytes that one decode step reads for each prompt token, over all layers."""
        return sum(layer.moved_bytes_per_token for layer in self.layers)


def workload_from_dims(
    *,
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    intermediate_size: int,
    vocab_size: int,
    gated_mlp: bool = True,
    tie_embeddings: bool = False,
    windows: Sequence[int | None] | None = None,
    kv: KVFormat | Sequence[KVFormat] | None = None,
    weight_bits: int | float = 16.0,
    compute: str = "bf16",
    name: str = "model",
) -> Workload:
    """Sizes of a dense decoder-only transformer from its dimensions. Biases are left out (below 0.1 % of the weights).

    >>> llama_2_70b = workload_from_dims(num_layers=80, hidden_size=8192, num_heads=64, num_kv_heads=8, head_dim=128,
    ...                                  intermediate_size=28672, vocab_size=32000)
    >>> llama_2_70b.stored_bytes_per_token, llama_2_70b.weight_bytes / 2
    (327680.0, 68976648192.0)

    Args:
        num_layers: L.
        hidden_size: E.
        num_heads: query heads, Hq.
        num_kv_heads: KV heads, H: their number, not the size of a group.
        head_dim: D, never derived from hidden_size / num_heads, because models choose it freely.
        intermediate_size: width inside the MLP.
        vocab_size: V.
        gated_mlp: three matrices (SwiGLU, GeGLU) or two.
        tie_embeddings: one matrix for embedding and unembedding.
        windows: tokens that each layer sees (None for all), one entry a layer; None when no layer has a window.
        kv: how the cache is held, for all layers or one a layer; None for dense BF16.
        weight_bits: average bits of one weight as resident, scales included.
        compute: number format of the matrix products.
        name: for messages.

    Raises:
        ValueError: a size below 1, heads not divisible by KV heads, a list of the wrong length, an unknown format.
    """
    sizes = {
        "num_layers": num_layers,
        "hidden_size": hidden_size,
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "intermediate_size": intermediate_size,
        "vocab_size": vocab_size,
    }
    for label, size in sizes.items():
        check_whole(label, size)
    if num_heads % num_kv_heads:
        raise ValueError(f"num_heads must be a multiple of num_kv_heads, got {num_heads} and {num_kv_heads}")
    if not 0 < weight_bits <= 64:
        raise ValueError(f"weight_bits must be in (0, 64], got {weight_bits!r}")
    if compute not in COMPUTE_FORMATS:
        raise ValueError(f"compute must be one of {', '.join(COMPUTE_FORMATS)}, got {compute!r}")
    windows = [None] * num_layers if windows is None else list(windows)
    kvs = [kv or dense_kv(head_dim)] * num_layers if kv is None or isinstance(kv, KVFormat) else list(kv)
    for label, values in (("windows", windows), ("kv", kvs)):
        if len(values) != num_layers:
            raise ValueError(f"{label} must have one entry for each of {num_layers} layers, got {len(values)}")
    for window in windows:
        if window is not None:
            check_whole("window", window)

    attention = hidden_size * head_dim * 2 * (num_heads + num_kv_heads)  # q and o, k and v
    mlp = hidden_size * intermediate_size * (3 if gated_mlp else 2)
    linear, norms, table = attention + mlp, 2 * hidden_size, vocab_size * hidden_size
    weight_bytes = weight_bits / 8
    layers = tuple(
        LayerLoad(
            weight_bytes=(linear + norms) * weight_bytes,
            linear_flops=2.0 * linear,
            query_heads=num_heads,
            kv_heads=num_kv_heads,
            key_dim=head_dim,
            value_dim=head_dim,
            window=window,
            kv=held,
        )
        for window, held in zip(windows, kvs, strict=True)
    )
    return Workload(
        name=name,
        layers=layers,
        hidden_size=hidden_size,
        embedding_bytes=0.0 if tie_embeddings else table * weight_bytes,
        unembedding_bytes=(table + hidden_size) * weight_bytes,  # with the last norm
        unembedding_flops=2.0 * table,
        compute=compute,
    )
