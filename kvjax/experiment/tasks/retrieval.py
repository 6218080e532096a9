"""Task `needle`: a number hidden in the text, asked for after the context was compressed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from kvjax.compressor import Compressor
from kvjax.evaluate import NeedlePrompt, NeedleTask, needle_prompt, retrieve
from kvjax.experiment.config import Needle
from kvjax.models import Model


@dataclass(frozen=True, eq=False)
class Retrieval:
    """Single-needle retrieval by exact match of a hidden number, after RULER (arXiv 2404.06654)."""

    model: Model
    text: Int[np.ndarray, " len"]
    settings: Needle
    seed: int

    def prepare(self, index: int) -> list[NeedlePrompt]:
        """The prompts of batch `index`."""
        settings = self.settings
        task = NeedleTask(settings.prompts, settings.context_tokens, self.seed, settings.query_aware)
        first = index * settings.batch
        batch = range(first, min(first + settings.batch, settings.prompts))
        return [needle_prompt(task, self.model, prompt, self.text) for prompt in batch]

    def measure(self, shared: list[NeedlePrompt], compressor: Compressor) -> dict[str, Any]:
        """Whether each prompt's number was found, with the answers."""
        result = retrieve(self.model, shared, compressor, query_aware=self.settings.query_aware)
        return {
            "found": [int(hit) for hit in result.found],
            "answers": list(result.answers),
            "numbers": [prompt.number for prompt in shared],
            "depths": [prompt.depth for prompt in shared],
        }
