import pytest

from kvjax.compressor import compressor
from kvjax.experiment.config import Experiment, Needle
from kvjax.experiment.overrides import apply_overrides
from kvjax.experiment.schema import parse

BASE = Experiment(name="tiny", compressors=(compressor("dense"),))


@pytest.mark.parametrize(
    ("text", "value"), [("1e-3", 0.001), ("5e-4", 0.0005), ("1.0e-3", 0.001), (".5", 0.5), ("3", 3.0)]
)
def test_G01_floats_with_exponents_are_numbers(text: str, value: float) -> None:
    assert parse(text, float, "keep") == value


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("text", ["010", "no", "12:30:45", "", "nan", "inf", "0x10", "1,000"])
def test_G01_what_is_not_plainly_a_number_is_an_error(text: str, kind: type) -> None:
    with pytest.raises(ValueError, match="keep must be"):
        parse(text, kind, "keep")


@pytest.mark.parametrize("text", ["no", "12:30:45", "010", "1e-3"])
def test_G01_text_fields_keep_the_text(text: str) -> None:
    assert parse(text, str, "model") == text


@pytest.mark.parametrize("text", ["no", "yes", "1", "True"])
def test_G01_booleans_are_true_and_false_only(text: str) -> None:
    with pytest.raises(ValueError, match="true or false"):
        parse(text, bool, "flag")
    assert parse("true", bool, "flag") is True and parse("false", bool, "flag") is False


def test_overrides_are_applied_in_order_and_leave_the_rest() -> None:
    changed = apply_overrides(BASE, ["contexts=2", "needle.prompts=3", "contexts=5", "serving.hardware=other"])
    assert (changed.contexts, changed.needle.prompts, changed.serving.hardware) == (5, 3, "other")
    assert changed.needle.context_tokens == BASE.needle.context_tokens


def test_compressors_are_set_as_specs() -> None:
    changed = apply_overrides(BASE, ["compressors=fp8; knorm | uniform(keep=0.5) | k16v8"])
    assert changed.compressors == (compressor("fp8"), compressor("knorm | uniform(keep=0.5) | k16v8"))


def test_none_switches_retrieval_off_and_a_field_switches_it_on() -> None:
    off = apply_overrides(BASE, ["needle=none"])
    assert off.needle is None
    assert apply_overrides(off, ["needle.prompts=2"]).needle == Needle(prompts=2)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("contexts", "field=value"),
        ("contxts=2", "did you mean 'contexts'"),
        ("needle.promts=2", "did you mean 'prompts'"),
        ("needle=2", "needle.prompts"),
        ("model.name=x", "model has no fields of its own"),
        ("seed=1e-3", "whole number"),
        ("contexts=0", "at least 1"),
        ("compressors=fp9", "did you mean 'fp8'"),
    ],
)
def test_unusable_overrides_are_named(assignment: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        apply_overrides(BASE, [assignment])
    assert message in str(error.value)
