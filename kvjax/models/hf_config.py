"""Hugging Face config.json -> ModelConfig, strictly: a field that may change the numbers is computed or is an error."""

from collections.abc import Callable, Mapping
from typing import Any

from kvjax.models.config import (
    FrequencyFactors,
    LayerConfig,
    LinearScaling,
    Llama3Scaling,
    ModelConfig,
    RopeConfig,
    RopeScaling,
)
from kvjax.models.fields import REQUIRED, FieldReader
from kvjax.suggest import did_you_mean


def config_from_hf(fields: Mapping[str, Any], where: str = "config.json") -> ModelConfig:
    """ModelConfig from the fields of a Hugging Face config.json (read from it: transformers 4.x and 5.x spellings).

    Absent fields take the defaults of transformers' config classes; sizes have none and must be there.

    Raises:
        ValueError: unknown model_type, missing, mistyped or contradictory field, or a field that is not known to be
            harmless (the message names it).
    """
    reader = FieldReader(fields, where)
    model_type = reader.get("model_type", str)
    if model_type not in _READERS:
        raise ValueError(f"{where}: model_type {model_type!r} is not supported; {did_you_mean(model_type, _READERS)}")
    config = _READERS[model_type](reader)
    reader.finish(HARMLESS)
    return config


# Fields without effect on the logits: provenance, token ids (the tokenizer's), training, generation, caching.
HARMLESS = frozenset(
    "_name_or_path architectures transformers_version torch_dtype dtype auto_map use_cache cache_implementation "
    "bos_token_id eos_token_id pad_token_id unk_token_id initializer_range attention_dropout hidden_dropout "
    "embd_pdrop attn_pdrop resid_pdrop pretraining_tp is_encoder_decoder is_decoder id2label label2id num_labels "
    "problem_type output_attentions output_hidden_states return_dict chunk_size_feed_forward "
    "add_cross_attention tie_encoder_decoder tokenizer_class transformers.js_config is_llama_config "
    "max_length do_sample temperature top_k top_p repetition_penalty".split()
)


def _llama(reader: FieldReader) -> ModelConfig:
    reader.only("rope_interleaved", False)
    bias = reader.flag("attention_bias", False)
    return _model(
        reader,
        "llama",
        num_kv_heads=reader.size("num_key_value_heads", reader.size("num_attention_heads")),
        layers=_uniform_layers(reader, window=None),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=reader.flag("mlp_bias", False),
    )


def _mistral(reader: FieldReader) -> ModelConfig:
    # Here null means "no window" and absence means transformers' default.
    default = None if "sliding_window" in reader.fields else 4096
    return _model(reader, "mistral", layers=_uniform_layers(reader, window=reader.size("sliding_window", default)))


def _qwen2(reader: FieldReader) -> ModelConfig:
    reader.only("use_mrope", False)
    return _model(reader, "qwen2", layers=_qwen_layers(reader), qkv_bias=True)


def _qwen3(reader: FieldReader) -> ModelConfig:
    bias = reader.flag("attention_bias", False)
    return _model(
        reader,
        "qwen3",
        head_dim=reader.size("head_dim"),
        layers=_qwen_layers(reader),
        qk_norm=True,
        qkv_bias=bias,
        output_bias=bias,
    )


def _gemma3(reader: FieldReader) -> ModelConfig:
    for name, value in (
        ("use_bidirectional_attention", False),
        ("attn_logit_softcapping", None),
        ("final_logit_softcapping", None),
        ("hidden_act", "gelu_pytorch_tanh"),
        ("hidden_activation", "gelu_pytorch_tanh"),
    ):
        reader.only(name, value)
    bias = reader.flag("attention_bias", False)
    return _model(
        reader,
        "gemma3",
        head_dim=reader.size("head_dim"),
        layers=_gemma3_layers(reader),
        query_scale=reader.number("query_pre_attn_scalar", 256.0) ** -0.5,
        tie_embeddings=reader.flag("tie_word_embeddings", True),
        activation="gelu_tanh",
        embed_scale=reader.size("hidden_size") ** 0.5,
        norm_offset=1.0,
        qk_norm=True,
        post_norms=True,
        qkv_bias=bias,
        output_bias=bias,
    )


def _gpt(reader: FieldReader) -> ModelConfig:
    """GPT-2/GPT-3: sizes only, for cost estimates; learned positions (here: any RoPE) and plain MLPs are not run."""
    num_layers = reader.size("num_hidden_layers")
    hidden = reader.size("hidden_size")
    return _model(
        reader,
        "gpt",
        num_kv_heads=reader.size("num_attention_heads"),
        intermediate_size=reader.size("intermediate_size", 4 * hidden),
        layers=(LayerConfig(RopeConfig(10000.0)),) * num_layers,
        norm_eps=reader.number("layer_norm_epsilon", 1e-5),
        tie_embeddings=reader.flag("tie_word_embeddings", True),
        activation="gelu_tanh",
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
    )


_READERS: dict[str, Callable[[FieldReader], ModelConfig]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma3_text": _gemma3,
    "gpt": _gpt,
}


def _model(reader: FieldReader, architecture: str, **given: Any) -> ModelConfig:
    """A ModelConfig from the fields that all architectures share, and those that `given` says otherwise."""

    def default(name: str, read: Callable[[], Any]) -> None:
        if name not in given:
            given[name] = read()

    num_heads, hidden = reader.size("num_attention_heads"), reader.size("hidden_size")
    default("num_kv_heads", lambda: reader.size("num_key_value_heads"))
    default("head_dim", lambda: reader.size("head_dim", None) or _equal_heads(reader, hidden, num_heads))
    default("intermediate_size", lambda: reader.size("intermediate_size"))
    default("norm_eps", lambda: reader.number("rms_norm_eps", 1e-6))
    default("tie_embeddings", lambda: reader.flag("tie_word_embeddings", False))
    default("query_scale", lambda: given["head_dim"] ** -0.5)
    if "activation" not in given:
        reader.only("hidden_act", "silu")
    return ModelConfig(
        architecture=architecture,
        vocab_size=reader.size("vocab_size"),
        hidden_size=hidden,
        num_heads=num_heads,
        max_context=reader.size("max_position_embeddings"),
        **given,
    )


def _equal_heads(reader: FieldReader, hidden: int, num_heads: int) -> int:
    if hidden % num_heads:
        raise ValueError(f"{reader.where}: hidden_size {hidden} is no multiple of {num_heads} heads; give 'head_dim'.")
    return hidden // num_heads


def _uniform_layers(reader: FieldReader, window: int | None) -> tuple[LayerConfig, ...]:
    return (LayerConfig(_rope(reader), window),) * reader.size("num_hidden_layers")


def _qwen_layers(reader: FieldReader) -> tuple[LayerConfig, ...]:
    """Qwen: with `use_sliding_window`, layers from `max_window_layers` on slide unless `layer_types` says otherwise."""
    num_layers, rope = reader.size("num_hidden_layers"), _rope(reader)
    sliding = reader.flag("use_sliding_window", False)
    window = reader.size("sliding_window", 4096)
    first = reader.get("max_window_layers", int, 28)
    default = ["sliding_attention" if sliding and i >= first else "full_attention" for i in range(num_layers)]
    kinds = _layer_kinds(reader, default)
    if not sliding and "sliding_attention" in kinds:
        raise ValueError(f"{reader.where}: 'layer_types' has sliding layers but 'use_sliding_window' is off.")
    return tuple(LayerConfig(rope, window if kind == "sliding_attention" else None) for kind in kinds)


def _gemma3_layers(reader: FieldReader) -> tuple[LayerConfig, ...]:
    """Gemma 3: sliding layers with their own RoPE base, every sixth layer full; RoPE scaling on full layers only."""
    num_layers, window = reader.size("num_hidden_layers"), reader.size("sliding_window", 4096)
    old, new = reader.size("sliding_window_pattern", None), reader.size("_sliding_window_pattern", None)
    if old and new and old != new:
        raise ValueError(f"{reader.where}: 'sliding_window_pattern' {old} contradicts '_sliding_window_pattern' {new}.")
    every = old or new or 6
    kinds = _layer_kinds(
        reader, ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(num_layers)]
    )
    theta, local_theta = reader.number("rope_theta", 1e6), reader.number("rope_local_base_freq", 1e4)
    context = reader.size("max_position_embeddings")
    scaling = reader.get("rope_scaling", dict, {})
    nested = FieldReader(reader.get("rope_parameters", dict, {}), f"{reader.where}: rope_parameters")
    full = {**nested.get("full_attention", dict, {}), **scaling}
    local = nested.get("sliding_attention", dict, {})
    nested.finish()
    layers = {
        "full_attention": LayerConfig(_rope_from(full, theta, context, reader.where)),
        "sliding_attention": LayerConfig(_rope_from(local, local_theta, context, reader.where), window),
    }
    return tuple(layers[kind] for kind in kinds)


def _layer_kinds(reader: FieldReader, default: list[str]) -> list[str]:
    kinds: list[str] = reader.get("layer_types", list, default)
    if len(kinds) != len(default) or set(kinds) - {"full_attention", "sliding_attention"}:
        raise ValueError(
            f"{reader.where}: 'layer_types' must name {len(default)} layers, each 'full_attention' or "
            f"'sliding_attention', got {kinds!r}."
        )
    return kinds


def _rope(reader: FieldReader) -> RopeConfig:
    """RoPE of a model whose layers share it: transformers 5 nests it in rope_parameters, 4 had two top-level fields."""
    new, old = reader.get("rope_parameters", dict, {}), reader.get("rope_scaling", dict, {})
    if new and old and new != old:
        raise ValueError(f"{reader.where}: 'rope_parameters' {new!r} and 'rope_scaling' {old!r} contradict each other.")
    reader.only("partial_rotary_factor", 1.0)
    theta = reader.number("rope_theta", None)
    nested = (new or old).get("rope_theta", theta)
    if theta is not None and nested != theta:
        raise ValueError(f"{reader.where}: 'rope_theta' is {theta} and {nested} inside the RoPE parameters.")
    return _rope_from(new or old, theta or 1e4, reader.size("max_position_embeddings"), reader.where)


def _rope_from(fields: Mapping[str, Any], theta: float, max_context: int, where: str) -> RopeConfig:
    """RoPE from transformers' rope_parameters / rope_scaling object."""
    reader = FieldReader(fields, f"{where}: RoPE parameters")
    theta = reader.number("rope_theta", theta)
    reader.only("partial_rotary_factor", 1.0)
    kind = reader.get("type", str, "default") if fields.get("rope_type") is None else reader.get("rope_type", str)
    reader.only("type", kind)
    scaling: RopeScaling | None
    if kind == "default":
        scaling = None
    elif kind == "linear":
        scaling = LinearScaling(reader.number("factor"))
    elif kind == "llama3":
        scaling = Llama3Scaling(
            factor=reader.number("factor"),
            low_freq_factor=reader.number("low_freq_factor"),
            high_freq_factor=reader.number("high_freq_factor"),
            original_context=reader.size("original_max_position_embeddings", max_context),
        )
    elif kind == "frequency_factors":
        scaling = FrequencyFactors(tuple(float(f) for f in reader.get("factors", (list, tuple), REQUIRED)))
    else:
        allowed = ("default", "linear", "llama3")
        raise ValueError(f"{reader.where}: rope_type {kind!r} is not supported; {did_you_mean(kind, allowed)}")
    reader.finish()
    return RopeConfig(theta, scaling)
