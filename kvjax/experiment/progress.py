"""Visible progress: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Tracker:
    """Counts finished units on stderr. Use as a context manager; `show=False` keeps it silent."""

    def __init__(self, total: int, *, done: int = 0, show: bool = True) -> None:
        self._total = total
        self._done = done
        self._show = show
        self._start = time.monotonic()
        console = Console(stderr=True)
        self._bar: Progress | None = None
        if show and console.is_terminal:
            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, TextColumn("{task.description}"), console=console)
            self._task = self._bar.add_task("starting", total=total, completed=done)

    def __enter__(self) -> "Tracker":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def note(self, text: str) -> None:
        """Says what is being done now."""
        if self._bar:
            self._bar.update(self._task, description=text)

    def advance(self, text: str) -> None:
        """Counts one finished unit."""
        self._done += 1
        if self._bar:
            self._bar.update(self._task, advance=1, description=text)
        elif self._show:
            elapsed = time.monotonic() - self._start
            print(f"[{self._done}/{self._total}] {elapsed:6.1f} s  {text}", file=sys.stderr, flush=True)
