"""Single-needle retrieval: a city's secret number is hidden in the default text and asked for afterwards.

After "Needle in a Haystack" (Kamradt 2023), in the form of RULER's single needle: a number of seven digits, and an
answer whose start is given (Hsieh et al. 2024, arXiv 2404.06654).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from kvjax.compressor import Compressor
from kvjax.evaluate.text import default_tokens
from kvjax.inference import forward, generate, prefill
from kvjax.models import Model

CITIES = (
    "Paris", "London", "Tokyo", "Berlin", "Madrid", "Rome", "Cairo", "Sydney", "Toronto", "Moscow",
    "Vienna", "Dublin", "Athens", "Oslo", "Lima", "Boston", "Chicago", "Seattle", "Denver", "Dallas",
)  # fmt: skip
DIGITS = 7
NEEDLE = "The secret number of {city} is {number}."
QUESTION = "What is the secret number of {city}?"
ANSWER = "The secret number of {city} is"  # the answer's start is given, so that what is decoded is the number
ANSWER_TOKENS = 12


@dataclass(frozen=True)
class NeedleTask:
    """Single-needle retrieval, scored by exact match of the number.

    Attributes:
        prompts: How many; needle depths are spread over them, one at random in each `1 / prompts` of the context.
        context_tokens: Tokens of each context, the needle and the head of the chat template included.
        seed: Of cities, numbers, haystacks and depths.
        query_aware: Whether the question is part of the context that is compressed, so that a score can see it. By
            default it is not: the context is compressed first, and the question comes to the compressed cache.
    """

    prompts: int
    context_tokens: int
    seed: int = 0
    query_aware: bool = False

    def __post_init__(self) -> None:
        for name in ("prompts", "context_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, got {self.seed}")


@dataclass(frozen=True)
class NeedlePrompt:
    """One prompt as token ids: the context with the needle, then the question with the answer's start.

    `depth` is where the needle stands: 0 at the start of the haystack, 1 at its end.
    """

    context: tuple[int, ...]
    question: tuple[int, ...]
    number: str
    depth: float


@dataclass(frozen=True)
class NeedleResult:
    """Greedy answers, whether each holds the number, and whether the compressor could see the question."""

    answers: tuple[str, ...]
    found: tuple[bool, ...]
    query_aware: bool


def needle_prompt(
    task: NeedleTask, model: Model, index: int, haystack: Int[np.ndarray, " T"] | None = None
) -> NeedlePrompt:
    """Prompt `index` of a task: a pure function of task, tokenizer and haystack.

    The needle is a paragraph of its own, put at the last line's end at or before its depth. The text around it starts
    at a random token.

    Args:
        task: What to ask.
        model: Its tokenizer and chat template are used.
        index: 0 .. task.prompts - 1.
        haystack: Token ids to take text from; the default text if absent.

    Raises:
        ValueError: no such prompt, a model without tokenizer or chat template, a context too short for the needle, a
            haystack too short for the context.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ValueError(f"{model.name} has no tokenizer; needle retrieval needs one with a chat template")
    if not 0 <= index < task.prompts:
        raise ValueError(f"prompt index must lie in 0..{task.prompts - 1}, got {index}")
    text = default_tokens(tokenizer) if haystack is None else haystack
    draw = np.random.default_rng([task.seed, index])
    city = CITIES[draw.integers(len(CITIES))]
    number = str(draw.integers(10 ** (DIGITS - 1), 10**DIGITS))

    # The pieces are tokenized apart, so that the context is the same whatever the question.
    needle, question, answer = (s.format(city=city, number=number) for s in (NEEDLE, QUESTION, ANSWER))
    message = {"role": "user", "content": f"{needle}\n\n{question}"}
    before, _, after = tokenizer.chat([message], add_generation_prompt=True).partition(needle)
    head, paragraph, tail = (tokenizer.encode(s, add_bos=False) for s in (before, f"\n{needle}\n\n", after + answer))

    size = task.context_tokens - len(head) - len(paragraph)
    if size < 1:
        raise ValueError(
            f"context_tokens={task.context_tokens} leaves no room for text: template and needle take "
            f"{len(head) + len(paragraph)} tokens"
        )
    if size > len(text):
        raise ValueError(f"the haystack has {len(text)} tokens; context_tokens={task.context_tokens} needs {size}")
    start = int(draw.integers(len(text) - size + 1))
    hay = text[start : start + size].tolist()
    wanted = (index + draw.random()) / task.prompts * size
    line_ends = [at + 1 for at, token in enumerate(hay) if at < wanted and tokenizer.decode([token]).endswith("\n")]
    place = line_ends[-1] if line_ends else 0
    context = [*head, *hay[:place], *paragraph, *hay[place:]]
    return NeedlePrompt(tuple(context), tuple(tail), number, place / size)


def retrieve(
    model: Model, prompts: Sequence[NeedlePrompt], compressor: Compressor, *, query_aware: bool = False
) -> NeedleResult:
    """Answer prompts in one batch: compress, then decode greedily, at most 12 tokens each.

    Args:
        model: From `load_model`.
        prompts: From `needle_prompt`; their lengths may differ.
        compressor: Holds the context.
        query_aware: Compress the context together with the question (see `NeedleTask`).

    Raises:
        ValueError: no prompts; a context that is too long for the model or too short for the compressor.
    """
    if not prompts:
        raise ValueError("no prompts; give at least one")
    if model.tokenizer is None:
        raise ValueError(f"{model.name} has no tokenizer; needle retrieval needs one with a chat template")
    if query_aware:
        tokens, lengths = _padded([prompt.context + prompt.question for prompt in prompts])
        logits, cache = prefill(model, tokens, compressor, lengths=lengths, max_new_tokens=ANSWER_TOKENS)
    else:
        tokens, lengths = _padded([prompt.context for prompt in prompts])
        questions, question_lengths = _padded([prompt.question for prompt in prompts])
        _, cache = prefill(
            model, tokens, compressor, lengths=lengths, max_new_tokens=questions.shape[1] + ANSWER_TOKENS
        )
        all_logits, cache = forward(model, cache, questions, lengths=question_lengths)
        logits = all_logits[:, -1]
    done = generate(model, cache, logits, max_new_tokens=ANSWER_TOKENS)
    answers = tuple(model.tokenizer.decode(row[row >= 0].tolist()) for row in done.tokens)
    found = tuple(is_found(answer, prompt.number) for answer, prompt in zip(answers, prompts, strict=True))
    return NeedleResult(answers, found, query_aware)


def needle(
    model: Model,
    task: NeedleTask,
    compressor: Compressor,
    *,
    haystack: Int[np.ndarray, " T"] | None = None,
    batch: int = 4,
) -> NeedleResult:
    """All prompts of a task, `batch` at a time. Arguments and errors as `needle_prompt` and `retrieve`."""
    if batch < 1:
        raise ValueError(f"batch must be 1 or more, got {batch}")
    if haystack is None and model.tokenizer is not None:
        haystack = default_tokens(model.tokenizer)  # once for all prompts
    prompts = [needle_prompt(task, model, index, haystack) for index in range(task.prompts)]
    parts = [
        retrieve(model, prompts[start : start + batch], compressor, query_aware=task.query_aware)
        for start in range(0, len(prompts), batch)
    ]
    answers, found = (tuple(x for part in parts for x in getattr(part, name)) for name in ("answers", "found"))
    return NeedleResult(answers, found, task.query_aware)


def is_found(answer: str, number: str) -> bool:
    """Whether the first number in an answer is the one that was asked for; commas between thousands are ignored.

    >>> is_found("It is 12,345.", "12345"), is_found("It is 123456.", "12345"), is_found("1. 12345", "12345")
    (True, False, False)
    """
    first = re.search(r"\d+", answer.replace(",", ""))
    return first is not None and first.group() == number


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Int[np.ndarray, "B T"], list[int]]:
    """Rows of ids padded on the right, and their lengths."""
    lengths = [len(row) for row in rows]
    tokens = np.zeros((len(rows), max(lengths)), np.int32)
    for row, ids in enumerate(rows):
        tokens[row, : len(ids)] = ids
    return tokens, lengths
