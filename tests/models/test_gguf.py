"""GGUF files written here with gguf's own writer, from the recorded checkpoints, must compute what those compute."""

from dataclasses import replace

import gguf
import jax.numpy as jnp
import numpy as np
import pytest

from kvjax.models import load_model, logits
from kvjax.models.gguf import GgufTensors, halves_order, load_gguf, read_config
from kvjax.models.gguf_reader import open_gguf
from kvjax.models.hf_config import config_from_hf
from kvjax.models.huggingface import load_folder
from kvjax.models.params import params_from_tensors

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA_NAMES = {
    **NAMES,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3"}


def interleaved(weight, heads):
    """`permute` of llama.cpp's convert_hf_to_gguf."""
    return (
        weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
    )


def file_form(fields, tensors):
    """Tensors of a Hugging Face checkpoint as llama.cpp's converter names, orders and offsets them."""
    gemma = fields["model_type"] == "gemma3_text"
    stored = {}
    for name, weight in tensors.items():
        stem, suffix = name.rsplit(".", 1)
        weight = weight.astype(np.float32)
        if fields["model_type"] in ("llama", "mistral"):
            if "q_proj" in stem:
                weight = interleaved(weight, fields["num_attention_heads"])
            if "k_proj" in stem:
                weight = interleaved(weight, fields["num_key_value_heads"])
        if gemma and name.endswith("norm.weight"):
            weight = weight + 1
        names, prefix = GEMMA_NAMES if gemma else NAMES, ""
        if stem.startswith("model.layers."):
            _, _, index, stem = stem.split(".", 3)
            prefix = f"blk.{index}."
        stored[f"{prefix}{names[stem]}.{suffix}"] = weight
    return stored


def llama3_factors(fields):
    """What llama.cpp's converter writes as rope_freqs.weight, in its own words."""
    rope, head_dim = fields["rope_parameters"], fields["head_dim"]
    frequencies = 1.0 / (rope["rope_theta"] ** (np.arange(0, head_dim, 2, dtype=np.float64) / head_dim))
    low, high, old = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    factors = []
    for frequency in frequencies:
        wavelength = 2 * np.pi / frequency
        if wavelength < old / high:
            factors.append(1.0)
        elif wavelength > old / low:
            factors.append(rope["factor"])
        else:
            smooth = (old / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)


def metadata(fields):
    """Numbers of a config.json under GGUF keys (without the architecture's prefix)."""
    rope = fields.get("rope_parameters", {})
    full = rope.get("full_attention", rope)
    pairs = {
        "block_count": fields["num_hidden_layers"],
        "context_length": fields["max_position_embeddings"],
        "embedding_length": fields["hidden_size"],
        "feed_forward_length": fields["intermediate_size"],
        "attention.head_count": fields["num_attention_heads"],
        "attention.head_count_kv": fields["num_key_value_heads"],
        "attention.key_length": fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"],
        "attention.layer_norm_rms_epsilon": float(fields["rms_norm_eps"]),
        "rope.freq_base": float(full["rope_theta"]),
    }
    if full["rope_type"] == "linear":
        pairs |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(full["factor"])}
    if fields["model_type"] in ("mistral", "gemma3_text"):
        pairs["attention.sliding_window"] = fields["sliding_window"]
    return pairs


def write(path, architecture, pairs, tensors, kinds=None, general=None):
    """A GGUF file; `kinds` says which tensors are stored quantized (name -> type)."""
    writer = gguf.GGUFWriter(path, architecture)
    prefixed = {f"{architecture}.{key}": value for key, value in pairs.items()} | (general or {})
    for key, value in prefixed.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            add[type(value)](key, value)
    for name, weight in tensors.items():
        kind = (kinds or {}).get(name)
        data = weight if kind is None else gguf.quantize(weight, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def tiny(golden_folder, tmp_path):
    """Writes the recorded llama checkpoint, changed as asked, and returns the file."""

    def make(pairs=None, drop=(), add=None, architecture="llama", general=None, kinds=None):
        fields, tensors = load_folder(golden_folder / "llama")
        stored = {k: v for k, v in file_form(fields, tensors).items() if k not in drop} | (add or {})
        kept = {k: v for k, v in (metadata(fields) | (pairs or {})).items() if v is not None}
        return write(tmp_path / "tiny.gguf", architecture, kept, stored, kinds, general)

    return make


@pytest.mark.parametrize("name", ["llama", "llama-linear", "llama3", "mistral", "qwen2", "qwen3", "gemma3"])
def test_file_computes_what_transformers_recorded(name, golden_folder, tmp_path):
    fields, tensors = load_folder(golden_folder / name)
    architecture = ARCHITECTURES.get(fields["model_type"], fields["model_type"])
    stored = file_form(fields, tensors)
    pairs = metadata(fields)
    if name == "llama3":
        stored["rope_freqs.weight"] = llama3_factors({**fields, "head_dim": pairs["attention.key_length"]})
    path = write(tmp_path / "model.gguf", architecture, pairs, stored)
    model = load_model(path)
    expected = config_from_hf(fields)
    config = replace(model.config, query_scale=expected.query_scale)  # not in the file: see the Gemma test below
    if name != "llama3":
        assert config == expected
    with np.load(golden_folder / name / "golden.npz") as golden:
        got = logits(config, model.params, jnp.asarray(golden["tokens"]))
        np.testing.assert_allclose(got, golden["logits"], rtol=0, atol=3e-5)
    assert read_config(path) == load_gguf(path)[0]
    assert model.tokenizer is None


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_block_types_are_dequantized(kind, tiny):
    kind = gguf.GGMLQuantizationType[kind]
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 32)).astype(np.float32)
    path = tiny(add={"blk.0.ffn_gate.weight": weight}, kinds={"blk.0.ffn_gate.weight": kind})
    got = load_gguf(path)[1]["model.layers.0.mlp.gate_proj.weight"]
    assert got.dtype == np.float32 and got.shape == weight.shape
    # A block of 32 values has at least 15 steps between its extremes; F16 and BF16 are finer than that.
    blocks = weight.reshape(-1, 32)
    step = 2 * np.abs(blocks).max(1) / 15
    assert (np.abs(got.reshape(blocks.shape) - blocks) <= step[:, None]).all()


def test_weights_are_dequantized_when_asked_for(tiny):
    tensors = load_gguf(tiny())[1]
    assert isinstance(tensors, GgufTensors)
    assert len(tensors) == len(list(tensors))
    first, second = (tensors["model.embed_tokens.weight"] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_W01_gguf_qk_row_order():
    stored = np.array([0, 4, 1, 5, 2, 6, 3, 7])
    assert halves_order(stored, heads=1).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert halves_order(stored, heads=2).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]  # what the query head count would give
    with pytest.raises(ValueError, match="8 rows, which are not pairs in each of 3 heads"):
        halves_order(stored, heads=3)


@pytest.mark.parametrize("architecture, expected", [("llama", [0, 1, 2, 3, 4, 5, 6, 7]), ("qwen2", None)])
def test_W01_keys_use_the_kv_head_count_and_qwen_is_left_alone(architecture, expected, tmp_path):
    rows = np.array([0, 4, 1, 5, 2, 6, 3, 7], np.float32)
    pairs = {
        "block_count": 1, "context_length": 8, "embedding_length": 16, "feed_forward_length": 4,
        "attention.head_count": 2, "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip
    stored = {"token_embd.weight": np.zeros((4, 16), np.float32), "blk.0.attn_k.weight": np.tile(rows[:, None], 16)}
    tensors = load_gguf(write(tmp_path / "m.gguf", architecture, pairs, stored))[1]
    assert tensors["model.layers.0.self_attn.k_proj.weight"][:, 0].tolist() == (expected or rows.tolist())


def test_W02_gemma_norms_lose_the_one_that_loading_adds(golden_folder, tmp_path):
    fields, tensors = load_folder(golden_folder / "gemma3")
    stored = file_form(fields, tensors)
    stored["output_norm.weight"] = np.resize(np.array([1, 1.1, 0.8], np.float32), fields["hidden_size"])
    config, weights, _ = load_gguf(write(tmp_path / "m.gguf", "gemma3", metadata(fields), stored))
    np.testing.assert_allclose(weights["model.norm.weight"][:3], [0, 0.1, -0.2], atol=1e-7)
    params = params_from_tensors(config_from_hf(config), weights, jnp.float32)
    np.testing.assert_array_equal(params["final_norm"][:3], np.array([1, 1.1, 0.8], np.float32))


@pytest.mark.parametrize("layers, scale", [(7, 16**-0.5), (62, (5376 // 32) ** -0.5)])
def test_gemma_27b_scales_queries_by_hidden_size(layers, scale, tmp_path):
    pairs = {
        "block_count": layers, "context_length": 128, "embedding_length": 5376, "feed_forward_length": 8,
        "attention.head_count": 32, "attention.head_count_kv": 16, "attention.key_length": 16,
        "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6, "attention.sliding_window": 4,
    }  # fmt: skip
    path = write(tmp_path / "m.gguf", "gemma3", pairs, {"token_embd.weight": np.zeros((1, 5376), np.float32)})
    config = config_from_hf(read_config(path))
    assert config.query_scale == pytest.approx(scale)
    assert [layer.window for layer in config.layers[:7]] == [4, 4, 4, 4, 4, None, 4]


def test_gemma_sliding_layers_may_be_listed(tmp_path):
    pairs = {
        "block_count": 2, "context_length": 128, "embedding_length": 8, "feed_forward_length": 8,
        "attention.head_count": 1, "attention.key_length": 8, "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": 4, "attention.sliding_window_pattern": [False, True],
    }  # fmt: skip
    path = write(tmp_path / "m.gguf", "gemma3", pairs, {"token_embd.weight": np.zeros((1, 8), np.float32)})
    assert [layer.window for layer in config_from_hf(read_config(path)).layers] == [None, 4]


def test_metadata_arrays_read_in_one_go_equal_the_packages_reading(tiny):
    general = {"a.strings": ["x", "", "é" * 300], "a.numbers": [1.5, -2.0], "a.flags": [True, False], "a.ids": [-1, 7]}
    path = tiny(general=general)
    ours, theirs = open_gguf(path), gguf.GGUFReader(path)
    assert {k: f.contents() for k, f in ours.fields.items()} == {k: f.contents() for k, f in theirs.fields.items()}
    assert [t.data_offset for t in ours.tensors] == [t.data_offset for t in theirs.tensors]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.2, 0.6, 0.999])
def test_truncated_file_is_an_error_that_names_it(share, tiny):
    path = tiny(general={"tokenizer.ggml.tokens": [f"t{i}" for i in range(3000)]})
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ValueError, match=r"tiny\.gguf.*(truncated|not a GGUF file)"):
        load_gguf(path)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"none\.gguf cannot be read: No such file"):
        load_gguf(tmp_path / "none.gguf")
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.gguf is not a GGUF file: it begins with b'hell'"):
        load_gguf(tmp_path / "text.gguf")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"architecture": "lama"}, r"architecture 'lama' is not supported; did you mean 'llama'\?"),
        ({"drop": ["token_embd.weight"]}, "lacks tensor token_embd.weight"),
        ({"pairs": {"block_count": None}}, "'block_count' is missing"),
        ({"pairs": {"attention.scale": 0.5}}, r"llama\.\*: unknown field 'attention.scale'"),
        ({"pairs": {"expert_count": 8}}, "'expert_count' is 8"),
        ({"pairs": {"rope.dimension_count": 4}}, "'rope.dimension_count' is 4, but kvjax computes only 8"),
        ({"pairs": {"attention.head_count": [4, 2]}}, r"'attention.head_count' is \[4, 2\]"),
        ({"add": {"blk.0.ffn_gate_exps.weight": np.zeros((1, 32), np.float32)}}, "'blk.0.ffn_gate_exps.weight' has no"),
        ({"general": {"split.count": 3}}, "one of 3 parts"),
        (
            {"pairs": {"rope.scaling.factor": 2.0}, "add": {"rope_freqs.weight": np.ones(4, np.float32)}},
            "both 'rope.scaling.factor' and the tensor rope_freqs.weight",
        ),
    ],
)  # fmt: skip
def test_what_kvjax_does_not_compute_is_named(change, message, tiny):
    with pytest.raises(ValueError, match=message):
        load_gguf(tiny(**change))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"drop": ["blk.1.attn_k.weight"]}, r"lacks tensor model\.layers\.1\.self_attn\.k_proj\.weight"),
        ({"pairs": {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0}}, "rope_type 'yarn' is not supported"),
        ({"add": {"output_norm.weight": np.arange(32, dtype=np.int32)}}, "'output_norm.weight' is stored as I32"),
    ],
)  # fmt: skip
def test_faults_found_by_loading_name_the_tensor_or_field(change, message, tiny):
    with pytest.raises(ValueError, match=message):
        load_model(tiny(**change))


@pytest.mark.model("smollm2-135m")
def test_smollm2_config_and_weights():
    from kvjax.models.default import model_path

    config, tensors, _ = load_gguf(model_path("smollm2-135m"))
    config = config_from_hf(config)
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (30, 9, 3, 64)
    assert (config.max_context, config.vocab_size, config.tie_embeddings, config.norm_eps) == (8192, 49152, True, 1e-5)
    assert config.layers[0].rope.theta == 100000.0 and config.layers[0].window is None
    assert tensors["model.layers.29.self_attn.k_proj.weight"].shape == (192, 576)
    assert sum(tensors[name].size for name in tensors) == 134_515_008  # the model card's 135M
