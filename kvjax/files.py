"""Writing files so that a kill or a full disk never leaves half of one."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file open for writing that takes its place at `path` when the block ends, or not at all if the block raises.

    It is a temporary file beside `path`, synced, then renamed over it.

    Raises:
        OSError: the folder does not exist or is not writable, or the disk is full; the old file, if any, is untouched.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with temporary.open("xb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink()
            raise


def write_atomic(path: Path, content: str | bytes) -> None:
    """Writes a whole file or nothing; text as UTF-8.

    Raises:
        OSError: the folder does not exist or is not writable, or the disk is full; the old file, if any, is untouched.
    """
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
