"""Architectures that are known by name, without weights: one config.json-shaped file each, beside this one."""

import json
from importlib import resources
from pathlib import Path

from kvjax.models.config import ModelConfig
from kvjax.models.fields import read_json
from kvjax.models.hf_config import config_from_hf
from kvjax.suggest import did_you_mean

_FILES = {
    entry.name.removesuffix(".json"): entry
    for entry in resources.files("kvjax.models.architectures").iterdir()
    if entry.name.endswith(".json")
}


def architecture_names() -> tuple[str, ...]:
    """Names that `load_config` knows without any file."""
    return tuple(sorted(_FILES))


def load_config(name_or_path: str | Path) -> ModelConfig:
    """Architecture of a shipped name (`architecture_names`), a folder with config.json, or a config.json-shaped file.

    Names are compared without case and hyphens.

    >>> load_config("llama-2-70b").num_kv_heads
    8

    Raises:
        ValueError: neither a shipped name nor a file, or a config that kvjax cannot describe (names the field).
    """
    path = Path(name_or_path)
    for name, entry in _FILES.items():
        if _plain(name) == _plain(str(name_or_path)):
            return config_from_hf(json.loads(entry.read_text("utf-8")), where=name)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise ValueError(
            f"{str(name_or_path)!r} is neither a shipped architecture nor a folder with a config.json nor such a file; "
            f"{did_you_mean(str(name_or_path), architecture_names())}"
        )
    return config_from_hf(read_json(path), where=str(path))


def _plain(name: str) -> str:
    return name.lower().replace("-", "")
