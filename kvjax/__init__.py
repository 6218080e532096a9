"""kvjax: KV-cache compression research in JAX.

For this model and this workload, which compressor keeps the answers, how many bytes does it really hold, and how fast
would it be on this accelerator?

    model = kvjax.load_model("smollm2-135m")
    compressor = kvjax.compressor("snapkv | uniform(keep=0.5) | fp8")
    logits, cache = kvjax.prefill(model, tokens, compressor, max_new_tokens=64)
    kvjax.generate(model, cache, logits, max_new_tokens=64).tokens

Heavier names are imported when they are first used, so that `import kvjax` and the command line start quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

# Imported now, so that `kvjax.compressor` is the function and not the module of the same name.
from kvjax.compressor import Compressor, compressor

if TYPE_CHECKING:
    from kvjax import evaluate as evaluate
    from kvjax.experiment import run as run
    from kvjax.inference import ask as ask
    from kvjax.inference import decode as decode
    from kvjax.inference import forward as forward
    from kvjax.inference import generate as generate
    from kvjax.inference import prefill as prefill
    from kvjax.models import load_model as load_model

__version__ = "0.1.0"
__all__ = ["Compressor", "compressor"]

_HOMES = {
    "ask": "kvjax.inference",
    "decode": "kvjax.inference",
    "forward": "kvjax.inference",
    "generate": "kvjax.inference",
    "load_model": "kvjax.models",
    "prefill": "kvjax.inference",
    "run": "kvjax.experiment",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "evaluate":
        return importlib.import_module("kvjax.evaluate")
    raise AttributeError(f"module 'kvjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, "evaluate"])
