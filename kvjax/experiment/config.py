"""The Experiment: one frozen dataclass that says everything a run needs, and its two file forms (.py and .json)."""

import hashlib
import json
import runpy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvjax.compressor import Compressor
from kvjax.experiment import schema


@dataclass(frozen=True)
class Needle:
    """Single-needle retrieval: a fact hidden in the text, asked for at the end.

    Attributes:
        prompts: Number of prompts; needle depth is spread evenly over them.
        context_tokens: Length of each prompt in tokens.
        batch: Prompts a unit of work, so what a kill can lose at most.
        query_aware: Compress the context together with the question, so that a score can see what is asked.
    """

    prompts: int = 8
    context_tokens: int = 1000
    batch: int = 4
    query_aware: bool = False

    def __post_init__(self) -> None:
        _positive(self, "needle.", "prompts", "context_tokens", "batch")


@dataclass(frozen=True)
class Serving:
    """The deployment whose speed the table predicts.

    Attributes:
        hardware: Profile name (see `kvjax list hardware`).
        devices: Devices that share one replica.
        batch: Sequences decoded together.
        input_tokens: Prompt length of each sequence.
        output_tokens: Tokens generated for each sequence.
    """

    hardware: str = "gp7000"
    devices: int = 1
    batch: int = 16
    input_tokens: int = 4096
    output_tokens: int = 256

    def __post_init__(self) -> None:
        _positive(self, "serving.", "devices", "batch", "input_tokens", "output_tokens")


@dataclass(frozen=True)
class Experiment:
    """Which compressors are measured, on which model and text, and for which deployment speed is predicted.

    Attributes:
        name: Short name, part of the run folder's name.
        compressors: Compressor objects; spec strings are taken too and turned into objects.
        model: What `kvjax.load_model` takes.
        context_tokens: Tokens prefilled and compressed, per context.
        continuation_tokens: Tokens after the context that are teacher-forced through the compressed cache.
        contexts: Number of contexts cut from the default text.
        needle: Retrieval settings, or None for no retrieval.
        serving: Deployment for the predicted columns.
        seed: Root of every random choice; each unit of work folds its own index into it.
    """

    name: str
    compressors: tuple[Compressor, ...]
    model: str = "smollm2-135m"
    context_tokens: int = 1024
    continuation_tokens: int = 64
    contexts: int = 4
    needle: Needle | None = field(default_factory=Needle)
    serving: Serving = field(default_factory=Serving)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kind in schema.field_types(type(self)).items():
            object.__setattr__(self, name, schema.convert(getattr(self, name), kind, name))
        _positive(self, "", "context_tokens", "continuation_tokens", "contexts")
        if self.continuation_tokens < 2:
            raise ValueError(
                f"continuation_tokens must be at least 2 (the first one only predicts), got {self.continuation_tokens}"
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must lie in 0..2**32-1, got {self.seed}")
        if not self.name or any(not (c.isalnum() or c in "-_.") for c in self.name) or self.name.startswith("."):
            raise ValueError(f"name must be letters, digits, '-', '_' or '.', not starting with '.', got {self.name!r}")
        if not self.compressors:
            raise ValueError("compressors must hold at least one compressor, got none")
        specs = [str(item) for item in self.compressors]
        for spec in specs:
            if specs.count(spec) > 1:
                raise ValueError(f"compressors holds {spec!r} twice; each may appear once")

    @property
    def id(self) -> str:
        """First 12 hex digits of the SHA-256 of the canonical JSON: equal settings, equal id."""
        return settings_id(schema.plain(self))

    def to_json(self) -> str:
        """Content of config.json; `from_json` gives an equal Experiment back."""
        return json.dumps(schema.plain(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Experiment":
        """Reads config.json's content.

        Raises:
            ValueError: broken JSON, unknown or missing field, wrong type, unusable value.
        """
        try:
            data = json.loads(text, object_pairs_hook=_no_duplicates)
        except json.JSONDecodeError as error:
            raise ValueError(f"not valid JSON: {error}") from None
        return schema.build(cls, data)


def settings_id(settings: Mapping[str, object]) -> str:
    """Id of an experiment from the content of its config.json (see `Experiment.id`)."""
    canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def load_experiment(path: str | Path) -> Experiment:
    """Reads a config: a `.py` file with `config() -> Experiment`, a `.json` file, or a run folder holding config.json.

    Raises:
        ValueError: no such file, unknown kind of file, no `config` in it, or unusable settings.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise ValueError(f"no config at {path}: give a .py file with config() -> Experiment, or a config.json")
    if path.suffix == ".json":
        try:
            return Experiment.from_json(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    if path.suffix != ".py":
        raise ValueError(f"{path}: a config ends in .py or .json, not {path.suffix!r}")
    try:
        config = runpy.run_path(str(path)).get("config")
        if not callable(config):
            raise ValueError("has no function config() -> Experiment")
        experiment = config()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except Exception as error:  # a config is the user's own code: whatever it raises is reported with its file
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
    if not isinstance(experiment, Experiment):
        raise ValueError(f"{path}: config() must return an Experiment, got {type(experiment).__name__}")
    return experiment


def _positive(settings: object, prefix: str, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if type(value) is not int or value < 1:
            raise ValueError(f"{prefix}{name} must be a whole number of at least 1, got {value!r}")


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"field {name!r} is given twice")
        result[name] = value
    return result
