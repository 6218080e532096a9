"""Profiles: shipped data, units, sources, and what a wrong file is told."""

import re

import pytest

from kvjax.hardware import list_profiles, load_profile
from kvjax.hardware.profile import SHIPPED
from kvjax.hardware.quantity import KINDS, read_quantity

GP7000 = (SHIPPED / "gp7000.toml").read_text(encoding="utf-8")
NAMES = [listing.name for listing in list_profiles()]


def own_file(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_list_gives_name_one_line_and_source():
    assert NAMES == ["a100", "cpu", "gp7000", "h100", "h200"]
    assert all(listing.source and "\n" not in listing.title for listing in list_profiles())


@pytest.mark.parametrize("name", NAMES)
def test_every_value_has_a_source_a_kind_and_a_range_around_it(name):
    profile = load_profile(name)
    assert profile.name == name
    for _, quantity in profile.quantities():
        assert quantity.source and quantity.kind in KINDS
        assert quantity.low <= quantity.value <= quantity.high
        assert quantity.kind != "assumed" or quantity.low < quantity.high or "none" in quantity.source or name == "cpu"


def test_gp7000_is_the_documents_card_in_si_units():
    card = load_profile("gp7000")
    assert card.hypothetical
    assert card.memory.bandwidth.value == 2e12
    assert card.kv.engines_per_sm.value == 8
    assert card.compute.shared_memory_per_sm.value == 192 * 1024 == 1.5 * card.compute.shared_memory_per_sm.low
    assert card.kv.minimum_zone.value == 4 * 2**20
    assert card.kv.prefetch.value == 1
    stated = ("memory.bandwidth", "kv.engines_per_sm", "compute.shared_memory_per_sm", "kv.prefetch", "kv.minimum_zone")
    kinds = {name: quantity.kind for name, quantity in card.quantities()}
    assert {kinds[name] for name in stated} == {"claimed"}
    unstated = ("memory.capacity", "compute.sm_count", "compute.bf16", "link.bandwidth", "kv.channel_bandwidth")
    assert {kinds[name] for name in unstated} == {"assumed"}
    assert not {"measured", "datasheet"} & set(kinds.values())


def test_datasheet_figures():
    assert load_profile("h100").memory.bandwidth.value == 3.35e12
    assert load_profile("h200").memory.capacity.value == 141e9
    assert load_profile("a100").compute.bf16.value == 312e12
    assert load_profile("a100").compute.fp8 is None
    assert load_profile("cpu").link is None


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(
        ValueError, match=r"unknown hardware profile 'gp700'; did you mean 'gp7000'\? Allowed: a100, cpu"
    ):
        load_profile("gp700")


def test_own_file_works_like_a_shipped_one(tmp_path):
    path = own_file(tmp_path, GP7000.replace('name = "gp7000"', 'name = "mine"'))
    assert load_profile(path).name == load_profile(str(path)).name == "mine"


@pytest.mark.parametrize(
    ("pattern", "replacement", "message"),
    [
        (r"\nbandwidth = .*\nefficiency", "\nefficiency", r"missing field mine.toml: memory.bandwidth"),
        (r"\[overhead\]\nper_layer = .*", "", r"missing field mine.toml.overhead"),
        (r"\[memory\]", "[memory]\ncapasity = 1", r"unknown field mine.toml: memory.capasity; did you mean 'capacity'"),
        (r"\[memory\]", "[memry]", r"unknown field mine.toml.memry; did you mean 'memory'"),
        (r'unit = "TB/s"', 'unit = "TB"', r"memory.bandwidth.unit is 'TB', but this value is in bytes/s: one of B/s"),
        (r"capacity = \{ value = 80, ", "capacity = { ", r"missing field mine.toml: memory.capacity.value"),
        (r"capacity = \{ value = 80", "capacity = { value = 200", r"memory.capacity must satisfy 0 <= low <= value"),
        (r"capacity = \{ value = 80", "capacity = { value = true", r"memory.capacity: value and range must be finite"),
        (r"capacity = \{.*", "capacity = 80", r"memory.capacity must be a table"),
        (r'kind = "assumed"', 'kind = "guessed"', r"kind is 'guessed', allowed: measured, datasheet, claimed, assumed"),
        (r"range = \[64, 128\]", "range = [0, 128]", r"memory.capacity and its range must be greater than 0"),
        (r"range = \[1, 8\]", "range = [0, 8]", r"kv.reread and its range must be at least 1.0"),
        (r"hypothetical = true", 'hypothetical = "yes"', r"mine.toml.hypothetical must be true or false, got 'yes'"),
        (r"(bf16|fp8|fp32) = \{.*\n", "", r"compute needs a peak rate: bf16, fp8 or fp32"),
        (r"\[memory\]", "[memory", r"mine.toml is not valid TOML"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_what_and_where(tmp_path, pattern, replacement, message):
    text, changes = re.subn(pattern, replacement, GP7000)
    assert changes
    with pytest.raises(ValueError, match=message):
        load_profile(own_file(tmp_path, text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read hardware profile .*absent.toml: No such file"):
        load_profile(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("value", "unit", "dimension", "si"),
    [
        (192, "KiB", "bytes", 196608),
        (4, "MiB", "bytes", 4194304),
        (80, "GB", "bytes", 8e10),
        (55, "GB/s", "bytes/s", 5.5e10),
        (80, "us", "seconds", 8e-5),
        (312, "TFLOP/s", "FLOP/s", 3.12e14),
    ],
)
def test_units_become_si_once_and_can_be_written_back(value, unit, dimension, si):
    table = {"value": value, "unit": unit, "kind": "assumed", "range": [value, value], "source": "test"}
    quantity = read_quantity(table, dimension, "x")
    assert quantity.value == pytest.approx(si, rel=1e-12)
    assert quantity.written() == f"{value} {unit}"


def test_one_value_can_be_changed_and_a_wrong_name_is_told():
    card = load_profile("gp7000")
    assert card.with_value("kv.prefetch", 0.0).kv.prefetch.value == 0
    assert card.kv.prefetch.value == 1
    with pytest.raises(ValueError, match=r"has no value 'kv.prefech'; did you mean 'kv.prefetch'"):
        card.with_value("kv.prefech", 0.0)
