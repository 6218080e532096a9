"""GGUF files (llama.cpp's format): metadata, tokenizer and weights in one file, the weights usually quantized.

What a file holds is brought into Hugging Face form here (names, shapes, row order, norms), so that everything after is
shared with Hugging Face folders. Weights are dequantized one at a time, when they are asked for.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from kvjax.models.gguf_config import hf_config_from_gguf
from kvjax.models.gguf_reader import metadata, open_gguf
from kvjax.models.gguf_tokenizer import tokenizer_from_gguf
from kvjax.models.tokenizer import Tokenizer

_FREQUENCY_FACTORS = "rope_freqs.weight"  # Llama 3.1's RoPE scaling, which belongs to the config


def load_gguf(path: Path) -> tuple[dict[str, Any], Mapping[str, np.ndarray], Tokenizer | None]:
    """Config in the form of Hugging Face's config.json, weights, and tokenizer (None if the file has none).

    The weights are f32 under Hugging Face names and shapes ([out, in]), Q/K rows in halves order, Gemma's norms
    without the 1 that is added to them; each is dequantized when it is asked for.

    Raises:
        ValueError: not a GGUF file, truncated, of an unknown architecture, or with metadata or tensors that kvjax has
            no place for. The message names them.
    """
    fields, stored = _read(path)
    config = _config(fields, stored, str(path))
    return config, GgufTensors(config, stored, str(path)), tokenizer_from_gguf(fields, str(path))


def read_config(path: Path) -> dict[str, Any]:
    """The config in the form of Hugging Face's config.json, without dequantizing weights. Raises like `load_gguf`."""
    return _config(*_read(path), str(path))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, gguf.ReaderTensor]]:
    reader = open_gguf(path)
    return metadata(reader), {tensor.name: tensor for tensor in reader.tensors}


def _config(fields: Mapping[str, Any], stored: Mapping[str, gguf.ReaderTensor], where: str) -> dict[str, Any]:
    shapes = {name: _shape(tensor) for name, tensor in stored.items()}
    factors = _dequantized(stored[_FREQUENCY_FACTORS], where).tolist() if _FREQUENCY_FACTORS in stored else None
    return hf_config_from_gguf(fields, shapes, factors, where)


class GgufTensors(Mapping[str, np.ndarray]):
    """Weights of a GGUF file under Hugging Face names, f32, in Hugging Face form; dequantized at each access."""

    def __init__(self, config: Mapping[str, Any], stored: Mapping[str, gguf.ReaderTensor], where: str):
        """`config` is the Hugging Face form, `stored` what the file holds, `where` what errors call the file."""
        self.config, self.where = config, where
        self.stored = {
            _hf_name(name, config["model_type"], where): tensor
            for name, tensor in stored.items()
            if name != _FREQUENCY_FACTORS
        }

    def __getitem__(self, name: str) -> np.ndarray:
        weight = _dequantized(self.stored[name], self.where)
        if self.config["model_type"] in ("llama", "mistral") and (kind := re.search(r"\.([qk])_proj\.", name)):
            heads = self.config["num_attention_heads" if kind[1] == "q" else "num_key_value_heads"]
            return halves_order(weight, heads, where=f"{self.where}: {name!r}")
        if self.config["model_type"] == "gemma3_text" and name.endswith("norm.weight"):
            return weight - np.float32(1)  # the file holds 1 + w
        return weight

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


def halves_order(weight: np.ndarray, heads: int, where: str = "weight") -> np.ndarray:
    """Rows of a query or key projection from interleaved rotary order to halves order.

    Llama-family files store, in each head, the rows that rotate together next to each other (0, D/2, 1, D/2 + 1, ...);
    Hugging Face stores first all first ones, then all second ones. Source: `permute` in llama.cpp's convert_hf_to_gguf.

    Args:
        weight: [heads * D, ...], weight or bias.
        heads: query heads for a query projection, KV heads for a key projection.
        where: what an error calls it.

    >>> halves_order(np.array([0, 4, 1, 5, 2, 6, 3, 7]), heads=1).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    if len(weight) % (2 * heads):
        raise ValueError(f"{where} has {len(weight)} rows, which are not pairs in each of {heads} heads.")
    pairs = weight.reshape(heads, len(weight) // heads // 2, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def _shape(tensor: gguf.ReaderTensor) -> tuple[int, ...]:
    return tuple(reversed(tensor.shape.tolist()))  # stored innermost first


def _dequantized(tensor: gguf.ReaderTensor, where: str) -> np.ndarray:
    try:
        weight = gguf.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError:
        raise ValueError(
            f"{where}: {tensor.name!r} is stored as {tensor.tensor_type.name}, which gguf cannot dequantize."
        ) from None
    return np.asarray(weight, np.float32).reshape(_shape(tensor))


_GLOBAL_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Gemma norms before and after both halves of a layer, and "post_attention" then means what it says.
_GEMMA_LAYER_NAMES = _LAYER_NAMES | {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def _hf_name(name: str, model_type: str, where: str) -> str:
    stem, _, suffix = name.rpartition(".")
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    names = _GEMMA_LAYER_NAMES if model_type == "gemma3_text" else _LAYER_NAMES
    theirs = names.get(layer[2]) if layer else _GLOBAL_NAMES.get(stem)
    if theirs is None or suffix not in ("weight", "bias"):
        raise ValueError(f"{where}: the tensor {name!r} has no place in a {model_type!r} model as kvjax computes it.")
    return f"model.layers.{layer[1]}.{theirs}.{suffix}" if layer else f"{theirs}.{suffix}"
