"""Questions on one compressed context: prefill once, fork, and answer all of them side by side."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import PRNGKeyArray

from kvjax.cache import fork
from kvjax.compressor import Compressor
from kvjax.inference.decoding import generate
from kvjax.inference.prefilling import forward, prefill
from kvjax.inference.sampling import GREEDY, Sampling
from kvjax.models import Model
from kvjax.models.tokenizer import Tokenizer


def split_prompt(model: Model, context: str, question: str) -> tuple[list[int], list[int]]:
    """Ids of a chat prompt in two parts: up to the end of `context`, and from `question` on.

    The two are tokenized apart, so that the first part is the same whatever the question.

    Raises:
        ValueError: the model has no tokenizer or no chat template.
    """
    tokenizer = _tokenizer(model)
    context, question = context.strip(), question.strip()  # as many templates do by themselves
    content = f"{context}\n\n{question}"
    rendered = tokenizer.chat([{"role": "user", "content": content}], add_generation_prompt=True)
    at = rendered.rindex(content) + len(context)
    return (
        tokenizer.encode(rendered[:at], add_bos=False),  # the template writes its own BOS
        tokenizer.encode(rendered[at:], add_bos=False),
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
    done = generate(model, forked, logits[:, -1], max_new_tokens=max_new_tokens, sampling=sampling, key=key)
    answers = [row[:length].tolist() for row, length in zip(done.tokens, done.lengths, strict=True)]
    return [_tokenizer(model).decode(answer) for answer in answers]


def _tokenizer(model: Model) -> Tokenizer:
    if model.tokenizer is None:
        raise ValueError(f"{model.name} has no tokenizer; give token ids to prefill() and forward() instead")
    return model.tokenizer
