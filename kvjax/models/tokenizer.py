"""`Tokenizer`: text to token ids and back. Here also: that of a Hugging Face folder; `gguf_tokenizer` has GGUF's."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers

from kvjax.models.chat import Message, render_chat
from kvjax.models.fields import FieldReader, read_json


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Text <-> token ids of one model.

    Attributes:
        backend: the `tokenizers` model that does the work.
        bos_id: the token that begins a sequence, if the model has one.
        eos_ids: tokens that end a text or an assistant's turn.
        add_bos: whether `encode` puts `bos_id` first unless told otherwise, as the model was trained.
        chat_template: Jinja source, or None.
    """

    backend: tokenizers.Tokenizer = field(repr=False)
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    add_bos: bool = False
    chat_template: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for token_id in (*self.eos_ids, *([] if self.bos_id is None else [self.bos_id])):
            self._piece(token_id)
        if self.add_bos and self.bos_id is None:
            raise ValueError("The tokenizer should begin sequences with BOS, but names no BOS token.")

    @property
    def vocab_size(self) -> int:
        """Number of tokens, V. A model's embedding may have more rows (padding)."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, add_bos: bool | None = None, *, parse_special: bool = True) -> list[int]:
        """Token ids of a text.

        Args:
            text: any text; a chat prompt from `chat` spells its own BOS, so pass `add_bos=False` with it.
            add_bos: put BOS first; None does what the model was trained with (`self.add_bos`).
            parse_special: read the names of special tokens ("<|im_end|>") inside the text as these tokens, which chat
                prompts need. False reads them as ordinary characters: for text that must not steer the model.

        Raises:
            ValueError: `add_bos` with a tokenizer that has no BOS token.
        """
        # Set before each call, so that no call sees what another one chose.
        self.backend.encode_special_tokens = not parse_special
        ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        if not (self.add_bos if add_bos is None else add_bos):
            return ids
        if self.bos_id is None:
            raise ValueError("add_bos=True, but this tokenizer has no BOS token.")
        return [self.bos_id, *ids]

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of token ids; special tokens are left out unless `skip_special=False`.

        Raises:
            ValueError: an id outside the vocabulary.
        """
        checked = [int(token_id) for token_id in ids]
        for token_id in checked:
            self._piece(token_id)
        return self.backend.decode(checked, skip_special_tokens=skip_special)

    def chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The conversation as one prompt text, by the model's chat template (see `render_chat`).

        Raises:
            ValueError: the model has no chat template, or it refuses the messages.
        """
        if self.chat_template is None:
            raise ValueError(
                "This tokenizer has no chat template: the model was not trained for chat, or its files lack the "
                "template. Write the prompt yourself and use encode()."
            )
        names = {"bos_token": self.bos_id, "eos_token": self.eos_ids[0] if self.eos_ids else None}
        return render_chat(
            self.chat_template,
            messages,
            add_generation_prompt=add_generation_prompt,
            special_tokens={
                name: "" if token_id is None else self._piece(token_id) for name, token_id in names.items()
            },
        )

    def token_id(self, piece: str) -> int:
        """Id of one token by its spelling in the vocabulary, such as "<|im_end|>".

        Raises:
            ValueError: there is no such token.
        """
        token_id = self.backend.token_to_id(piece)
        if token_id is None:
            raise ValueError(f"{piece!r} is not a token of this vocabulary of {self.vocab_size}.")
        return token_id

    def _piece(self, token_id: int) -> str:
        piece = self.backend.id_to_token(token_id) if 0 <= token_id < 2**32 else None
        if piece is None:
            raise ValueError(f"Token id {token_id} is outside this tokenizer's vocabulary of {self.vocab_size}.")
        return piece


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder.

    Reads tokenizer.json, tokenizer_config.json, special_tokens_map.json, chat_template.jinja and, for the ids that end
    a text, generation_config.json and config.json; all but the first may be absent.

    Raises:
        ValueError: tokenizer.json is missing or damaged, or a special token is not in the vocabulary.
    """
    backend = _backend(folder / "tokenizer.json")
    settings = FieldReader(
        {**_optional_json(folder / "special_tokens_map.json"), **_optional_json(folder / "tokenizer_config.json")},
        str(folder / "tokenizer_config.json"),
    )
    settings.only("add_eos_token", False)
    bos_id = _special_id(backend, settings, "bos_token")
    # Where the config does not say, tokenizer.json's own post-processing does.
    adds_bos = bos_id is not None and backend.encode("", add_special_tokens=True).ids[:1] == [bos_id]
    return Tokenizer(
        backend,
        bos_id=bos_id,
        eos_ids=_end_ids(folder, _special_id(backend, settings, "eos_token")),
        add_bos=settings.flag("add_bos_token", adds_bos),
        chat_template=_chat_template(folder, settings),
    )


def _backend(file: Path) -> tokenizers.Tokenizer:
    if not file.is_file():
        raise ValueError(
            f"{file} does not exist. kvjax reads no other tokenizer file; transformers' "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder) writes it."
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        raise ValueError(f"{file} is not a tokenizer that the tokenizers library reads: {error}.") from error
    backend.no_truncation()
    backend.no_padding()
    return backend


def _optional_json(file: Path) -> dict[str, Any]:
    return read_json(file) if file.is_file() else {}


def _special_id(backend: tokenizers.Tokenizer, settings: FieldReader, name: str) -> int | None:
    """Id of a special token, which the files give as text or as {"content": text, ...}."""
    token = settings.get(name, (str, dict), None)
    piece = token.get("content") if isinstance(token, dict) else token
    if piece is None:
        return None
    token_id = backend.token_to_id(piece)
    if token_id is None:
        raise ValueError(f"{settings.where}: {name!r} is {piece!r}, which is not in the vocabulary.")
    return token_id


def _end_ids(folder: Path, eos_id: int | None) -> tuple[int, ...]:
    """The tokenizer's EOS first, then what generation_config.json and config.json add (end of turn, end of message)."""
    found = [] if eos_id is None else [eos_id]
    for file in ("generation_config.json", "config.json"):
        ids = _optional_json(folder / file).get("eos_token_id")
        found += ids if isinstance(ids, list) else [] if ids is None else [ids]
    return tuple(dict.fromkeys(found))


def _chat_template(folder: Path, settings: FieldReader) -> str | None:
    """The template's own file, else the field; of several named ones the one called "default"."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text("utf-8")
    template = settings.get("chat_template", (str, list), None)
    if isinstance(template, list):
        return {entry["name"]: entry["template"] for entry in template}.get("default")
    return template
