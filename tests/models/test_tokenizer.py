import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from kvjax.models.chat import render_chat
from kvjax.models.default import model_path
from kvjax.models.gguf import load_gguf
from kvjax.models.gguf_tokenizer import merges_from_scores, tokenizer_from_gguf
from kvjax.models.tokenizer import Tokenizer, load_tokenizer

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "tokenizer" / "smollm2.json").read_text("utf-8"))

# SentencePiece-like: <unk> <s> </s>, bytes, characters, merged pieces with scores, a user-defined run of spaces.
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
CHARACTERS = list("▁abc")
PIECES = {"ab": -1.0, "bc": -2.0, "▁a": -3.0, "abc": -4.0, "▁abc": -5.0}
SENTENCEPIECE = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *BYTES, *CHARACTERS, *PIECES, "  ", "<turn>"],
    "tokenizer.ggml.scores": [0.0] * 259 + [-9.0] * 4 + list(PIECES.values()) + [-1000.0] * 2,
    "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 9 + [4, 3],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.eot_token_id": 269,
    "tokenizer.ggml.unknown_token_id": 0,
}


def sentencepiece(**changes):
    changed = SENTENCEPIECE | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    made = tokenizer_from_gguf({k: v for k, v in changed.items() if v is not None}, "m.gguf")
    assert made is not None
    return made


def byte_level(pre, **changes):
    """A vocabulary of all bytes and one merge."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fields = {
        "model": "gpt2",
        "pre": pre,
        "tokens": [*alphabet, "ab", "abc", "<|im_end|>"],
        "token_type": [1] * 258 + [3],
        "merges": ["a b"],
        "eos_token_id": 258,
    }
    made = tokenizer_from_gguf({f"tokenizer.ggml.{k}": v for k, v in (fields | changes).items()}, "m.gguf")
    assert made is not None
    return made


def pieces(tokenizer, text, **options):
    return [tokenizer.backend.id_to_token(i) for i in tokenizer.encode(text, **options)]


def words(tokenizer, text):
    """How the pre-tokenizer cuts a text (of ASCII), before any merge."""
    return [word.replace("Ġ", " ") for word, _ in tokenizer.backend.pre_tokenizer.pre_tokenize_str(text)]


@pytest.fixture(scope="module")
def smollm2():
    return load_gguf(model_path("smollm2-135m"))[2]


@pytest.mark.model("smollm2-135m")
def test_smollm2_gives_the_ids_that_transformers_recorded(smollm2):
    for entry in RECORDED["texts"]:
        assert smollm2.encode(entry["text"]) == entry["ids"], entry["text"]


@pytest.mark.model("smollm2-135m")
def test_smollm2_decodes_what_it_encodes(smollm2):
    for entry in RECORDED["texts"]:
        if "lacks" not in entry["text"]:
            assert smollm2.decode(entry["ids"], skip_special=False) == entry["text"]


@pytest.mark.model("smollm2-135m")
def test_smollm2_chat_is_what_transformers_recorded(smollm2):
    for entry in RECORDED["chats"]:
        assert smollm2.chat(entry["messages"]) == entry["open"]
        assert smollm2.chat(entry["messages"], add_generation_prompt=False) == entry["closed"]


@pytest.mark.model("smollm2-135m")
def test_smollm2_special_tokens(smollm2):
    assert (smollm2.vocab_size, smollm2.bos_id, smollm2.eos_ids, smollm2.add_bos) == (49152, 1, (2,), False)
    assert smollm2.token_id("<|im_end|>") == 2
    assert smollm2.encode("<|im_end|>") == [2]
    assert 2 not in smollm2.encode("<|im_end|>", parse_special=False)
    assert smollm2.decode([1, 504, 2]) == "The"


@pytest.mark.model("gemma3-270m")
def test_gemma3_pieces():
    gemma = load_gguf(model_path("gemma3-270m"))[2]
    text = "The capital of France is"
    assert pieces(gemma, text) == ["<bos>", "The", "▁capital", "▁of", "▁France", "▁is"]
    assert pieces(gemma, "\n\n   if x:\t\t<b>", add_bos=False) == ["\n\n", "   ", "if", "▁x", ":", "\t\t", "<b>"]
    for text in (" The  capital\n", "漢字 😀 \x04 é"):
        assert gemma.decode(gemma.encode(text)) == text
    assert gemma.eos_ids == (1, gemma.token_id("<end_of_turn>"))
    with pytest.raises(ValueError, match="no chat template"):
        gemma.chat([{"role": "user", "content": "hi"}])


def test_scores_become_merges_best_first():
    assert merges_from_scores(dict.fromkeys("▁abc", -9.0) | PIECES) == [
        ("a", "b"), ("b", "c"), ("▁", "a"), ("a", "bc"), ("ab", "c"), ("▁", "abc"), ("▁a", "bc"),
    ]  # fmt: skip


def test_sentencepiece_joins_the_best_scored_neighbours():
    tokenizer = sentencepiece(add_space_prefix=False)
    assert pieces(tokenizer, "abc abc") == ["<s>", "abc", "▁abc"]
    assert pieces(tokenizer, "bca ab", add_bos=False) == ["bc", "a", "▁", "ab"]  # "ab" is joined before "▁a"


def test_sentencepiece_falls_back_to_bytes():
    tokenizer = sentencepiece(add_space_prefix=False)
    assert pieces(tokenizer, "aé", add_bos=False) == ["a", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("aé")) == "aé"


def test_user_defined_pieces_are_found_in_the_text_first():
    tokenizer = sentencepiece(add_space_prefix=False)
    assert pieces(tokenizer, "a  abc", add_bos=False) == ["a", "  ", "abc"]
    assert tokenizer.decode(tokenizer.encode("a  abc")) == "a  abc"


def test_space_prefix_is_the_default_and_decoding_takes_it_back():
    tokenizer = sentencepiece()
    assert pieces(tokenizer, "abc", add_bos=False) == ["▁abc"]
    assert tokenizer.decode(tokenizer.encode("abc")) == "abc"


def test_bos_is_added_as_trained_unless_told_otherwise():
    assert sentencepiece().encode("")[:1] == [1]
    assert sentencepiece(add_bos_token=False).encode("a") == sentencepiece().encode("a", add_bos=False)
    assert sentencepiece(add_bos_token=False).encode("a", add_bos=True)[0] == 1
    with pytest.raises(ValueError, match="has no BOS token"):
        sentencepiece(bos_token_id=None).encode("a", add_bos=True)


def test_special_tokens_are_parsed_only_if_wanted():
    tokenizer = sentencepiece(add_space_prefix=False)
    assert tokenizer.encode("a</s>", add_bos=False)[-1] == 2
    plain = tokenizer.encode("a</s>", add_bos=False, parse_special=False)
    assert 2 not in plain and tokenizer.decode(plain) == "a</s>"
    assert tokenizer.encode("a</s>", add_bos=False)[-1] == 2  # the choice of one call does not reach the next


def test_ends_are_those_named_and_known_ends_of_turns():
    assert sentencepiece().eos_ids == (2, 269)
    assert byte_level("smollm", eos_token_id=0).eos_ids == (0, 258)


@pytest.mark.parametrize(
    "pre, expected",
    [
        ("smollm", ["we", "'ll", " pay", " 12345", " ", " now", "!!"]),
        ("llama-bpe", ["we", "'ll", " pay", " ", "123", "45", " ", " now", "!!"]),
        ("qwen2", ["we", "'ll", " pay", " ", "1", "2", "3", "4", "5", " ", " now", "!!"]),
    ],
)
def test_pre_tokenizers_cut_words_and_numbers(pre, expected):
    assert words(byte_level(pre), "we'll pay 12345  now!!") == expected


def test_llama3_takes_whole_words_from_the_vocabulary_and_qwen_composes():
    assert pieces(byte_level("llama-bpe"), "abc") == ["abc"]
    assert pieces(byte_level("smollm"), "abc") == ["ab", "c"]
    assert byte_level("qwen2").encode("e\u0301") == byte_level("qwen2").encode("\u00e9")
    assert byte_level("smollm").encode("e\u0301") != byte_level("smollm").encode("\u00e9")


def test_missing_byte_becomes_the_unknown_token():
    made = tokenizer_from_gguf(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": ["<unk>", "a"],
            "tokenizer.ggml.merges": [],
            "tokenizer.ggml.unknown_token_id": 0,
        },
        "m.gguf",
    )
    assert made is not None and made.encode("abba") == [1, 0, 1]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model": "bert"}, r"m\.gguf: tokenizer family 'bert' is not supported; Allowed: gpt2, llama"),
        ({"scores": None}, "'scores' is missing"),
        ({"scores": [0.0]}, "'scores' has 1 entries for 270 tokens"),
        ({"token_type": [1]}, "'token_type' has 1 entries"),
        ({"add_eos_token": True}, "'add_eos_token' is True"),
        ({"unknown_token_id": 999}, "'unknown_token_id' 999 is outside"),
        ({"bos_token_id": 999}, "Token id 999 is outside"),
        ({"tokens": None}, "'tokens' is missing"),
    ],
)
def test_faulty_metadata_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        sentencepiece(**changes)


def test_unknown_pre_tokenizer_and_foreign_merges_are_named():
    with pytest.raises(ValueError, match=r"pre-tokenizer 'smolm' is not supported; did you mean 'smollm'\?"):
        byte_level("smolm")
    with pytest.raises(ValueError, match="vocabulary and merges do not fit together"):
        byte_level("smollm", merges=["zz a"])


def test_file_without_tokenizer_has_none():
    assert tokenizer_from_gguf({"general.architecture": "llama"}, "m.gguf") is None


def test_ids_and_pieces_outside_the_vocabulary_are_refused():
    tokenizer = sentencepiece()
    for token_id in (-1, 270, 2**40):
        with pytest.raises(ValueError, match=f"Token id {token_id} is outside this tokenizer's vocabulary of 270"):
            tokenizer.decode([1, token_id])
    with pytest.raises(ValueError, match=r"'<\|nope\|>' is not a token"):
        tokenizer.token_id("<|nope|>")


# Hugging Face folders.


@pytest.fixture
def folder(tmp_path):
    """A word-level tokenizer whose post-processor adds BOS, with the usual files beside it."""
    vocab = {"<s>": 0, "</s>": 1, "<turn>": 2, "a": 3, "b": 4, "<unk>": 5}
    backend = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(["<s>", "</s>", "<turn>"])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    backend.enable_truncation(2)
    backend.save(str(tmp_path / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": "{{ bos_token }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 1]}')
    return tmp_path


def test_folder(folder):
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("a b a") == [0, 3, 4, 3]  # BOS as the post-processor says, the saved truncation ignored
    assert tokenizer.encode("a b a", add_bos=False) == [3, 4, 3]
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.vocab_size) == (0, (1, 2), 6)
    assert tokenizer.chat([{"role": "user", "content": "a"}]) == "<s>"


def test_folder_settings_decide_about_bos_and_template(folder):
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    several = [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]
    (folder / "tokenizer_config.json").write_text(
        json.dumps(settings | {"add_bos_token": False, "chat_template": several})
    )
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("a") == [3]
    assert tokenizer.chat_template == "d"
    (folder / "chat_template.jinja").write_text("from its own file")
    assert load_tokenizer(folder).chat_template == "from its own file"


def test_bare_folder_has_no_special_tokens(folder):
    (folder / "tokenizer_config.json").unlink()
    (folder / "generation_config.json").unlink()
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.add_bos, tokenizer.chat_template) == (None, (), False, None)


def test_faulty_folders_are_named(folder):
    (folder / "special_tokens_map.json").write_text('{"bos_token": "<none>"}')
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ValueError, match="'bos_token' is '<none>', which is not in the vocabulary"):
        load_tokenizer(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a tokenizer"):
        load_tokenizer(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"tokenizer\.json does not exist"):
        load_tokenizer(folder)


# Chat templates.


def test_template_has_the_usual_helpers():
    template = "{% for m in messages %}\n  {% if loop.first %}{% continue %}{% endif %}\n{{ m | tojson }}{% endfor %}"
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": "<é>"}]
    assert render_chat(template, messages) == '{"role": "user", "content": "<é>"}'


@pytest.mark.parametrize(
    "template, message",
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% if %}", "The chat template failed"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
    ],
)
def test_template_that_refuses_or_escapes_is_an_error(template, message):
    with pytest.raises(ValueError, match=message):
        render_chat(template, [{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("messages", [[], [{"role": "user"}], [{"content": "hi"}]])
def test_malformed_messages_are_refused(messages):
    with pytest.raises(ValueError, match="message"):
        render_chat("", messages)


def test_no_template_says_so():
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    with pytest.raises(ValueError, match="no chat template"):
        Tokenizer(backend).chat([{"role": "user", "content": "hi"}])
