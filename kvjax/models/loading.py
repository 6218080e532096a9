"""`load_model`: one call for every place that weights come from."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax.typing import DTypeLike

from kvjax.models.config import ModelConfig
from kvjax.models.hf_config import config_from_hf
from kvjax.models.huggingface import download, load_folder
from kvjax.models.params import Params, fingerprint, params_from_tensors

if TYPE_CHECKING:
    from kvjax.models.tokenizer import Tokenizer

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True, eq=False)
class Model:
    """A model ready to run. `tokenizer` is None if the checkpoint has none: then work with token ids."""

    config: ModelConfig
    params: Params
    tokenizer: "Tokenizer | None"
    name: str
    fingerprint: str


def load_model(name_or_path: str | Path, dtype: DTypeLike = jnp.float32) -> Model:
    """Load a model with its tokenizer.

    Args:
        name_or_path: a folder (config.json, safetensors, tokenizer.json), a .gguf file, a Hugging Face hub id
            ("org/name"), or a model that is installed as a package ("smollm2-135m", "gemma3-270m"). A folder that
            exists wins over a hub id or name of the same spelling.
        dtype: of weights and activations. On CPU float32 is the fastest.

    Raises:
        ValueError: nothing is found under that name, or the checkpoint is not what it must be (see `config_from_hf`,
            `params_from_tensors`). The message names file, field or tensor.
    """
    name = str(name_or_path)
    path = Path(name).expanduser()
    if path.is_dir():
        return _from_folder(path, path.resolve().name, dtype)
    if path.suffix == ".gguf":
        return _from_gguf(path, path.stem, dtype)
    if _HUB_ID.fullmatch(name):
        return _from_folder(download(name), name, dtype)
    if path.name != name:
        raise ValueError(f"{name!r} is neither a folder nor a .gguf file nor a hub id 'org/name'.")
    from kvjax.models.default import model_path

    return _from_gguf(model_path(name), name, dtype)


def _from_folder(folder: Path, name: str, dtype: DTypeLike) -> Model:
    fields, tensors = load_folder(folder)
    config = config_from_hf(fields, where=str(folder / "config.json"))
    params = params_from_tensors(config, tensors, dtype, source=str(folder))
    tokenizer = None
    if any(folder.glob("tokenizer*")):
        from kvjax.models.tokenizer import load_tokenizer

        tokenizer = load_tokenizer(folder)
    return Model(config, params, tokenizer, name, fingerprint(config, params))


def _from_gguf(path: Path, name: str, dtype: DTypeLike) -> Model:
    from kvjax.models.gguf import load_gguf

    fields, tensors, tokenizer = load_gguf(path)
    config = config_from_hf(fields, where=str(path))
    params = params_from_tensors(config, tensors, dtype, source=str(path))
    return Model(config, params, tokenizer, name, fingerprint(config, params))
