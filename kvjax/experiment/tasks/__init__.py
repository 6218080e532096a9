"""What a run measures: one file a task, and the bench that opens them all."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvjax.evaluate import default_tokens, fingerprint
from kvjax.experiment.config import Experiment
from kvjax.experiment.tasks.base import Task
from kvjax.experiment.tasks.continuation import Continuation
from kvjax.experiment.tasks.retrieval import Retrieval
from kvjax.experiment.tasks.serving import Serving
from kvjax.models import load_model

TASKS: dict[str, type] = {"serving": Serving, "continuation": Continuation, "needle": Retrieval}
"""Tasks by the name that units and records carry."""


@dataclass(frozen=True)
class Bench:
    """What a run measures with.

    Attributes:
        tasks: By the name that units carry.
        fingerprints: What numbers depend on beside the settings (`model`, `text`); a resumed run must have the same.
    """

    tasks: Mapping[str, Task]
    fingerprints: dict[str, str]


def open_bench(experiment: Experiment) -> Bench:
    """Loads the model and the default text, and sets the experiment's tasks up.

    Raises:
        ValueError: no such model, a model without tokenizer, a context beyond the model's limit.
    """
    model = load_model(experiment.model)
    if model.tokenizer is None:
        raise ValueError(f"{model.name} has no tokenizer, so the default text cannot be read; take another model")
    longest = experiment.context_tokens + experiment.continuation_tokens
    if longest > model.config.max_context:
        raise ValueError(
            f"context_tokens + continuation_tokens = {longest} exceed the limit of {model.name}: "
            f"{model.config.max_context}"
        )
    text = default_tokens(model.tokenizer)
    tasks: dict[str, Task] = {
        "serving": Serving(model.config, model.name, experiment.serving),
        "continuation": Continuation(model, text, experiment),
    }
    if experiment.needle:
        tasks["needle"] = Retrieval(model, text, experiment.needle, experiment.seed)
    return Bench(tasks, {"model": model.fingerprint, "text": fingerprint(text)})
