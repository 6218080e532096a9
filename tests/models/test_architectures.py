import json

import pytest

from kvjax.models import architecture_names, config_from_hf, load_config, parameter_count

TINY = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # as published on the models' cards
        ("smollm2-135m", 134_515_008),
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("mistral-7b", 7_241_732_096),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen3-8b", 8_190_735_360),
        ("gemma-3-270m", 268_098_176),
        ("gpt-175b", 174_604_259_328),
    ],
)
def test_shipped_architectures_have_the_published_number_of_weights(name, parameters):
    config = load_config(name)
    assert parameter_count(config) == parameters
    assert hash(config) == hash(load_config(name)) and config == load_config(name)


def test_every_shipped_architecture_is_in_the_table_above_and_loads():
    assert len(architecture_names()) == 11
    for name in architecture_names():
        load_config(name)


def test_names_ignore_case_and_hyphens():
    assert load_config("Gemma3-270M") == load_config("gemma-3-270m")


def test_load_config_reads_a_file_and_a_folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    assert load_config(tmp_path) == load_config(str(tmp_path / "config.json")) == config_from_hf(TINY)


def test_load_config_of_nothing_suggests_a_name(tmp_path):
    with pytest.raises(ValueError, match=r"'llama-3.1-8' is neither .*; did you mean 'llama-3.1-8b'"):
        load_config("llama-3.1-8")
    with pytest.raises(ValueError, match=r"config\.json"):
        load_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        load_config(tmp_path)
