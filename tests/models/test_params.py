import subprocess
import sys
from dataclasses import replace

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from kvjax.models import load_config, logits
from kvjax.models.huggingface import load_folder
from kvjax.models.layers import rms_norm
from kvjax.models.params import fingerprint, params_from_tensors, tensor_shapes

Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def tensors(llama):
    return dict(load_folder(llama.folder)[1])


def build(llama, tensors, dtype=jnp.float32):
    return params_from_tensors(llama.config, tensors, dtype, source="tiny")


def test_W02_gemma_norms_are_one_plus_w_once():
    """w = [0, .1, -.2] in the file: the whole factor is [1, 1.1, .8], and the norm multiplies by just that."""
    config = replace(load_config("gemma-3-270m"), hidden_size=3, vocab_size=4, intermediate_size=2)
    config = replace(config, num_heads=1, head_dim=2, layers=config.layers[:1])
    tensors = {name: np.zeros(shape, np.float32) for name, shape in tensor_shapes(config).items()}
    tensors["model.norm.weight"] = np.asarray([0.0, 0.1, -0.2], ml_dtypes.bfloat16)
    weight = params_from_tensors(config, tensors, jnp.bfloat16)["final_norm"]
    assert weight.dtype == jnp.float32  # 1 + w would lose w's digits in bfloat16
    np.testing.assert_allclose(weight, [1.0, 1.1, 0.8], atol=1e-3)
    np.testing.assert_allclose(rms_norm(jnp.asarray([2.0, 2.0, 2.0]), weight, 0.0), [1.0, 1.1, 0.8], atol=1e-3)


def test_W02_other_architectures_norms_are_taken_as_they_are(llama, tensors):
    np.testing.assert_array_equal(build(llama, tensors)["final_norm"], tensors["model.norm.weight"])


def test_projections_are_in_by_out_and_side_by_side(llama, tensors):
    params = build(llama, tensors)["layers"][1]
    q, k, v = (tensors[f"model.layers.1.self_attn.{x}_proj.weight"] for x in "qkv")
    x = np.random.default_rng(0).normal(size=32)
    np.testing.assert_allclose(
        x @ np.asarray(params["qkv"]), np.concatenate([q @ x, k @ x, v @ x]), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("name", [Q_PROJ, "model.embed_tokens.weight", "model.layers.0.mlp.up_proj.bias"])
def test_missing_tensor_is_named(llama, tensors, name):
    del tensors[name]
    with pytest.raises(ValueError, match=f"tiny lacks tensor {name}"):
        build(llama, tensors)


def test_many_missing_tensors_are_counted(llama, tensors):
    kept = {name: value for name, value in tensors.items() if ".1." not in name}
    with pytest.raises(ValueError, match=r"lacks tensors model.layers.1.* and 11 more"):
        build(llama, kept)


def test_extra_tensor_is_named(llama, tensors):
    tensors["model.layers.0.self_attn.q_norm.weight"] = np.ones(8, np.float32)
    with pytest.raises(ValueError, match=r"unexpected tensor model.layers.0.self_attn.q_norm.weight"):
        build(llama, tensors)


def test_recorded_rope_frequencies_of_old_checkpoints_are_no_surprise(llama, tensors):
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    build(llama, tensors)


def test_misshaped_tensor_is_named_with_both_shapes(llama, tensors):
    tensors[Q_PROJ] = np.ones((32, 16), np.float32)
    with pytest.raises(ValueError, match=r"q_proj.weight' has shape \(32, 16\).* \(32, 32\)"):
        build(llama, tensors)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", [Q_PROJ, "model.norm.weight"])
def test_weights_that_are_not_finite_are_named(llama, tensors, name, bad):
    tensors[name] = tensors[name].copy()
    tensors[name].flat[5] = bad
    with pytest.raises(ValueError, match=f"{name}' holds NaN or infinite"):
        build(llama, tensors)


def test_overflow_in_the_wanted_dtype_is_an_error(llama, tensors):
    tensors[Q_PROJ] = np.full((32, 32), 1e5, np.float32)
    with pytest.raises(ValueError, match="infinite values in float16"):
        build(llama, tensors, jnp.float16)


@pytest.mark.parametrize("dtype", ["int8", "float64", "float8_e4m3fn"])
def test_dtypes_that_models_do_not_compute_in(llama, tensors, dtype):
    with pytest.raises(ValueError, match=f"cannot be {dtype}; allowed: float32, bfloat16, float16"):
        build(llama, tensors, dtype)


def test_integer_weights_are_an_error(llama, tensors):
    tensors[Q_PROJ] = np.ones((32, 32), np.int8)
    with pytest.raises(ValueError, match="holds int8, expected a floating-point type"):
        build(llama, tensors)


def test_repeated_tied_unembedding_must_be_the_embedding(llama, tensors):
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    assert "unembed" not in build(llama, tensors)
    tensors["lm_head.weight"] = tensors["lm_head.weight"] + np.float16(1)
    with pytest.raises(ValueError, match=r"lm_head.weight' differs"):
        build(llama, tensors)


def test_gpt_is_described_but_not_computed():
    with pytest.raises(ValueError, match="does not compute"):
        params_from_tensors(load_config("gpt-175b"), {}, jnp.float32)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_stored_dtypes_load_into_float32(llama, tensors, dtype):
    """The weights are float16 values; bfloat16 rounds them, and then both sides hold the rounded ones."""
    stored = {name: value.astype(dtype) for name, value in tensors.items()}
    got = logits(llama.config, build(llama, stored), jnp.asarray(llama.tokens))
    widened = build(llama, {name: value.astype(np.float32) for name, value in stored.items()})
    np.testing.assert_array_equal(got, logits(llama.config, widened, jnp.asarray(llama.tokens)))


def test_fingerprint_is_the_same_in_another_process(llama):
    code = (
        "import sys, jax.numpy as jnp; from pathlib import Path; from kvjax.models.huggingface import load_folder\n"
        "from kvjax.models import config_from_hf; from kvjax.models.params import fingerprint, params_from_tensors\n"
        "fields, tensors = load_folder(Path(sys.argv[1])); config = config_from_hf(fields)\n"
        "print(fingerprint(config, params_from_tensors(config, tensors, jnp.float32)))"
    )
    out = subprocess.run([sys.executable, "-c", code, str(llama.folder)], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == fingerprint(llama.config, llama.params)


def test_fingerprint_tells_models_apart(llama, tensors):
    whole = fingerprint(llama.config, llama.params)
    assert fingerprint(replace(llama.config, norm_eps=1e-5), llama.params) != whole
    tensors[Q_PROJ] = -tensors[Q_PROJ]
    assert fingerprint(llama.config, build(llama, tensors)) != whole
    assert fingerprint(llama.config, build(llama, tensors, jnp.bfloat16)) != whole
