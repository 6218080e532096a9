"""Needle prompts by their construction; answers against plain greedy decoding without any cache."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

import kvjax.evaluate  # noqa: F401
from kvjax import compressor
from kvjax.evaluate import NeedleTask, needle, needle_prompt, retrieve
from kvjax.models import Model, load_model, logits

module = sys.modules["kvjax.evaluate.needle"]
TASK = NeedleTask(prompts=4, context_tokens=300, seed=7)
LINES = "a line of text that fills\n" * 40


@pytest.fixture(scope="module")
def haystack(chatty):
    return np.array(chatty.tokenizer.encode(LINES), np.int32)


@pytest.fixture(scope="module")
def prompts(chatty, haystack):
    return [needle_prompt(TASK, chatty, index, haystack) for index in range(TASK.prompts)]


def test_context_has_just_the_asked_length_and_one_needle(chatty, prompts):
    for prompt in prompts:
        assert len(prompt.context) == TASK.context_tokens
        text = chatty.tokenizer.decode(prompt.context)
        before, found, after = text.partition(f"is {prompt.number}.\n\n")
        assert found and prompt.number not in before + after
        assert before.splitlines()[-1].startswith("The ")  # a paragraph of its own


def test_context_then_question_is_the_chat_prompt(chatty, prompts):
    for prompt in prompts:
        text = chatty.tokenizer.decode(prompt.context + prompt.question, skip_special=False)
        assert text.startswith("<s>user\n")
        city = next(city for city in module.CITIES if city in text)
        end = f"\n\nWhat is the secret number of {city}?</s><s>assistant\nThe secret number of {city} is"
        assert chatty.tokenizer.decode(prompt.question, skip_special=False) == end


def test_depths_are_spread(prompts):
    """Prompt i of 4 stands in the i-th quarter, moved to the line's start at most 26 of more than 200 tokens before."""
    for index, prompt in enumerate(prompts):
        assert index / 4 - 26 / 200 <= prompt.depth <= (index + 1) / 4


def test_prompts_are_a_function_of_seed_and_index(chatty, haystack, prompts):
    assert needle_prompt(TASK, chatty, 2, haystack) == prompts[2]
    assert len({prompt.number for prompt in prompts}) == TASK.prompts
    other = needle_prompt(NeedleTask(prompts=4, context_tokens=300, seed=8), chatty, 2, haystack)
    assert other.number != prompts[2].number


def greedy(model: Model, ids: list[int]) -> str:
    """One full forward pass a token, no cache."""
    answer: list[int] = []
    for _ in range(module.ANSWER_TOKENS):
        padded = np.zeros((1, model.config.max_context), np.int32)
        padded[0, : len(ids) + len(answer)] = [*ids, *answer]  # one shape; causality hides what comes after
        row = logits(model.config, model.params, jnp.asarray(padded))[0, len(ids) + len(answer) - 1]
        token = int(row.argmax())
        if token in model.tokenizer.eos_ids:
            break
        answer.append(token)
    return model.tokenizer.decode(answer)


@pytest.mark.parametrize("query_aware", [False, True])
def test_dense_answers_are_plain_greedy_decoding(chatty, prompts, query_aware):
    """Both layouts, in a batch whose contexts and questions have different lengths."""
    short = module.NeedlePrompt(prompts[1].context[9:], prompts[1].question[4:], "1", 0.0)
    batch = [prompts[0], short]
    result = retrieve(chatty, batch, compressor("dense"), query_aware=query_aware)
    assert result.query_aware is query_aware
    assert list(result.answers) == [greedy(chatty, [*p.context, *p.question]) for p in batch]


def test_G02_query_aware_decides_what_is_compressed(chatty, prompts, monkeypatch):
    compressed = []

    def recording(model, tokens, *args, lengths, **kwargs):
        compressed.append([tuple(row[:length]) for row, length in zip(tokens.tolist(), lengths, strict=True)])
        raise StopIteration

    monkeypatch.setattr(module, "prefill", recording)
    for query_aware in (False, True):
        with pytest.raises(StopIteration):
            retrieve(chatty, prompts[:1], compressor("knorm | uniform(keep=0.5)"), query_aware=query_aware)
    assert compressed == [[prompts[0].context], [prompts[0].context + prompts[0].question]]


def test_a_whole_task_joins_its_batches(chatty, haystack, monkeypatch):
    def one(model, prompts, chosen, *, query_aware):
        numbers = tuple(prompt.number for prompt in prompts)
        return module.NeedleResult(numbers, tuple(int(number) % 2 == 0 for number in numbers), query_aware)

    monkeypatch.setattr(module, "retrieve", one)
    result = needle(chatty, TASK, compressor("dense"), haystack=haystack, batch=3)
    numbers = [needle_prompt(TASK, chatty, index, haystack).number for index in range(4)]
    assert list(result.answers) == numbers
    assert list(result.found) == [int(number) % 2 == 0 for number in numbers]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("The secret number of Paris is 12345.", True),
        (" 12,345", True),
        ("12345", True),
        ("123456", False),
        ("012345", False),
        ("1234", False),
        ("99999, not 12345", False),
        ("I do not know.", False),
        ("", False),
    ],
)
def test_scoring_takes_the_first_number_exactly(answer, found):
    assert module.is_found(answer, "12345") is found


def test_bad_input(chatty, haystack, recorded):
    for arguments, message in (
        ({"prompts": 0, "context_tokens": 10}, "prompts must be 1 or more"),
        ({"prompts": 1, "context_tokens": 0}, "context_tokens must be 1 or more"),
        ({"prompts": 1, "context_tokens": 10, "seed": -1}, "seed must be 0 or more"),
    ):
        with pytest.raises(ValueError, match=message):
            NeedleTask(**arguments)
    with pytest.raises(ValueError, match="leaves no room for text"):
        needle_prompt(NeedleTask(prompts=1, context_tokens=20), chatty, 0, haystack)
    with pytest.raises(ValueError, match="haystack has 100 tokens"):
        needle_prompt(TASK, chatty, 0, haystack[:100])
    with pytest.raises(ValueError, match=r"0\.\.3, got 4"):
        needle_prompt(TASK, chatty, 4, haystack)
    with pytest.raises(ValueError, match="has no tokenizer"):
        needle_prompt(TASK, recorded.model, 0, haystack)
    with pytest.raises(ValueError, match="no prompts"):
        retrieve(chatty, [], compressor("dense"))
    with pytest.raises(ValueError, match="batch must be 1 or more"):
        needle(chatty, TASK, compressor("dense"), haystack=haystack, batch=0)


@pytest.mark.model("smollm2-135m")
def test_the_default_model_finds_needles_in_its_whole_cache():
    model = load_model("smollm2-135m")
    result = needle(model, NeedleTask(prompts=3, context_tokens=400), compressor("dense"), batch=3)
    assert result.found == (True, True, True), result.answers
