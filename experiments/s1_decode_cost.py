"""S1: what a token costs with and without a KV cache, over the length of the context.

    python experiments/s1_decode_cost.py [--contexts 256 512 1024 2048 4096] [--out papers/gp7000]

The document says O(n) with the cache and O(n^2) without. With it a token costs one decode step, without it the whole
sequence is run again. Both are measured on the default model in float32, medians of repeated runs.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import jax
import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import kvjax
from kvjax.evaluate import default_tokens

STEPS = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("papers/gp7000"))
    args = parser.parse_args()
    model = kvjax.load_model("smollm2-135m")
    tokens = default_tokens(model.tokenizer)
    rows = []
    for context in args.contexts:
        cached, uncached = measure(model, tokens[:context], args.repeats)
        rows.append({"context": context, "with_cache_ms": cached, "without_cache_ms": uncached})
        print(f"context {context}: with cache {cached:.1f} ms/token, without {uncached:.0f} ms/token", flush=True)
    fits = fit(rows)
    print(
        f"with cache: {fits['cache_base_ms']:.1f} ms + {fits['cache_ms_per_1k']:.2f} ms per 1,000 tokens "
        f"(R^2 of the line {fits['cache_r2']:.4f}); a whole sequence of n tokens costs n^{fits['sequence_power']:.2f} "
        f"without cache, n^{fits['cached_sequence_power']:.2f} with it"
    )
    args.out.mkdir(parents=True, exist_ok=True)
    record = {"rows": rows, **fits, "jax": jax.__version__}
    (args.out / "s1_decode_cost.json").write_text(json.dumps(record, indent=1) + "\n")
    plot(rows, fits, args.out / "s1_decode_cost.png")


def measure(model: kvjax.models.Model, ids: np.ndarray, repeats: int) -> tuple[float, float]:
    """Milliseconds for the token after `ids`, with the cache and by running everything again."""
    uncached, cached = [], []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        logits, cache = kvjax.prefill(model, ids, kvjax.compressor("dense"), max_new_tokens=STEPS)
        logits.block_until_ready()
        uncached.append(time.perf_counter() - start)
        start = time.perf_counter()
        kvjax.generate(model, cache, logits, max_new_tokens=STEPS, stop_ids=()).logits.block_until_ready()
        cached.append((time.perf_counter() - start) / STEPS)
    return 1e3 * statistics.median(cached[1:]), 1e3 * statistics.median(uncached[1:])


def fit(rows: list[dict[str, float]]) -> dict[str, float]:
    """A line through the cost with cache; powers of the cost of generating a whole sequence of n tokens."""
    n = np.array([row["context"] for row in rows], float)
    with_cache, without = (np.array([row[key] for row in rows]) for key in ("with_cache_ms", "without_cache_ms"))
    slope, base = np.polyfit(n, with_cache, 1)
    residual = with_cache - (slope * n + base)

    def sequence(cost: np.ndarray) -> np.ndarray:
        """Cost of the first n tokens together, the measured points joined by lines from (0, first cost)."""
        steps = np.diff(n, prepend=0) * (cost + np.concatenate([cost[:1], cost[:-1]])) / 2
        return np.cumsum(steps)

    def power(cost: np.ndarray) -> float:
        """Exponent of the last two points, where constants matter least."""
        return float(np.log(cost[-1] / cost[-2]) / np.log(n[-1] / n[-2]))

    return {
        "cache_ms_per_1k": 1e3 * slope,
        "cache_base_ms": base,
        "cache_r2": 1 - residual.var() / with_cache.var(),
        "token_power": power(without),
        "sequence_power": power(sequence(without)),
        "cached_sequence_power": power(sequence(with_cache)),
    }


def plot(rows: list[dict[str, float]], fits: dict[str, float], path: Path) -> None:
    n = np.array([row["context"] for row in rows])
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot(n, [row["with_cache_ms"] for row in rows], "o", label="measured")
    left.plot(n, fits["cache_base_ms"] + fits["cache_ms_per_1k"] * n / 1e3, "-", label="line")
    left.set(
        title="With the cache: a token costs a constant plus O(n)",
        xlabel="context (tokens)",
        ylabel="ms per token",
        ylim=0,
    )
    left.legend()
    right.loglog(n, [row["without_cache_ms"] for row in rows], "s-", label="without cache: the sequence runs again")
    right.loglog(n, [row["with_cache_ms"] for row in rows], "o-", label="with cache")
    right.set(title="The next token's cost", xlabel="context (tokens)", ylabel="ms per token", xticks=n, xticklabels=n)
    right.minorticks_off()
    right.legend()
    figure.suptitle("SmolLM2-135M, float32, 2 CPU cores, batch 1")
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
