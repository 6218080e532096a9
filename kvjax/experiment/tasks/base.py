"""A measured task, as the runner sees it: prepare what all compressors share, then measure one compressor."""

from typing import Any, Protocol, runtime_checkable

from kvjax.compressor import Compressor


@runtime_checkable
class Task(Protocol):
    """One kind of unit. Both methods are pure: the same arguments always give the same numbers."""

    def prepare(self, index: int) -> Any:
        """What unit `index` needs whatever the compressor is: its text, the uncompressed reference."""
        ...

    def measure(self, shared: Any, compressor: Compressor) -> dict[str, Any]:
        """Plain data (numbers, text, lists) for one line of metrics.jsonl."""
        ...
