"""From a config to a run folder, a table and plots; and the command line.

Names are imported when first used, so that `kvjax --help` does not wait for JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvjax.experiment.config import Experiment, Needle, Serving, load_experiment
    from kvjax.experiment.records import RunFault, RunFolder
    from kvjax.experiment.runner import RunResult, run

_HOMES = {
    "Experiment": "config",
    "Needle": "config",
    "RunFault": "records",
    "RunFolder": "records",
    "RunResult": "runner",
    "Serving": "config",
    "load_experiment": "config",
    "run": "runner",
}

__all__ = ["Experiment", "Needle", "RunFault", "RunFolder", "RunResult", "Serving", "load_experiment", "run"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
