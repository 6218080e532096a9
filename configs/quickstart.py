"""The default experiment: seven ways to hold the cache of a small real model, in a few minutes on two CPU cores."""

from kvjax.compressor import compressor
from kvjax.experiment import Experiment, Needle

SPECS = (
    "bf16",
    "fp8",
    "k16v8",
    "snapkv | uniform(keep=0.5) | bf16",
    "snapkv | uniform(keep=0.25) | bf16",
    "knorm | uniform(keep=0.5) | bf16",
    "knorm | uniform(keep=0.25) | bf16",
    "streaming_llm | uniform(keep=0.5) | bf16",
    "streaming_llm | uniform(keep=0.25) | bf16",
)


def config() -> Experiment:
    """SmolLM2-135M on four stretches of the default text and eight needles."""
    return Experiment(
        name="quickstart",
        model="smollm2-135m",
        compressors=tuple(compressor(spec) for spec in SPECS),
        context_tokens=1024,
        continuation_tokens=64,
        contexts=4,
        needle=Needle(prompts=8, context_tokens=1000),
    )
