"""Questions on one compressed context: prefill once, fork, and answer all of them side by side."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from kvjax.cache import fork
from kvjax.compressor import Compressor
from kvjax.inference.decoding import generate
from kvjax.inference.prefilling import forward, prefill
from kvjax.inference.sampling import GREEDY, Sampling
from kvjax.models import Model


def split_prompt(model: Model, context: str, question: str) -> tuple[list[int], list[int]]:
    """Ids of a chat prompt in two parts: up to the end of `context`, and from `question` on.

    The two are tokenized apart, so that the first part is the same whatever the question.

    Raises:
        ValueError: the model has no tokenizer or no chat template.
    """
    if model.tokenizer is None:
        raise ValueError(f"{model.name} has no tokenizer; give token ids to prefill() and forward() instead")
    content = f"{context}\n\n{question}"
    rendered = model.tokenizer.chat([{"role": "user", "content": content}], add_generation_prompt=True)
    at = rendered.rindex(content) + len(context)
    return (
        model.tokenizer.encode(rendered[:at], add_bos=False),  # the template writes its own BOS
        model.tokenizer.encode(rendered[at:], add_bos=False),
    )


def ask(
    model: Model,
    context: str,
    questions: Sequence[str],
    compressor: Compressor,
    *,
    max_new_tokens: int = 64,
    sampling: Sampling = GREEDY,
    key: PRNGKeyArray | None = None,
) -> list[str]:
    """Answers to several questions about a context that is prefilled and compressed once, before any question is seen.

    Each question continues its own fork of the cache; none sees another or its answer.

    Raises:
        ValueError: no questions, no tokenizer or chat template, or the context limit.
    """
    if not questions:
        raise ValueError("no questions; give at least one")
    prompts = [split_prompt(model, context, question) for question in questions]
    suffixes = [suffix for _, suffix in prompts]
    longest = max(map(len, suffixes))
    _, cache = prefill(model, prompts[0][0], compressor)
    forked = fork(cache, [0] * len(questions), max_new_tokens=longest + max_new_tokens)
    padded = np.array([suffix + [0] * (longest - len(suffix)) for suffix in suffixes], np.int32)
    logits, forked = forward(model, forked, padded, lengths=[len(suffix) for suffix in suffixes])
    done = generate(
        model, forked, logits[:, -1], max_new_tokens=max_new_tokens, sampling=sampling,
        key=jax.random.key(0) if key is None and sampling.temperature == 0 else key,
    )  # fmt: skip
    assert model.tokenizer is not None
    return [
        model.tokenizer.decode(row[:length].tolist()) for row, length in zip(done.tokens, done.lengths, strict=True)
    ]
