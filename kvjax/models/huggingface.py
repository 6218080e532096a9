"""Hugging Face checkpoints: a folder with config.json and safetensors weights (one file or shards), or a hub id."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from kvjax.models.fields import read_json

_INDEX = "model.safetensors.index.json"
_WANTED = (
    "*config.json",
    "*.safetensors",
    _INDEX,
    "tokenizer*",
    "special_tokens_map.json",
    "chat_template*",
    "*.model",
)


def load_folder(folder: Path) -> tuple[dict[str, Any], Mapping[str, np.ndarray]]:
    """Fields of config.json, and the tensors (read from disk when asked for) under the names in the files.

    Raises:
        ValueError: config.json or weights are missing, only pickled weights are there, or a file is truncated.
    """
    return read_json(folder / "config.json"), SafetensorFiles(_weight_files(folder))


def _weight_files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.is_file():
        return [folder / name for name in sorted(set(_weight_map(index).values()))]
    files = sorted(folder.glob("*.safetensors"))
    if len(files) == 1:
        return files
    if files:
        raise ValueError(f"{folder} holds {len(files)} safetensors files but no {_INDEX} that says how they belong.")
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if pickled:
        raise ValueError(
            f"{folder} holds only pickled weights ({pickled[0]}), which can run code when read and are never loaded. "
            "Convert them: transformers' save_pretrained(folder) writes safetensors."
        )
    raise ValueError(f"{folder} holds no *.safetensors weights.")


def _weight_map(index: Path) -> dict[str, str]:
    content = read_json(index)
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not all(
        isinstance(v, str) and Path(v).name == v for v in weight_map.values()
    ):
        raise ValueError(f"{index}: 'weight_map' must map tensor names to files of the same folder.")
    return weight_map


class SafetensorFiles(Mapping[str, np.ndarray]):
    """The tensors of several safetensors files as one mapping; headers are checked at once, values read on access."""

    def __init__(self, files: list[Path]):
        self._open: dict[str, Any] = {}
        for path in files:
            try:
                handle = safe_open(path, framework="numpy")
            except FileNotFoundError:
                raise ValueError(f"{path} does not exist, though {_INDEX} names it: download it again.") from None
            except SafetensorError as error:
                raise ValueError(f"{path} is truncated or no safetensors file ({error}): download it again.") from None
            for name in handle.keys():
                if name in self._open:
                    raise ValueError(f"{path} holds {name!r}, which another file of the checkpoint holds too.")
                self._open[name] = handle

    def __getitem__(self, name: str) -> np.ndarray:
        tensor: np.ndarray = self._open[name].get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)


def download(hub_id: str) -> Path:
    """Local folder of a hub model, fetched if it is not in the hub cache yet.

    Raises:
        ValueError: huggingface_hub is not installed, the hub cannot be reached, or it has no such model; the message
            says how to use a local folder instead.
    """
    instead = "Or give a local folder with config.json, safetensors weights and tokenizer.json."
    try:
        import huggingface_hub
    except ImportError:
        raise ValueError(f"Hub id {hub_id!r} needs `pip install kvjax[hub]`. {instead}") from None
    try:
        return Path(huggingface_hub.snapshot_download(hub_id, allow_patterns=list(_WANTED)))
    except (OSError, ValueError) as error:  # no connection, no such model, no access: all are OSError or ValueError
        reason = str(error).strip().splitlines()
        raise ValueError(
            f"Cannot fetch {hub_id!r} from the hub ({reason[0] if reason else error!r}). {instead}"
        ) from None
