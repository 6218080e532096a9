"""GGUF metadata -> the fields of Hugging Face's config.json, strictly: what nobody asked for is an error."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvjax.models.fields import FieldReader
from kvjax.suggest import did_you_mean

_MODEL_TYPES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text"}
_HARMLESS = ("vocab_size", "rope.scaling.finetuned")  # the embedding says how many rows there are


def hf_config_from_gguf(
    metadata: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    frequency_factors: Sequence[float] | None,
    where: str,
) -> dict[str, Any]:
    """Fields of a config.json that describe the same model.

    Args:
        metadata: the file's key-value pairs.
        shapes: tensor name -> shape, outermost dimension first; says what metadata leaves out (biases, tied
            embeddings, vocabulary).
        frequency_factors: the tensor `rope_freqs.weight` [D/2], if the file has it.
        where: what error messages call the file.

    Raises:
        ValueError: an architecture or a field that kvjax does not know; a missing, mistyped or contradictory field.
    """
    architecture = FieldReader(metadata, where).get("general.architecture", str)
    if architecture not in _MODEL_TYPES:
        raise ValueError(
            f"{where}: architecture {architecture!r} is not supported; {did_you_mean(architecture, _MODEL_TYPES)}"
        )
    if "token_embd.weight" not in shapes:
        raise ValueError(f"{where} lacks tensor token_embd.weight.")
    prefix = f"{architecture}."
    fields = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    reader = FieldReader(fields, f"{where}: {prefix}*")
    config = _shared(reader, _MODEL_TYPES[architecture], shapes) | _rope(reader, frequency_factors)
    if architecture == "llama" and (window := reader.size("attention.sliding_window", None)):
        config |= {"model_type": "mistral", "sliding_window": window}  # Mistral's files call themselves llama
    if architecture == "gemma3":
        config |= _gemma3(reader, config)
    if architecture != "qwen2" and config["model_type"] != "mistral":
        config["attention_bias"] = "blk.0.attn_q.bias" in shapes
    if config["model_type"] == "llama":
        config["mlp_bias"] = "blk.0.ffn_up.bias" in shapes
    reader.finish(_HARMLESS)
    return config


def _shared(reader: FieldReader, model_type: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    heads, hidden = reader.size("attention.head_count"), reader.size("embedding_length")
    head_dim = reader.size("attention.key_length", reader.size("rope.dimension_count", hidden // heads))
    for name in ("attention.value_length", "rope.dimension_count"):
        reader.only(name, head_dim)
    for name in ("expert_count", "expert_used_count"):
        reader.only(name, 0)
    return {
        "model_type": model_type,
        "vocab_size": shapes["token_embd.weight"][0],
        "hidden_size": hidden,
        "intermediate_size": reader.size("feed_forward_length"),
        "num_hidden_layers": reader.size("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": reader.size("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": reader.size("context_length"),
        "rms_norm_eps": _shortest(reader.number("attention.layer_norm_rms_epsilon")),
        "tie_word_embeddings": "output.weight" not in shapes,
    }


def _rope(reader: FieldReader, frequency_factors: Sequence[float] | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"rope_theta": _shortest(reader.number("rope.freq_base", 1e4))}
    # Without a type llama.cpp takes "linear"; without a factor there is nothing to scale.
    kind, factor = reader.get("rope.scaling.type", str, "linear"), reader.number("rope.scaling.factor", None)
    scaled = kind != "none" and factor is not None
    if scaled and frequency_factors is not None:
        raise ValueError(f"{reader.where}: both 'rope.scaling.factor' and the tensor rope_freqs.weight scale RoPE.")
    if scaled:
        fields["rope_scaling"] = {"rope_type": kind, "factor": _shortest(factor)}
    if frequency_factors is not None:
        fields["rope_scaling"] = {"rope_type": "frequency_factors", "factors": list(frequency_factors)}
    return fields


def _gemma3(reader: FieldReader, config: Mapping[str, Any]) -> dict[str, Any]:
    heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
    # Not in the metadata: as in llama.cpp, the 27B model (62 layers) scales by hidden / heads, all others by head_dim.
    scalar = config["hidden_size"] // heads if layers == 62 else config["head_dim"]
    fields = {
        "query_pre_attn_scalar": scalar,
        "sliding_window": reader.size("attention.sliding_window"),
        "rope_local_base_freq": _shortest(reader.number("rope.freq_base_swa", 1e4)),
    }
    pattern = reader.get("attention.sliding_window_pattern", (int, list), 6)  # every n-th full, or one flag a layer
    if isinstance(pattern, list):
        return fields | {"layer_types": [("full" if not slides else "sliding") + "_attention" for slides in pattern]}
    return fields | {"sliding_window_pattern": pattern}


def _shortest(value: float) -> float:
    """A number that was stored as f32, as it was written: 1e-5, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))
