"""`kvjax probe`: one context, one compressor, all numbers per token, into an .npz file."""

import argparse
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `kvjax probe`."""
    parser.add_argument("--model", required=True, metavar="M", help="model name, folder or GGUF file")
    parser.add_argument("--tokens", required=True, metavar="IDS.npy", help="token ids: one dimension, whole numbers")
    parser.add_argument("--context", required=True, type=int, metavar="N", help="tokens to prefill and compress")
    parser.add_argument("--compressor", required=True, metavar="SPEC", help="e.g. 'snapkv | uniform(keep=0.5) | fp8'")
    parser.add_argument("--out", required=True, metavar="PROBE.npz", help="where the arrays go")
    parser.add_argument("--reference", action="store_true", help="also KL(uncompressed || compressed) per token")


def execute(arguments: argparse.Namespace) -> None:
    """Measures and writes the arrays.

    Raises:
        ValueError: unusable tokens, context, compressor, model or output path.
    """
    from kvjax.compressor import compressor

    chosen = compressor(arguments.compressor)
    ids = read_tokens(Path(arguments.tokens))
    out = Path(arguments.out)
    if not out.parent.is_dir():
        raise ValueError(f"--out {out}: the folder {out.parent} does not exist")
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder: give the name of a file in it")

    from kvjax.evaluate import continuation_logits, probe
    from kvjax.models import load_model

    model, context, reference = load_model(arguments.model), arguments.context, None
    if arguments.reference:
        reference, _ = continuation_logits(model, ids, context, compressor("dense"))
    probe(model, ids, context, chosen, reference).save(out)


def read_tokens(path: Path) -> Any:
    """Token ids i32 [T] from an .npy file.

    Raises:
        ValueError: no such file, not an .npy file, or not whole numbers in one dimension.
    """
    import numpy as np

    try:
        ids = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise ValueError(f"--tokens {path}: no such file") from None
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"--tokens {path}: not an .npy file of numbers ({error})") from None
    if not isinstance(ids, np.ndarray):
        raise ValueError(f"--tokens {path}: an .npz archive; give one .npy array")
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"--tokens {path}: must be whole numbers in one dimension, got {ids.dtype} {list(ids.shape)}")
    if ids.size and not (0 <= ids.min() and ids.max() < 2**31):
        raise ValueError(f"--tokens {path}: ids must lie in 0..2**31-1, got {ids.min()}..{ids.max()}")
    return ids.astype(np.int32)
