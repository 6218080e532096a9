"""Spec strings: what is written comes back, what is wrong is named, nothing is ever evaluated."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvjax import spec
from kvjax.codecs.fp8 import SCALES
from kvjax.compressor import STAGES
from kvjax.suggest import did_you_mean

positive = st.integers(1, 10**9)
amounts = st.one_of(
    st.fixed_dictionaries({"keep": st.floats(0, 1, exclude_min=True)}),
    st.fixed_dictionaries({"tokens": positive}),
    st.fixed_dictionaries({"bytes_per_token": st.floats(0, 1e300, exclude_min=True)}),
)
fp8 = {"variant": st.sampled_from(["e4m3", "e5m2"]), "scale": st.sampled_from(SCALES)}
# Valid arguments of every registered stage; a new stage is a line here.
ARGUMENTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "knorm": st.just({}),
    "snapkv": st.fixed_dictionaries({}, optional={"window": positive, "kernel": positive.map(lambda n: 2 * n - 1)}),
    "streaming_llm": st.fixed_dictionaries({}, optional={"sinks": st.integers(0, 10**9)}),
    "random": st.fixed_dictionaries({}, optional={"seed": st.integers(0, 2**32 - 1)}),
    "uniform": amounts,
    "dense": st.just({}),
    "bf16": st.just({}),
    "fp16": st.just({}),
    "fp8": st.fixed_dictionaries({}, optional=fp8),
    "k16v8": st.fixed_dictionaries({}, optional=fp8),
    "sinks": st.fixed_dictionaries({"tokens": st.integers(0, 10**9)}),
    "recent": st.fixed_dictionaries({"tokens": st.integers(0, 10**9)}),
    "block": st.fixed_dictionaries({"slots": positive}),
}
stages = st.sampled_from(sorted(ARGUMENTS)).flatmap(
    lambda name: ARGUMENTS[name].map(lambda kwargs: STAGES[name](**kwargs))
)


def test_every_registered_stage_is_in_the_table():
    assert set(ARGUMENTS) == set(STAGES)


@given(st.lists(stages, min_size=1, max_size=4))
def test_what_is_written_is_read_back(objects):
    text = " | ".join(map(spec.unparse, objects))
    assert spec.parse(text, STAGES) == objects
    assert spec.parse(text.replace(" ", ""), STAGES) == objects


@dataclass(frozen=True)
class Everything:
    """One argument of each kind."""

    name: ClassVar[str] = "everything"
    count: int
    share: float = 0.5
    label: str = "plain"
    on: bool = False
    limit: int | None = None


words = st.text(max_size=20) | st.sampled_from(["None", "lambda", "true", "none", "\ufb01", "knorm"])


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False), words, st.booleans(), st.none() | st.integers())
def test_every_kind_of_argument_is_read_back(count, share, label, on, limit):
    stage = Everything(count, share, label, on, limit)
    assert spec.parse(spec.unparse(stage), {"everything": Everything}) == [stage]


@dataclass(frozen=True)
class Mean:
    """A stage made of another."""

    name: ClassVar[str] = "mean"
    of: Everything | None = None


NESTING = {"everything": Everything, "mean": Mean}


def test_stages_nest():
    (stage,) = spec.parse("mean(of=everything(3, on=true))", NESTING)
    assert stage == Mean(Everything(3, on=True))
    assert spec.unparse(stage) == "mean(of=everything(3, on=True))"
    assert spec.parse("mean(None)", NESTING) == [Mean()]


def test_arguments_by_place_or_name_strings_with_or_without_quotes():
    everything = {"everything": Everything}
    assert spec.parse("everything(3, 1, label=two, on=TRUE, limit=none)", everything) == [
        Everything(3, 1.0, "two", True)
    ]
    assert spec.parse("everything(-3, label='a b')", everything) == [Everything(-3, label="a b")]
    (stage,) = spec.parse("everything(3, 1)", everything)
    assert type(stage.share) is float  # a whole number where a fraction is asked for


def test_unparse_leaves_defaults_out():
    assert spec.unparse(Everything(3)) == "everything(3)"
    assert spec.unparse(Everything(3, 0.25, "two words")) == "everything(3, share=0.25, label='two words')"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "spec is empty; write for example 'knorm"),
        ("  ", "spec is empty"),
        ("snapkv(", r"cannot read compressor spec 'snapkv\(': .* at character 7; write stages joined by '\|'"),
        ("knorm |", "cannot read compressor spec"),
        ("knorm fp8", "cannot read compressor spec"),
        ("knorm\0", "cannot read compressor spec"),
        ("knorm; fp8", "cannot read compressor spec"),
        ("x = knorm", "cannot read compressor spec"),
        ("snapkw", "unknown name 'snapkw' in compressor spec 'snapkw'; did you mean 'snapkv'. Allowed: bf16, block"),
        ("zzz", "unknown name 'zzz' in compressor spec 'zzz'; Allowed: bf16"),
        ("SnapKV", "unknown name 'SnapKV'"),
        ("snapkv(windw=3)", "unknown argument 'windw' of snapkv; did you mean 'window'. Allowed: kernel, window"),
        ("knorm(p=2)", "unknown argument 'p' of knorm; Allowed: none"),
        ("knorm(2)", r"knorm takes at most 0 arguments \(none\), got 1"),
        ("snapkv(1, 3, 5)", r"snapkv takes at most 2 arguments \(window, kernel\), got 3"),
        ("snapkv(8, window=9)", "argument 'window' of snapkv is given twice"),
        ("snapkv(window=8, window=9)", "argument 'window' of snapkv is given twice"),
        ("snapkv(window=2.5)", r"snapkv\(window=...\) in compressor spec .* is 2.5; allowed: int"),
        ("snapkv(window=true)", "is True; allowed: int"),
        ("snapkv(window='8')", "is '8'; allowed: int"),
        ("snapkv(window=none)", "is None; allowed: int"),
        ("snapkv(window=knorm)", "is 'knorm'; allowed: int"),
        ("snapkv(window=knorm())", r"is Knorm\(\); allowed: int"),
        ("uniform(keep=half)", "is 'half'; allowed: float"),
        ("uniform(keep=True)", "is True; allowed: float"),
        ("uniform(keep=[0.5])", r"is \[0.5\]; allowed: float"),
        ("fp8(variant=e3m4)", "is 'e3m4'; allowed: e4m3 or e5m2"),
        ("sinks", r"sinks needs tokens: write sinks\(tokens=...\)"),
        ("block()", r"block needs slots: write block\(slots=...\)"),
        ("uniform(keep=1/2)", r"cannot read the value '1 / 2' of uniform\(keep=...\)"),
        ("uniform(keep={[]: 1})", r"cannot read the value '\{\[\]: 1\}'"),
        (f"uniform(keep={10**400})", "cannot read the value '1000"),
        ("snapkv(*[8])", r"cannot read the value '\*\[8\]'"),
        ("snapkv(**{'window': 8})", r"'\*\*' is not allowed in compressor spec"),
        ("scores.snapkv(8)", r"cannot read 'scores.snapkv\(8\)' in .*; a stage is name or name\(key=value\)"),
        ("scores.snapkv", "cannot read 'scores.snapkv'"),
        ("snapkv(8)(9)", r"cannot read 'snapkv\(8\)\(9\)'"),
        ("knorm & fp8", "cannot read 'knorm & fp8'"),
        ("knorm | (fp8 | bf16)", r"cannot read 'fp8 \| bf16'"),
        ("knorm | 8", "cannot read '8'"),
        ("'knorm'", "cannot read \"'knorm'\""),
        ("lambda: knorm", "cannot read 'lambda: knorm'"),
        ("snapkv(window=0)", r"snapkv\(window=0\): window must be 1 or more"),
    ],
)  # fmt: skip
def test_mistakes_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        spec.parse(text, STAGES)


def test_mistakes_in_a_nested_stage_are_named():
    with pytest.raises(ValueError, match=r"unknown name 'everythin' .* did you mean 'everything'"):
        spec.parse("mean(of=everythin(3))", NESTING)
    with pytest.raises(ValueError, match="everything needs count"):
        spec.parse("mean(of=everything)", NESTING)
    with pytest.raises(ValueError, match="allowed: Everything"):
        spec.parse("mean(of=mean)", NESTING)


@pytest.mark.parametrize(
    "attack",
    [
        "__import__('pathlib').Path('{file}').touch()",
        "open('{file}', 'w')",
        "(open)('{file}', 'w')",
        "exec(\"open('{file}', 'w')\")",
        "[open('{file}', 'w') for _ in 'a'][0]",
        "f\"{{open('{file}', 'w')}}\"",
        "(x := open('{file}', 'w'))",
    ],
)
@pytest.mark.parametrize("place", ["{}", "snapkv(window={})", "snapkv({})", "fp8(variant={})", "knorm | {}"])
def test_nothing_is_evaluated(tmp_path, attack, place):
    file = tmp_path / "touched"
    with pytest.raises(ValueError):
        spec.parse(place.format(attack.format(file=file)), STAGES)
    assert not file.exists()


@given(st.text(alphabet="knormfp8 |(),=.*-'[]{}1e\n#", max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        objects = spec.parse(text, STAGES)
    except ValueError:
        return
    assert all(dataclasses.is_dataclass(stage) for stage in objects)


def test_did_you_mean_names_the_nearest_and_all():
    assert did_you_mean("sinkz", ["recent", "sinks"]) == "did you mean 'sinks'? Allowed: recent, sinks"
    assert re.fullmatch(r"Allowed: a, b", did_you_mean("zzz", ["b", "a"]))
