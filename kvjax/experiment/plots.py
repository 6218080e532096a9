"""Pictures of a run folder: divergence against bytes, and retrieval accuracy."""

import io
from collections.abc import Sequence

from matplotlib.figure import Figure

from kvjax.experiment.config import Experiment
from kvjax.experiment.table import Row

SIZE, DPI = (8.5, 4.2), 160
MARKERS = "osD^v<>PX*"
KL_FLOOR = 1e-6
"""Drawn in place of anything smaller, so that an exact cache still has a place on a logarithmic axis."""


def draw(experiment: Experiment, rows: Sequence[Row]) -> dict[str, bytes]:
    """PNG files by name: `kl.png` always, `needle.png` if retrieval was measured."""
    pictures = {"kl.png": divergence(experiment, rows)}
    if experiment.needle:
        pictures["needle.png"] = retrieval(experiment, rows)
    return {name: _png(figure) for name, figure in pictures.items()}


def divergence(experiment: Experiment, rows: Sequence[Row]) -> Figure:
    """KL with its interval against resident bytes a token; one colour and marker a compressor."""
    figure = Figure(SIZE, layout="constrained")
    axes = figure.subplots()
    for number, row in enumerate(rows):
        kl, low, high = (max(value, KL_FLOOR) for value in (row.kl.estimate, row.kl.low, row.kl.high))
        axes.errorbar(
            row.bytes_per_token / 1024,
            kl,
            [[max(kl - low, 0)], [max(high - kl, 0)]],
            fmt=MARKERS[number % len(MARKERS)],
            color=f"C{number % 10}",
            capsize=3,
            label=row.compressor,
        )
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.set_xlabel("resident KiB per context token")
    axes.set_ylabel("KL(uncompressed || compressed), nats")
    axes.set_title(f"{experiment.model}: divergence against bytes (95 % intervals)", fontsize=10)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=7)
    return figure


def retrieval(experiment: Experiment, rows: Sequence[Row]) -> Figure:
    """Share of needles found, one bar a compressor."""
    figure = Figure(SIZE, layout="constrained")
    axes = figure.subplots()
    found = [(row.compressor, row.needle) for row in reversed(rows) if row.needle]
    for place, (_, interval) in enumerate(found):
        spread = [[interval.estimate - interval.low], [interval.high - interval.estimate]]
        axes.barh(place, interval.estimate, xerr=spread, capsize=3, color="C0", alpha=0.8)
    axes.set_yticks(range(len(found)), [name for name, _ in found], fontsize=7)
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("needles found (95 % intervals)")
    if experiment.needle:
        size = f"{experiment.needle.prompts} prompts of {experiment.needle.context_tokens:,} tokens"
        axes.set_title(f"{experiment.model}: single needle, {size}", fontsize=10)
    axes.grid(axis="x", alpha=0.3)
    return figure


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()
