import dataclasses
import json

import pytest

from kvjax.compressor import compressor
from kvjax.experiment.config import Experiment, Needle, Serving, load_experiment

CONFIG = """
from kvjax.compressor import compressor
from kvjax.experiment.config import Experiment

def config():
    return Experiment(name="tiny", compressors=(compressor("dense"), compressor("fp8")), contexts=2)
"""


def experiment(**settings: object) -> Experiment:
    return Experiment(**{"name": "tiny", "compressors": (compressor("dense"), compressor("fp8")), **settings})


def test_json_round_trip_gives_an_equal_experiment_with_the_same_id() -> None:
    original = experiment(
        compressors=(compressor("bf16"), compressor("snapkv(window=32) | uniform(keep=0.25) | k16v8 | sinks(4)")),
        needle=Needle(prompts=3, context_tokens=200, batch=2),
        serving=Serving(batch=7),
        seed=5,
    )
    again = Experiment.from_json(original.to_json())
    assert again == original and hash(again) == hash(original) and again.id == original.id


def test_without_needle_round_trips() -> None:
    assert Experiment.from_json(experiment(needle=None).to_json()).needle is None


def test_config_json_holds_spec_strings() -> None:
    assert json.loads(experiment().to_json())["compressors"] == ["dense", "fp8"]


def test_id_is_of_the_content_and_not_of_its_order() -> None:
    data = json.loads(experiment().to_json())
    shuffled = Experiment.from_json(json.dumps(dict(reversed(data.items()))))
    assert shuffled.id == experiment().id
    assert experiment(seed=1).id != experiment().id


def test_every_setting_changes_the_id() -> None:
    """G-02: a setting that the id does not see could be changed and ignored."""
    base = experiment()
    other = {
        "name": "other",
        "compressors": (compressor("fp8"),),
        "model": "m",
        "needle": None,
        "serving": Serving(batch=3),
    }
    for field in dataclasses.fields(Experiment):
        value = other.get(field.name, getattr(base, field.name))
        changed = dataclasses.replace(base, **{field.name: value + 1 if type(value) is int else value})
        assert changed.id != base.id, field.name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contxts": 3}, "did you mean 'contexts'"),
        ({"needle": {"promts": 3}}, "unknown field needle.promts; did you mean 'prompts'"),
        ({"contexts": "4"}, "contexts must be a whole number, got '4'"),
        ({"contexts": True}, "contexts must be a whole number, got True"),
        ({"contexts": 1.0}, "contexts must be a whole number"),
        ({"contexts": 0}, "contexts must be a whole number of at least 1, got 0"),
        ({"continuation_tokens": 1}, "continuation_tokens must be at least 2"),
        ({"needle": 3}, "needle must be an object"),
        ({"needle": {"prompts": 0}}, "needle.prompts must be a whole number of at least 1"),
        ({"seed": -1}, "seed must lie in"),
        ({"name": "../up"}, "name must be letters"),
        ({"name": ""}, "name must be letters"),
        ({"compressors": []}, "at least one compressor"),
        ({"compressors": ["fp8", "fp8"]}, "twice"),
        ({"compressors": ["fp9"]}, "did you mean 'fp8'"),
        ({"compressors": "fp8"}, "compressors must be a list"),
        ({"compressors": [8]}, "compressors[0] must be a compressor"),
        ({"model": None}, "model must be text"),
    ],
)
def test_unusable_settings_are_named(change: dict[str, object], message: str) -> None:
    data = {**json.loads(experiment().to_json()), **change}
    with pytest.raises(ValueError) as error:
        Experiment.from_json(json.dumps(data))
    assert message in str(error.value)


def test_missing_field_is_named() -> None:
    with pytest.raises(ValueError, match="missing field compressors"):
        Experiment.from_json('{"name": "tiny"}')


def test_field_given_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="'name' is given twice"):
        Experiment.from_json('{"name": "a", "name": "b", "compressors": ["dense"]}')


def test_load_python_config(tmp_path) -> None:
    (tmp_path / "tiny.py").write_text(CONFIG)
    assert load_experiment(tmp_path / "tiny.py") == experiment(contexts=2)


def test_load_json_and_run_folder(tmp_path) -> None:
    (tmp_path / "config.json").write_text(experiment().to_json())
    assert load_experiment(tmp_path / "config.json") == load_experiment(tmp_path) == experiment()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.py", None, "no config at"),
        ("a.yaml", "name: x", "ends in .py or .json"),
        ("a.json", "{", "not valid JSON"),
        ("a.json", "[]", "must be an object"),
        ("a.py", "x = 1", "has no function config()"),
        ("a.py", "def config():\n    return 3", "must return an Experiment, got int"),
        ("a.py", "def config(:", "SyntaxError"),
        ("a.py", "def config():\n    return undefined", "NameError"),
    ],
)
def test_unusable_config_files_are_named(tmp_path, name: str, content: str | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError) as error:
        load_experiment(path)
    assert message in str(error.value) and name in str(error.value)
