"""A bench whose numbers are drawn from the unit's own key: pure, instant, without a model.

As a script, `fake_bench.py OUT KILL_AT`, it runs (resumes) the experiment and kills itself, as SIGKILL would from
outside, in the middle of the KILL_AT-th unit that it measures (never, if that is -1).
"""

import os
import signal
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from kvjax.compressor import Compressor, compressor
from kvjax.experiment.config import Experiment, Needle
from kvjax.experiment.runner import run
from kvjax.experiment.tasks import Bench

EXPERIMENT = Experiment(
    name="tiny",
    compressors=(compressor("bf16"), compressor("fp8"), compressor("knorm | uniform(keep=0.5) | bf16")),
    context_tokens=32,
    continuation_tokens=8,
    contexts=3,
    needle=Needle(prompts=5, context_tokens=40, batch=2),
)


class FakeTask:
    """Numbers from a generator seeded by (task, unit, compressor). `before` is called as a unit is being measured."""

    def __init__(self, name: str, before: Callable[[], None]) -> None:
        self.name, self.before, self.prepared = name, before, []

    def prepare(self, index: int) -> int:
        self.prepared.append(index)
        return index

    def measure(self, index: int, chosen: Compressor) -> dict[str, Any]:
        self.before()
        draw = np.random.default_rng(zlib.crc32(f"{self.name} {index} {chosen}".encode()))
        shared = np.random.default_rng(index)
        tokens = EXPERIMENT.continuation_tokens
        if self.name == "needle":
            left = EXPERIMENT.needle.prompts - index * EXPERIMENT.needle.batch
            return {"found": draw.integers(0, 2, min(left, EXPERIMENT.needle.batch)).tolist()}
        if self.name == "serving":
            return {"ttft": 0.5, "tpot": 0.01, "decode_tokens_per_second": 1600.0}
        reference = shared.gamma(2.0, 1.0, tokens - 1)
        return {
            "context_tokens": EXPERIMENT.context_tokens,
            "nll": (reference + draw.gamma(1.0, 0.1, tokens - 1)).tolist(),
            "reference_nll": reference.tolist(),
            "kl": draw.gamma(1.0, 0.1, tokens).tolist(),
            "agreement": draw.integers(0, 2, tokens).tolist(),
            "nbytes": [int(draw.integers(1000, 2000)), 100],
            "dense_nbytes": 4000,
        }


def opener(before: Callable[[], None] = lambda: None, text: str = "t") -> Callable[[Experiment], Bench]:
    """What `run(bench=...)` takes."""
    tasks = {name: FakeTask(name, before) for name in ("continuation", "needle", "serving")}
    return lambda experiment: Bench(tasks, {"model": "m", "text": text})


def killer(at: int) -> Callable[[], None]:
    """Kills this process at the `at`-th call."""
    calls = iter(range(sys.maxsize))

    def before() -> None:
        if next(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return before


if __name__ == "__main__":
    run(EXPERIMENT, sys.argv[1], resume=True, progress=False, bench=opener(killer(int(sys.argv[2]))))
