"""What a decoder-only transformer is, without its weights: sizes, layer kinds, RoPE, norms.

Frozen and hashable, so a config can be a static argument of a jitted function. `hf_config.py` fills one from the fields
of a config.json, `architectures` holds the shipped ones.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class LinearScaling:
    """All RoPE frequencies divided by `factor` (position interpolation, Chen et al. 2023)."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1: long wavelengths divided by `factor`, short ones kept, smooth in between.

    Long and short are counted against the context of pretraining: wavelengths above `original_context /
    low_freq_factor` and below `original_context / high_freq_factor`.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True)
class FrequencyFactors:
    """Each RoPE frequency divided by its own factor ([D/2]): how GGUF files store Llama 3.1's scaling."""

    factors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | FrequencyFactors


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding: base frequency and an optional scaling of the frequencies."""

    theta: float
    scaling: RopeScaling | None = None


@dataclass(frozen=True)
class LayerConfig:
    """What may differ between the layers of one model.

    `window`: a query sees itself and the `window - 1` tokens before it; None sees all.
    """

    rope: RopeConfig
    window: int | None = None


@dataclass(frozen=True)
class ModelConfig:
    """The architecture of a model. Sizes in elements; the comments say where models differ.

    Raises:
        ValueError: the sizes contradict each other.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_context: int
    norm_eps: float
    layers: tuple[LayerConfig, ...] = field(repr=False)
    query_scale: float  # logits = query_scale * q.k
    tie_embeddings: bool = False  # unembedding = transposed embedding
    activation: str = "silu"  # of the gated MLP: "silu" | "gelu_tanh"
    embed_scale: float = 1.0  # Gemma multiplies embeddings by sqrt(hidden_size)
    norm_offset: float = 0.0  # Gemma files hold w of a norm (1 + w); added once, when weights are loaded
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False  # RMS norm of each query and key head before RoPE
    post_norms: bool = False  # Gemma also norms what attention and MLP add to the residual stream

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"{self.num_heads} query heads cannot be shared among {self.num_kv_heads} KV heads.")
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; RoPE rotates pairs, so it must be even.")

    @property
    def num_layers(self) -> int:
        """Number of layers, L."""
        return len(self.layers)

    @property
    def group_size(self) -> int:
        """Query heads that share one KV head, G."""
        return self.num_heads // self.num_kv_heads
