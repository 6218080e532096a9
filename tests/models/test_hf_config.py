import pytest

from kvjax.models import config_from_hf, load_config
from kvjax.models.config import LayerConfig, LinearScaling, Llama3Scaling, RopeConfig
from kvjax.types import dense_bytes

LLAMA = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
GROUPED = {**LLAMA, "num_key_value_heads": 2}
MISTRAL = {**GROUPED, "model_type": "mistral"}
QWEN2 = {**GROUPED, "model_type": "qwen2"}
QWEN3 = {**GROUPED, "model_type": "qwen3", "head_dim": 16}
GEMMA3 = {**GROUPED, "model_type": "gemma3_text", "head_dim": 16, "num_hidden_layers": 7}


def bytes_per_token(config):
    return dense_bytes(1, config.num_layers, config.num_kv_heads, config.head_dim)


def test_M01_kv_bytes_from_kv_heads_not_query_heads():
    config = load_config("llama-2-70b")
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (80, 64, 8, 128)
    assert bytes_per_token(config) == 327_680


def test_M02_explicit_head_size_wins_over_hidden_by_heads():
    sizes = {"num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32, "num_key_value_heads": 8}
    assert bytes_per_token(config_from_hf({**QWEN3, **sizes, "head_dim": 128})) == 147_456
    assert bytes_per_token(config_from_hf({**LLAMA, **sizes, "head_dim": 128})) == 147_456
    assert bytes_per_token(config_from_hf({**LLAMA, **sizes})) == 92_160


def test_M02_head_size_is_required_where_it_is_not_hidden_by_heads():
    with pytest.raises(ValueError, match="'head_dim' is missing"):
        config_from_hf({**QWEN3, "head_dim": None})


def test_M03_kv_heads_is_a_count_and_ambiguous_names_are_rejected():
    sizes = {"hidden_size": 256, "num_attention_heads": 32}
    config = config_from_hf({**LLAMA, **sizes, "num_key_value_heads": 8})
    assert (config.num_kv_heads, config.group_size) == (8, 4)
    with pytest.raises(ValueError, match=r"unknown field 'num_key_value_groups'.*'num_key_value_heads'"):
        config_from_hf({**LLAMA, **sizes, "num_key_value_groups": 8})


@pytest.mark.parametrize("base", [LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA3])
def test_unknown_field_is_an_error_that_names_it(base):
    base = {**GROUPED, **base}
    config_from_hf({**base, "torch_dtype": "bfloat16", "transformers_version": "5.2.0", "bos_token_id": 1})
    with pytest.raises(ValueError, match="'residual_multiplier'"):
        config_from_hf({**base, "residual_multiplier": 0.2})


def test_unknown_architecture_suggests_the_near_one():
    with pytest.raises(ValueError, match=r"'mixtral' is not supported; did you mean 'mistral'"):
        config_from_hf({**LLAMA, "model_type": "mixtral"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "'hidden_size' is missing"),
        ({"hidden_size": "32"}, "'hidden_size' is '32', expected int"),
        ({"hidden_size": True}, "'hidden_size' is True, expected int"),
        ({"num_hidden_layers": 0}, "'num_hidden_layers' is 0, expected at least 1"),
        ({"rms_norm_eps": -1e-5}, "'rms_norm_eps' is -1e-05"),
        ({"hidden_act": "gelu"}, "'hidden_act' is 'gelu', but kvjax computes only 'silu'"),
        ({"num_key_value_heads": 3}, "4 query heads cannot be shared among 3 KV heads"),
        ({"hidden_size": 33}, "no multiple of 4 heads"),
        ({"head_dim": 7}, "must be even"),
        ({"rope_interleaved": True}, "'rope_interleaved' is True"),
        ({"partial_rotary_factor": 0.5}, "'partial_rotary_factor' is 0.5"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_type 'yarn' is not supported"),
        ({"rope_scaling": {"type": "linear"}}, "'factor' is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "mscale": 1.0}}, "unknown field 'mscale'"),
        ({"rope_scaling": {"type": "linear", "rope_type": "llama3", "factor": 2.0}}, "'type' is 'linear'"),
        ({"rope_parameters": {"rope_theta": 5.0}, "rope_theta": 6.0}, "'rope_theta' is 6.0 and 5.0"),
        ({"quantization_config": {"bits": 4}}, "unknown field 'quantization_config'"),
    ],
)
def test_bad_fields_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        config_from_hf({**LLAMA, **change})


def test_old_and_new_spelling_of_rope_agree():
    llama3 = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    old = config_from_hf({**LLAMA, "rope_theta": 5e5, "rope_scaling": llama3})
    new = config_from_hf({**LLAMA, "rope_parameters": {**llama3, "rope_theta": 5e5}})
    assert old == new
    assert old.layers[0].rope == RopeConfig(5e5, Llama3Scaling(8.0, 1.0, 4.0, 64))


def test_llama_defaults_are_transformers_own():
    config = config_from_hf(LLAMA)
    assert (config.num_kv_heads, config.head_dim, config.norm_eps, config.tie_embeddings) == (4, 8, 1e-6, False)
    assert config.layers == (LayerConfig(RopeConfig(10000.0)),) * 2
    assert config.query_scale == 8**-0.5


def test_fields_of_published_files_are_all_known():
    """The field names of SmolLM2's and Gemma 3 270M's own config.json beside the sizes."""
    smollm2 = {
        "_name_or_path": "x",
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "initializer_range": 0.041666666666666664,
        "is_llama_config": True,
        "mlp_bias": False,
        "num_key_value_heads": 2,
        "pad_token_id": 2,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_interleaved": False,
        "rope_scaling": None,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
        "transformers_version": "4.42.3",
        "use_cache": True,
    }
    assert config_from_hf({**LLAMA, **smollm2}).layers[0].rope == RopeConfig(1e5)
    gemma3 = {
        "_sliding_window_pattern": 6,
        "architectures": ["Gemma3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_logit_softcapping": None,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "final_logit_softcapping": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "initializer_range": 0.02,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
        "pad_token_id": 0,
        "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-06,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": 512,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.55.0.dev0",
        "use_bidirectional_attention": False,
        "use_cache": True,
    }
    config = config_from_hf({**GEMMA3, **gemma3})
    assert [layer.window for layer in config.layers] == [512] * 5 + [None, 512]


def test_mistral_window_absent_is_4096_and_null_is_none():
    assert config_from_hf(MISTRAL).layers[0].window == 4096
    assert config_from_hf({**MISTRAL, "sliding_window": None}).layers[0].window is None
    assert config_from_hf({**MISTRAL, "sliding_window": 7}).layers[1].window == 7


def test_qwen_windows_only_where_switched_on():
    off = {**QWEN2, "sliding_window": 8, "max_window_layers": 1}
    assert [layer.window for layer in config_from_hf(off).layers] == [None, None]
    assert [layer.window for layer in config_from_hf({**off, "use_sliding_window": True}).layers] == [None, 8]
    with pytest.raises(ValueError, match="'use_sliding_window' is off"):
        config_from_hf({**off, "layer_types": ["full_attention", "sliding_attention"]})
    with pytest.raises(ValueError, match="must name 2 layers"):
        config_from_hf({**off, "layer_types": ["full_attention"]})


def test_gemma3_scales_and_layers():
    """Every sixth layer is full with the global base and its scaling; the others slide with the local base."""
    scaling = {"rope_type": "linear", "factor": 8.0}
    config = config_from_hf({**GEMMA3, "sliding_window": 6, "rope_scaling": scaling, "query_pre_attn_scalar": 64})
    local, full = LayerConfig(RopeConfig(1e4), 6), LayerConfig(RopeConfig(1e6, LinearScaling(8.0)))
    assert config.layers == (local,) * 5 + (full, local)
    assert (config.query_scale, config.embed_scale, config.tie_embeddings) == (0.125, 32**0.5, True)
    with pytest.raises(ValueError, match=r"'final_logit_softcapping' is 30.0"):
        config_from_hf({**GEMMA3, "final_logit_softcapping": 30.0})
