"""Decoder-only transformers as pure functions over a params pytree, and the loaders that fill it.

A layer is handed its attention as a function, so nothing here knows a cache. `config` says what a model is,
`transformer` what it computes, `params` what its weights are, `loading` where they come from.
"""

from kvjax.models.architectures import architecture_names, load_config
from kvjax.models.config import FrequencyFactors, LayerConfig, LinearScaling, Llama3Scaling, ModelConfig, RopeConfig
from kvjax.models.hf_config import config_from_hf
from kvjax.models.loading import Model, load_model
from kvjax.models.params import Params, parameter_count
from kvjax.models.rope import Rope, rope_tables
from kvjax.models.transformer import dense_attention, embed, layer, logits, unembed

__all__ = [
    "FrequencyFactors",
    "LayerConfig",
    "LinearScaling",
    "Llama3Scaling",
    "Model",
    "ModelConfig",
    "Params",
    "Rope",
    "RopeConfig",
    "architecture_names",
    "config_from_hf",
    "dense_attention",
    "embed",
    "layer",
    "load_config",
    "load_model",
    "logits",
    "parameter_count",
    "rope_tables",
    "unembed",
]
