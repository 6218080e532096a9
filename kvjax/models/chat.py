"""Chat templates: the Jinja text that a checkpoint ships to lay out a conversation, rendered in Jinja's sandbox."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = Mapping[str, Any]  # {"role": "system" | "user" | "assistant", "content": text}


def render_chat(
    template: str,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    special_tokens: Mapping[str, str] | None = None,
) -> str:
    """The conversation as one prompt text, special tokens spelled out.

    Templates get what transformers gives them (`raise_exception`, `tojson`, loop controls, trimmed blocks) except the
    clock (`strftime_now`): the same messages give the same prompt on every day, and templates that ask for a date fall
    back to their built-in one.

    Args:
        template: Jinja source.
        messages: turns in order, each with `role` and `content`.
        add_generation_prompt: end with the opening of the assistant's next turn.
        special_tokens: further names the template may use (`bos_token`, `eos_token`).

    Raises:
        ValueError: no messages, or the template refuses them (the message quotes it).

    >>> render_chat("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", [{"role": "a", "content": "b"}])
    '<a>b'
    """
    if not messages:
        raise ValueError("A chat needs at least one message.")
    for message in messages:
        if not {"role", "content"} <= set(message):
            raise ValueError(f"A message is {{'role': ..., 'content': ...}}, got {message!r}.")
    try:
        return _environment().from_string(template).render(
            messages=[dict(message) for message in messages],
            add_generation_prompt=add_generation_prompt,
            **(special_tokens or {}),
        )  # fmt: skip
    except jinja2.TemplateError as error:
        raise ValueError(f"The chat template failed: {error}.") from error


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _raise_exception
    environment.filters["tojson"] = _tojson
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    # Jinja's own filter escapes for HTML, which a prompt is not.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)
