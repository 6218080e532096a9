"""The run folder: config.json, env.json, metrics.jsonl (append only), table.md, plots.

metrics.jsonl holds one JSON object a line, one line a finished unit of work, synced before the next unit starts. A
kill can only tear the last line, which is then dropped and done again.
"""

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvjax.experiment.config import Experiment, settings_id
from kvjax.files import write_atomic

Record = dict[str, Any]


class RunFault(RuntimeError):
    """Something outside the settings failed during a run (a full disk, a lost folder). Finished units are kept."""


@dataclass(frozen=True)
class RunFolder:
    """Where one experiment keeps its records. `create` or `open` makes one; nothing is cached in it."""

    path: Path

    @classmethod
    def create(cls, path: str | Path, experiment: Experiment, *, resume: bool = False) -> "RunFolder":
        """Makes the folder, or takes up one that holds records of the same experiment with `resume`.

        A run folder without any record holds nothing to lose and is taken as if new; so settings that turn out to be
        unusable can be mended and run into the same folder.

        Raises:
            ValueError: the folder holds records of another experiment, records of this one while `resume` is false,
                or other files; or it cannot be written.
        """
        folder = cls(Path(path))
        metrics = folder.path / "metrics.jsonl"
        try:
            if metrics.is_file() and metrics.stat().st_size:
                held = folder.settings()
                if settings_id(held) != experiment.id:
                    raise ValueError(
                        f"{path} holds another experiment ({held.get('name')}, {settings_id(held)}; this one is "
                        f"{experiment.name}, {experiment.id}): choose another folder with --out"
                    )
                if not resume:
                    raise ValueError(
                        f"{path} already holds this experiment: add --resume to continue it, or choose another "
                        f"folder with --out"
                    )
            elif folder.path.exists() and not metrics.is_file() and any(folder.path.iterdir()):
                raise ValueError(f"{path} exists and is no run folder: choose another with --out")
            folder.path.mkdir(parents=True, exist_ok=True)
            metrics.open("ab").close()
        except OSError as error:
            raise ValueError(f"cannot write to {path} ({error.strerror}): choose another folder with --out") from error
        return folder

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """An existing run folder, to read.

        Raises:
            ValueError: it is no run folder.
        """
        path = Path(path)
        if not (path / "config.json").is_file() or not (path / "metrics.jsonl").is_file():
            raise ValueError(f"{path} is no run folder (config.json and metrics.jsonl expected); `kvjax run` makes one")
        return cls(path)

    def settings(self) -> dict[str, Any]:
        """Content of config.json as plain data: it may name a compressor that only the config's own file knows.

        Raises:
            ValueError: it is not a JSON object.
        """
        path = self.path / "config.json"
        try:
            settings = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(settings, dict):
                raise ValueError("not an object")
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}): restore it or start anew") from None
        return settings

    def environment(self) -> dict[str, Any]:
        """Content of env.json, {} before the first session has written it."""
        path = self.path / "env.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def begin_session(self, experiment: Experiment, fingerprints: dict[str, str], session: dict[str, Any]) -> None:
        """Writes config.json, and to env.json what records depend on (fingerprints) and this session's machine.

        Raises:
            ValueError: earlier records were made with another model or text, so numbers would not belong together.
            RunFault: the folder cannot be written.
        """
        environment = (self.records() and self.environment()) or {"fingerprints": fingerprints, "sessions": []}
        for name, value in fingerprints.items():
            held = environment["fingerprints"].get(name)
            if held != value:
                raise ValueError(
                    f"{self.path} was begun with another {name} ({held}, now {value}): start anew in another "
                    f"folder with --out"
                )
        environment["sessions"].append(session)
        self.write("config.json", experiment.to_json())
        self.write("env.json", json.dumps(environment, indent=2) + "\n")

    def write(self, name: str, content: str | bytes) -> None:
        """Writes one file of the folder atomically.

        Raises:
            RunFault: the folder cannot be written.
        """
        try:
            write_atomic(self.path / name, content)
        except OSError as error:
            raise self._fault(error) from error

    def records(self) -> list[Record]:
        """All finished units in the order they were finished; a torn last line is left out.

        Raises:
            ValueError: a line before the last one is not a JSON object.
        """
        return _parse_lines((self.path / "metrics.jsonl").read_bytes(), self.path / "metrics.jsonl")[0]

    def writer(self) -> "MetricsWriter":
        """Opens metrics.jsonl for appending; drops a torn last line first.

        Raises:
            ValueError: another process is writing to this folder.
            RunFault: the file cannot be written.
        """
        try:
            return MetricsWriter(self)
        except OSError as error:
            raise self._fault(error) from error

    def _fault(self, error: OSError) -> RunFault:
        return RunFault(
            f"cannot write to {self.path} ({error.strerror}); finished units are kept: free space or fix the folder, "
            f"then run again with --resume"
        )


class MetricsWriter:
    """Appends records, one synced line each. Holds a lock on the file, so that two runs cannot mix their lines."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        path = folder.path / "metrics.jsonl"
        self._file = os.open(path, os.O_RDWR | os.O_APPEND)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise ValueError(f"another kvjax run is writing to {folder.path}: wait for it, or choose --out") from None
        os.ftruncate(self._file, _parse_lines(path.read_bytes(), path)[1])

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._file)

    def append(self, record: Record) -> None:
        """Adds one line and waits until it is on the disk.

        Raises:
            RunFault: the disk is full or the file is gone; the line is taken back, earlier ones stay.
        """
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        end = os.fstat(self._file).st_size
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(self._file, view) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, end)
            raise self._folder._fault(error) from error


def _parse_lines(data: bytes, path: Path) -> tuple[list[Record], int]:
    """Records of all whole lines, and how many bytes they take."""
    records: list[Record] = []
    whole = 0
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError("not an object")
        except ValueError as error:
            if number == len(lines) - 1 and not lines[-1]:
                break
            raise ValueError(f"{path}, line {number} is damaged ({error}): restore it or start anew") from None
        records.append(record)
        whole += len(line) + 1
    return records, whole
