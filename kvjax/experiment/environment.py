"""What a run depended on beside its settings: versions, commit, device."""

import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

PACKAGES = ("kvjax", "jax", "jaxlib", "numpy", "flax", "gguf", "safetensors", "tokenizers")


def session() -> dict[str, Any]:
    """Versions, commit and device of this process, as plain data for env.json."""
    device = jax.devices()[0]
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "versions": {name: _version(name) for name in PACKAGES},
        "commit": commit(Path(__file__)),
        "device": {"platform": device.platform, "kind": device.device_kind, "count": jax.device_count()},
    }


def commit(source: Path) -> str | None:
    """Git commit that holds a source file, with `+changes` if tracked files of its folder differ from it.

    None where git does not track the file (an installed package) or is not there.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(source.parent), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", source.name)
        changes = git("status", "--porcelain", "--untracked-files=no", "--", ":/kvjax")
        return git("rev-parse", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
