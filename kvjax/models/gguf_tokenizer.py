"""The tokenizer inside a GGUF file's metadata, rebuilt with the `tokenizers` library.

Two families: "gpt2" (byte-level BPE: bytes written as printable characters, merges listed) and "llama" (SentencePiece
BPE: spaces written as U+2581, bytes as <0xXX>, merges implied by the pieces' scores).
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from kvjax.models.fields import REQUIRED, FieldReader
from kvjax.models.tokenizer import Tokenizer as KvjaxTokenizer
from kvjax.suggest import did_you_mean

_SPACE = "\u2581"
# Control tokens that end a turn; files often name only the one that ends a document.
_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>")


class Kind(IntEnum):
    """What a token is: `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def tokenizer_from_gguf(metadata: Mapping[str, Any], where: str) -> KvjaxTokenizer | None:
    """The tokenizer that a GGUF file's metadata describes; None if it holds none.

    Raises:
        ValueError: an unknown family or pre-tokenizer, or missing or mistyped fields (the message names them).
    """
    prefix = "tokenizer.ggml."
    fields = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    reader = FieldReader(fields, f"{where}: {prefix}*")
    family = reader.get("model", str, "none")
    if family == "none":
        return None
    if family not in _FAMILIES:
        raise ValueError(f"{where}: tokenizer family {family!r} is not supported; {did_you_mean(family, _FAMILIES)}")
    reader.only("add_eos_token", False)
    tokens: list[str] = reader.get("tokens", list)
    kinds = _one_each(reader, "token_type", tokens, [Kind.NORMAL] * len(tokens))
    backend, add_bos = _FAMILIES[family](reader, tokens, kinds)
    # Special and user-defined tokens are found in the raw text before anything else, longest first.
    backend.add_special_tokens([_verbatim(tokens[i]) for i, kind in enumerate(kinds) if kind == Kind.CONTROL])
    backend.add_tokens([_verbatim(tokens[i]) for i, kind in enumerate(kinds) if kind == Kind.USER_DEFINED])
    bos_id = reader.get("bos_token_id", int, None)
    return KvjaxTokenizer(
        backend,
        bos_id=bos_id,
        eos_ids=_end_ids(reader, tokens, kinds),
        add_bos=reader.flag("add_bos_token", add_bos and bos_id is not None),
        chat_template=FieldReader(metadata, where).get("tokenizer.chat_template", str, None),
    )


def _one_each(reader: FieldReader, name: str, tokens: Sequence[str], default: Any = REQUIRED) -> list[Any]:
    values: list[Any] = reader.get(name, list, default)
    if len(values) != len(tokens):
        raise ValueError(f"{reader.where}: {name!r} has {len(values)} entries for {len(tokens)} tokens.")
    return values


def _verbatim(piece: str) -> AddedToken:
    return AddedToken(piece, normalized=False)


def _end_ids(reader: FieldReader, tokens: Sequence[str], kinds: Sequence[int]) -> tuple[int, ...]:
    named = [reader.get(f"{name}_token_id", int, None) for name in ("eos", "eot", "eom")]
    turns = [i for i, kind in enumerate(kinds) if kind == Kind.CONTROL and tokens[i] in _END_OF_TURN]
    return tuple(dict.fromkeys(i for i in (*named, *turns) if i is not None))


def _byte_level(reader: FieldReader, tokens: list[str], kinds: list[int]) -> tuple[Tokenizer, bool]:
    reader.only("add_space_prefix", False)
    pre = reader.get("pre", str)
    if pre not in _PRE_TOKENIZERS:
        raise ValueError(
            f"{reader.where}: pre-tokenizer {pre!r} is not supported; "
            f"{did_you_mean(pre, _PRE_TOKENIZERS)}. A Hugging Face folder of the same model works with any."
        )
    merges = [tuple(merge.split(" ")) for merge in reader.get("merges", list)]
    whole_words = pre in _LLAMA3
    # Some vocabularies lack bytes (SmolLM2 those of control characters); they become the unknown token, not nothing.
    backend = _bpe(reader, tokens, merges, ignore_merges=whole_words)
    if pre in _QWEN2:
        backend.normalizer = normalizers.NFC()
    pattern = _PRE_TOKENIZERS[pre]
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return backend, whole_words


# Words that BPE never merges across, as in the models' tokenizer.json. "smollm" is read as transformers reads such a
# GGUF file, like GPT-2: the model's own tokenizer.json splits off digits first, which differs only where two or more
# white characters precede a digit. Ids and figures recorded from this file use this reading.
_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
_QWEN2 = ("qwen2",)
_PRE_TOKENIZERS = {
    **dict.fromkeys(("gpt-2", "gpt2", "smollm"), _GPT2_WORDS),
    **dict.fromkeys(_LLAMA3, _LLAMA3_WORDS),
    **dict.fromkeys(_QWEN2, _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")),
}


def _sentencepiece(reader: FieldReader, tokens: list[str], kinds: list[int]) -> tuple[Tokenizer, bool]:
    scores = _one_each(reader, "scores", tokens)
    pieces = {token: score for token, score, kind in zip(tokens, scores, kinds, strict=True) if kind == Kind.NORMAL}
    backend = _bpe(reader, tokens, merges_from_scores(pieces), byte_fallback=True)
    prefix = reader.flag("add_space_prefix", True)
    spaces = normalizers.Replace(" ", _SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if prefix else spaces
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return backend, True


def merges_from_scores(pieces: Mapping[str, float]) -> list[tuple[str, str]]:
    """The BPE merges that SentencePiece's scores imply: every split of a piece into two pieces, best score first.

    SentencePiece joins the two neighbours whose union scores best; a list of merges says the same, by rank.

    Args:
        pieces: piece -> score, only pieces that merging may make (no control, user-defined or byte tokens).

    >>> merges_from_scores({"a": -3.0, "b": -4.0, "ab": -2.0, "aba": -1.0})
    [('ab', 'a'), ('a', 'b')]
    """
    merges = []
    for piece, _ in sorted(pieces.items(), key=lambda item: -item[1]):
        splits = ((piece[:at], piece[at:]) for at in range(1, len(piece)))
        merges += [(left, right) for left, right in splits if left in pieces and right in pieces]
    return merges


def _bpe(reader: FieldReader, tokens: list[str], merges: Sequence[tuple[str, ...]], **options: bool) -> Tokenizer:
    unknown = reader.get("unknown_token_id", int, None)
    if unknown is not None and not 0 <= unknown < len(tokens):
        raise ValueError(f"{reader.where}: 'unknown_token_id' {unknown} is outside the vocabulary of {len(tokens)}.")
    ids, unk_token = {token: i for i, token in enumerate(tokens)}, None if unknown is None else tokens[unknown]
    try:
        return Tokenizer(models.BPE(ids, merges, unk_token=unk_token, fuse_unk=True, **options))  # type: ignore[arg-type]
    except Exception as error:  # the library raises plain Exception
        raise ValueError(f"{reader.where}: vocabulary and merges do not fit together: {error}.") from error


_Family = Callable[[FieldReader, list[str], list[int]], tuple[Tokenizer, bool]]
_FAMILIES: dict[str, _Family] = {"gpt2": _byte_level, "llama": _sentencepiece}
