import shutil

import jax.numpy as jnp
import numpy as np
import pytest

from kvjax.models import load_model, loading, logits


def test_folder_loads_and_computes_what_transformers_recorded(llama):
    model = load_model(llama.folder)
    assert (model.name, model.tokenizer, model.config) == ("llama", None, llama.config)
    got = logits(model.config, model.params, jnp.asarray(llama.tokens))
    np.testing.assert_allclose(got, llama.logits, rtol=0, atol=2e-5)


def test_dtype_is_that_of_the_weights(llama):
    model = load_model(str(llama.folder), dtype=jnp.bfloat16)
    assert model.params["embed"].dtype == jnp.bfloat16
    assert model.fingerprint != load_model(llama.folder).fingerprint


def test_hub_id_is_downloaded_and_keeps_its_name(llama, monkeypatch):
    asked = []
    monkeypatch.setattr(loading, "download", lambda name: asked.append(name) or llama.folder)
    assert load_model("org/tiny-1.5").name == "org/tiny-1.5"
    assert asked == ["org/tiny-1.5"]


@pytest.mark.parametrize("name", ["/no/such/folder", "./folder", "a/b/c"])
def test_path_to_nothing_says_what_is_allowed(name):
    with pytest.raises(ValueError, match=r"neither a folder nor a .gguf file nor a hub id"):
        load_model(name)


def test_errors_of_a_checkpoint_name_its_place(llama, tmp_path):
    folder = shutil.copytree(llama.folder, tmp_path / "broken")
    (folder / "config.json").write_text(
        (folder / "config.json").read_text().replace('"hidden_size": 32', '"hidden_size": 64')
    )
    with pytest.raises(ValueError, match=r"broken: 'model.embed_tokens.weight' has shape \(96, 32\)"):
        load_model(folder)
