import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from kvjax.models.huggingface import download, load_folder


@pytest.fixture
def sharded(golden_folder, tmp_path):
    """A copy of the checkpoint that transformers wrote in two shards."""
    return Path(shutil.copytree(golden_folder / "llama3", tmp_path / "sharded"))


@pytest.fixture
def single(golden_folder, tmp_path):
    return Path(shutil.copytree(golden_folder / "llama", tmp_path / "single"))


def test_shards_hold_what_one_file_would(sharded, tmp_path):
    tensors = dict(load_folder(sharded)[1])
    assert len(list(sharded.glob("*.safetensors"))) == 2
    whole = tmp_path / "whole"
    whole.mkdir()
    shutil.copy(sharded / "config.json", whole)
    save_file(tensors, whole / "model.safetensors")
    again = dict(load_folder(whole)[1])
    assert (
        again.keys()
        == tensors.keys()
        == json.loads((sharded / "model.safetensors.index.json").read_text())["weight_map"].keys()
    )
    for name in tensors:
        np.testing.assert_array_equal(again[name], tensors[name])


@pytest.mark.parametrize("left", [0, 5, 100, -1])
def test_truncated_file_is_named(single, left):
    path = single / "model.safetensors"
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(ValueError, match=r"model.safetensors is truncated or no safetensors file .*download it again"):
        load_folder(single)


def test_missing_shard_is_named(sharded):
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model-00002-of-00002.safetensors does not exist"):
        load_folder(sharded)


def test_shards_without_index_are_an_error(sharded):
    (sharded / "model.safetensors.index.json").unlink()
    with pytest.raises(ValueError, match=r"2 safetensors files but no model.safetensors.index.json"):
        load_folder(sharded)


@pytest.mark.parametrize("weight_map", [None, [], {"a": 3}, {"a": "../outside.safetensors"}])
def test_index_must_name_files_of_the_folder(sharded, weight_map):
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(ValueError, match="'weight_map' must map"):
        load_folder(sharded)


def test_tensor_in_two_shards_is_an_error(sharded):
    first = sharded / "model-00001-of-00002.safetensors"
    shutil.copy(first, sharded / "model-00002-of-00002.safetensors")
    with pytest.raises(ValueError, match="which another file of the checkpoint holds too"):
        load_folder(sharded)


def test_pickled_weights_are_never_read(single):
    (single / "model.safetensors").rename(single / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"only pickled weights \(pytorch_model.bin\).*safetensors"):
        load_folder(single)


def test_folder_without_weights_or_config(single):
    (single / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"holds no \*.safetensors weights"):
        load_folder(single)
    (single / "config.json").unlink()
    with pytest.raises(ValueError, match=r"config.json does not exist"):
        load_folder(single)


def test_unreachable_hub_says_to_give_a_folder(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")

    def offline(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(hub, "snapshot_download", offline)
    with pytest.raises(ValueError, match=r"Cannot fetch 'org/model' .*no route to host.* give a local folder"):
        download("org/model")
