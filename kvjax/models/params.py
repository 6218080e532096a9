"""Weights: which tensors each architecture has, and how they become the params pytree. Every loader ends here.

Loaders give tensors under Hugging Face names in Hugging Face form: projections [out, in], norms as transformers
stores them. The pytree is what the forward pass wants: projections [in, out], q/k/v side by side as `qkv`, gate/up
side by side as `gate_up`, norm weights as the whole factor in float32.

    {"embed": [V, E], "layers": [{"qkv": [E, (Hq + 2H) D], "output": [Hq D, E], "gate_up": [E, 2F], "down": [F, E],
     "attention_norm": [E], "mlp_norm": [E], + "q_norm", "k_norm" [D], "post_attention_norm", "post_mlp_norm" [E],
     "qkv_bias", "output_bias", "gate_up_bias", "down_bias" where the model has them}, ...],
     "final_norm": [E], "unembed": [E, V] unless tied}
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from kvjax.models.config import ModelConfig

Params = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]

_DTYPES = ("float32", "bfloat16", "float16")
_SAMPLES = 4096  # values of each weight that the fingerprint reads


def tensor_shapes(config: ModelConfig) -> Shapes:
    """Name and shape of every tensor that a checkpoint of this architecture holds, Hugging Face names.

    >>> from kvjax.models.architectures import load_config
    >>> tensor_shapes(load_config("llama-2-70b"))["model.layers.0.self_attn.k_proj.weight"]
    (1024, 8192)
    """
    if config.architecture == "gpt":
        return _gpt_shapes(config)
    hidden = config.hidden_size
    shapes: Shapes = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for i in range(config.num_layers):
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in _layer_shapes(config).items()}
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def _layer_shapes(config: ModelConfig) -> Shapes:
    hidden, ffn, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    queries, kv = config.num_heads * head_dim, config.num_kv_heads * head_dim
    shapes: Shapes = {f"{norm}.weight": (hidden,) for norm in _norm_names(config).values()}
    projections = {
        "self_attn.q_proj": (queries, hidden, config.qkv_bias),
        "self_attn.k_proj": (kv, hidden, config.qkv_bias),
        "self_attn.v_proj": (kv, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, queries, config.output_bias),
        "mlp.gate_proj": (ffn, hidden, config.mlp_bias),
        "mlp.up_proj": (ffn, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, ffn, config.mlp_bias),
    }
    for name, (outputs, inputs, bias) in projections.items():
        shapes[f"{name}.weight"] = (outputs, inputs)
        if bias:
            shapes[f"{name}.bias"] = (outputs,)
    if config.qk_norm:
        shapes |= {f"self_attn.{name}.weight": (head_dim,) for name in ("q_norm", "k_norm")}
    return shapes


def _norm_names(config: ModelConfig) -> dict[str, str]:
    """Our name -> file name. In Llama's files "post_attention_layernorm" is the norm before the MLP; in Gemma's not."""
    if config.post_norms:
        return {
            "attention_norm": "input_layernorm",
            "post_attention_norm": "post_attention_layernorm",
            "mlp_norm": "pre_feedforward_layernorm",
            "post_mlp_norm": "post_feedforward_layernorm",
        }
    return {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}


def _gpt_shapes(config: ModelConfig) -> Shapes:
    hidden, ffn = config.hidden_size, config.intermediate_size
    shapes: Shapes = {"wte.weight": (config.vocab_size, hidden), "wpe.weight": (config.max_context, hidden)}
    linear = {"attn.c_attn": (hidden, 3 * hidden), "attn.c_proj": (hidden, hidden), "mlp.c_fc": (hidden, ffn)}
    linear["mlp.c_proj"] = (ffn, hidden)
    for i in range(config.num_layers):
        for name, shape in linear.items():
            shapes |= {f"h.{i}.{name}.weight": shape, f"h.{i}.{name}.bias": shape[1:]}
        for norm in ("ln_1", "ln_2"):
            shapes |= {f"h.{i}.{norm}.{part}": (hidden,) for part in ("weight", "bias")}
    return shapes | {"ln_f.weight": (hidden,), "ln_f.bias": (hidden,)}


def parameter_count(config: ModelConfig) -> int:
    """Number of weights, tied ones once.

    >>> from kvjax.models.architectures import load_config
    >>> parameter_count(load_config("llama-2-7b"))
    6738415616
    """
    return sum(math.prod(shape) for shape in tensor_shapes(config).values())


def params_from_tensors(
    config: ModelConfig, tensors: Mapping[str, np.ndarray], dtype: DTypeLike, source: str = "checkpoint"
) -> Params:
    """The params pytree from a checkpoint's tensors, in `dtype` (norms stay float32).

    Args:
        config: the architecture.
        tensors: name -> array, Hugging Face names and shapes; read one at a time, so it may load lazily.
        dtype: float32, bfloat16 or float16, of embeddings, projections and biases.
        source: what error messages call the checkpoint.

    Raises:
        ValueError: tensors are missing, left over, of the wrong shape, not floating point, or hold NaN or infinity
            (in `dtype`: a float16 model may overflow). The message names them.
    """
    if config.architecture == "gpt":
        raise ValueError(f"{source}: kvjax describes 'gpt' models for cost estimates but does not compute them.")
    if jnp.dtype(dtype).name not in _DTYPES:
        raise ValueError(f"Weights cannot be {jnp.dtype(dtype).name}; allowed: {', '.join(_DTYPES)}.")
    _check_names(tensor_shapes(config), tensors, source)
    take = _Taker(tensor_shapes(config), tensors, jnp.dtype(dtype), source)
    embed = take("model.embed_tokens.weight")
    if config.tie_embeddings and "lm_head.weight" in tensors and not _same(tensors["lm_head.weight"], embed):
        raise ValueError(f"{source}: 'lm_head.weight' differs from the embeddings, but the config ties them.")
    params: Params = {
        "embed": jnp.asarray(embed),
        "layers": [_layer_params(config, take, f"model.layers.{i}.") for i in range(config.num_layers)],
        "final_norm": _norm(config, take, "model.norm.weight"),
    }
    if not config.tie_embeddings:
        params["unembed"] = jnp.asarray(np.ascontiguousarray(take("lm_head.weight").T))
    return params


def _layer_params(config: ModelConfig, take: "_Taker", prefix: str) -> dict[str, jax.Array]:
    fused = {
        "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "output": ("self_attn.o_proj",),
        "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
        "down": ("mlp.down_proj",),
    }
    params = {}
    for ours, names in fused.items():
        params[ours] = jnp.asarray(np.concatenate([take(f"{prefix}{n}.weight").T for n in names], axis=1))
        if f"{prefix}{names[0]}.bias" in take.shapes:
            params[f"{ours}_bias"] = jnp.asarray(np.concatenate([take(f"{prefix}{n}.bias") for n in names]))
    norms = _norm_names(config)
    if config.qk_norm:
        norms |= {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
    for ours, name in norms.items():
        params[ours] = _norm(config, take, f"{prefix}{name}.weight")
    return params


def _norm(config: ModelConfig, take: "_Taker", name: str) -> jax.Array:
    return jnp.asarray(take(name, np.dtype(np.float32)) + np.float32(config.norm_offset))


class _Taker:
    """Reads one tensor after the other, each checked and in the wanted dtype."""

    def __init__(self, shapes: Shapes, tensors: Mapping[str, np.ndarray], dtype: np.dtype, source: str):
        self.shapes, self.tensors, self.dtype, self.source = shapes, tensors, dtype, source

    def __call__(self, name: str, dtype: np.dtype | None = None) -> np.ndarray:
        tensor = self.tensors[name]
        if tensor.shape != self.shapes[name]:
            raise ValueError(
                f"{self.source}: {name!r} has shape {tensor.shape}, but the config asks for {self.shapes[name]}."
            )
        if not jnp.issubdtype(tensor.dtype, jnp.floating):
            raise ValueError(f"{self.source}: {name!r} holds {tensor.dtype}, expected a floating-point type.")
        with np.errstate(over="ignore"):  # an overflow is reported just below, by name
            converted = tensor.astype(dtype or self.dtype)
        if not np.isfinite(converted).all():
            raise ValueError(f"{self.source}: {name!r} holds NaN or infinite values in {converted.dtype}.")
        return converted


def _check_names(shapes: Shapes, tensors: Iterable[str], source: str) -> None:
    names = set(tensors)
    # Old Llama checkpoints hold RoPE frequencies (computed from the config); tied models may repeat the embeddings.
    extra = {n for n in names - set(shapes) if not n.endswith(".rotary_emb.inv_freq") and n != "lm_head.weight"}
    for problem, found in (("lacks", set(shapes) - names), ("has unexpected", extra)):
        if found:
            first = ", ".join(sorted(found)[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
            raise ValueError(
                f"{source} {problem} tensor{'s' * (len(found) > 1)} {first}: not what its config describes."
            )


def _same(stored: np.ndarray, taken: np.ndarray) -> bool:
    return stored.shape == taken.shape and np.array_equal(stored.astype(taken.dtype), taken)


def fingerprint(config: ModelConfig, params: Params) -> str:
    """SHA-256 over the config and over names, shapes, dtypes and evenly spaced values of the weights.

    The same in every process and on every device; results and calibrations are labelled with it.
    """
    digest = hashlib.sha256(json.dumps(asdict(config), sort_keys=True).encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        step = max(1, leaf.size // _SAMPLES)
        sample = np.asarray(leaf.reshape(-1)[::step])
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype}".encode())
        digest.update(sample.tobytes())
    return digest.hexdigest()
