"""Decode and prefill speed beside Hugging Face transformers, in one run, on the same weights (needs the `peers` extra).

    python experiments/bench_transformers.py [--contexts 1000 4000] [--rounds 5] [--out FILE.json]

Both sides run SmolLM2-135M in float32 on all cores, batch 1. Rounds alternate between the two, so that whatever else
the machine does hits both; the first round warms up, medians are over the others. transformers uses its SDPA attention
and its own DynamicCache.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import jax
import numpy as np
import torch
from transformers import AutoModelForCausalLM

import kvjax
from kvjax.evaluate import default_tokens
from kvjax.inference.decoding import draw_and_decode
from kvjax.models.default import model_path

STEPS = 64  # tokens a round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, nargs="+", default=[1000, 4000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spec", default="dense")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    model = kvjax.load_model("smollm2-135m")
    path = model_path("smollm2-135m")
    peer = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    tokens = default_tokens(model.tokenizer)
    rows = []
    for context in args.contexts:
        ids = tokens[:context]
        ours, theirs = Ours(model, ids, args.spec), Theirs(peer, ids)
        prefills, decodes = ([], []), ([], [])
        compiled = None
        for _ in range(args.rounds):
            for side, runner in enumerate((ours, theirs)):
                start = time.perf_counter()
                runner.prefill()
                prefills[side].append(time.perf_counter() - start)
                decodes[side].append(runner.decode())
            compiled = compiled or draw_and_decode._cache_size()
        rows.append(
            {
                "context": context,
                "spec": args.spec,
                "prefill_s": [statistics.median(p[1:]) for p in prefills],
                "decode_ms": [1e3 * statistics.median(d[1:]) for d in decodes],
                "recompiles": draw_and_decode._cache_size() - compiled,
            }
        )
        row = rows[-1]
        print(
            f"context {context}: prefill {row['prefill_s'][0]:.2f} s (transformers {row['prefill_s'][1]:.2f}, "
            f"{row['prefill_s'][1] / row['prefill_s'][0]:.2f}x), decode {row['decode_ms'][0]:.1f} ms/token "
            f"(transformers {row['decode_ms'][1]:.1f}, {row['decode_ms'][1] / row['decode_ms'][0]:.2f}x), "
            f"recompiles while decoding {row['recompiles']}",
            flush=True,
        )
    if args.out:
        record = {"rows": rows, "torch": torch.__version__, "jax": jax.__version__, "threads": torch.get_num_threads()}
        args.out.write_text(json.dumps(record, indent=1) + "\n")


class Ours:
    """kvjax through the blocked cache: `generate`, its copy of the cache included."""

    def __init__(self, model: kvjax.models.Model, ids: np.ndarray, spec: str) -> None:
        self.model, self.ids, self.compressor = model, ids, kvjax.compressor(spec)

    def prefill(self) -> None:
        prefilled = kvjax.prefill(self.model, self.ids, self.compressor, max_new_tokens=STEPS)
        self.logits, self.cache = jax.block_until_ready(prefilled)

    def decode(self) -> float:
        start = time.perf_counter()
        done = kvjax.generate(self.model, self.cache, self.logits, max_new_tokens=STEPS, stop_ids=())
        done.logits.block_until_ready()
        return (time.perf_counter() - start) / STEPS


class Theirs:
    """transformers with its default cache, a plain greedy loop (less work a step than its own `generate`)."""

    def __init__(self, model: torch.nn.Module, ids: np.ndarray) -> None:
        self.model, self.ids = model, torch.tensor(ids[None].astype(np.int64))

    @torch.no_grad()
    def prefill(self) -> None:
        out = self.model(self.ids, use_cache=True, logits_to_keep=1)
        self.cache, self.token = out.past_key_values, out.logits[:, -1:].argmax(-1)

    @torch.no_grad()
    def decode(self) -> float:
        start = time.perf_counter()
        for _ in range(STEPS):
            out = self.model(self.token, past_key_values=self.cache, use_cache=True)
            self.token = out.logits[:, -1:].argmax(-1)
            self.token.item()  # as its greedy loop does, to look for a stop token
        return (time.perf_counter() - start) / STEPS


if __name__ == "__main__":
    main()
