"""A compressor is its config: printed in one way, equal and hashed by value, refused when it makes no sense."""

import itertools
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from kvjax.budgets import LayerPlace, Uniform
from kvjax.cache.compress import compress_layer, plan_layer
from kvjax.codecs import BF16, FP8, Dense
from kvjax.compressor import DEFAULT_BLOCK, STAGES, Compressor, compressor
from kvjax.scores import Random, SnapKV


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("dense", "dense"),
        ("  bf16 ", "bf16"),
        ("fp8()", "fp8"),
        ("fp8(variant='e4m3', scale=head)", "fp8"),
        ("fp8(scale=token)", "fp8(scale=token)"),
        ("knorm|uniform(0.5)", "knorm | uniform(keep=0.5) | dense"),
        ("uniform(keep=1) | knorm", "knorm | uniform(keep=1.0) | dense"),
        ("fp8 | uniform(tokens=8) | snapkv(64, 7)", "snapkv(kernel=7) | uniform(tokens=8) | fp8"),
        (f"sinks(0) | recent(0) | block({DEFAULT_BLOCK})", "dense"),
        ("block(16) | recent(8) | sinks(tokens=4) | fp8", "fp8 | sinks(4) | recent(8) | block(16)"),
    ],
)
def test_canonical_printing(text, canonical):
    assert str(compressor(text)) == canonical
    assert str(compressor(canonical)) == canonical


def test_order_of_stages_does_not_matter():
    stages = ["snapkv(window=8)", "uniform(keep=0.25)", "fp8(scale=token)", "sinks(4)", "block(16)"]
    read = {compressor(" | ".join(order)) for order in itertools.permutations(stages)}
    assert read == {
        Compressor(SnapKV(window=8), Uniform(keep=0.25), codec=FP8(scale="token"), sinks=4, block=16),
    }


def test_equal_and_hashed_by_value_after_a_round_trip():
    one = Compressor(Random(seed=3), Uniform(bytes_per_token=1234.5), codec=FP8(variant="e5m2"), recent=7)
    other = compressor(str(one))
    assert one == other and hash(one) == hash(other) and one is not other
    assert one != compressor(str(one).replace("seed=3", "seed=4"))


def test_absent_parts_are_none_and_the_codec_is_dense():
    plain = compressor("dense")
    assert plain == Compressor()
    assert (plain.score, plain.budget, plain.transform, plain.codec) == (None, None, None, Dense())
    assert (plain.sinks, plain.recent, plain.block) == (0, 0, DEFAULT_BLOCK)
    assert compressor("knorm | uniform(0.5)").codec == Dense()


def test_settings():
    chosen = compressor("bf16 | sinks(4) | recent(32) | block(16)")
    assert (chosen.codec, chosen.sinks, chosen.recent, chosen.block) == (BF16(), 4, 32, 16)


@pytest.mark.parametrize(
    "text, message",
    [
        ("knorm", r"a score goes with a budget: got score=Knorm\(\), budget=None; write for example"),
        ("knorm | fp8", "a score goes with a budget"),
        ("uniform(keep=0.5)", r"a score goes with a budget: got score=None, budget=Uniform\(keep=0.5"),
        ("knorm | snapkv | uniform(keep=0.5)", r"has two score stages: Knorm\(\) and SnapKV\(.*; keep one"),
        ("knorm | uniform(keep=0.5) | uniform(keep=0.5)", "has two budget stages"),
        ("fp8 | bf16", r"has two codec stages: FP8\(.*\) and BF16\(\); keep one"),
        ("fp8 | sinks(4) | sinks(8)", "has two sinks stages: 4 and 8; keep one"),
        ("fp8 | sinks(-1)", "sinks=-1, recent=0: both must be 0 or more"),
        ("fp8 | recent(-2)", "sinks=0, recent=-2: both must be 0 or more"),
        ("block(0)", "block=0: a block needs at least 1 slot"),
        ("fp8 | sinks(2.5)", "is 2.5; allowed: int"),
        ("snapkv(kernel=4) | uniform(keep=0.5)", r"snapkv\(kernel=4\): kernel must be odd and positive"),
        ("streaming_llm(sinks=-1) | uniform(keep=0.5)", r"streaming_llm\(sinks=-1\): sinks must be 0 or more"),
        ("random(seed=-1) | uniform(keep=0.5)", r"random\(seed=-1\): seed must be in 0..4294967295"),
        ("random(seed=4294967296) | uniform(keep=0.5)", "seed must be in"),
    ],
)
def test_what_makes_no_sense_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        compressor(text)


def test_R08_shifting_coded_keys_is_refused_when_configured():
    """No stage of this version re-positions keys: the message names what there is."""
    with pytest.raises(ValueError, match="unknown name 'rerotate'") as error:
        compressor("rerotate | fp8")
    assert str(error.value).endswith("Allowed: " + ", ".join(sorted(STAGES)))


@pytest.mark.parametrize("window, length, fits", [(8, 9, True), (8, 8, False), (8, 3, False)])
def test_context_must_be_longer_than_the_queries_that_a_score_reads(window, length, fits):
    chosen = compressor(f"snapkv(window={window}) | uniform(keep=0.5)")
    if fits:
        chosen.check(length)
    else:
        message = rf"snapkv\(window=8\) reads the last 8 queries .* the context has {length} tokens"
        with pytest.raises(ValueError, match=message):
            chosen.check(length)
    compressor("dense").check(1)
    compressor("knorm | uniform(keep=0.5)").check(1)


@dataclass(frozen=True)
class Latest:
    """A user's score, known to no table: later is better, or earlier with `sign=-1`."""

    name: ClassVar[str] = "latest"
    queries: ClassVar[int] = 0
    sign: float = 1.0

    def __call__(self, obs):
        return jnp.broadcast_to(self.sign * obs.positions.astype(jnp.float32)[None], obs.k.shape[:2])


def kept(chosen: Compressor, tokens: int, kv_heads: int = 2, seed: int = 0):
    """Positions that each head keeps of random keys, and the keys."""
    rng = np.random.default_rng(seed)
    k, v = (jnp.asarray(rng.normal(size=(1, kv_heads, tokens, 4)), jnp.float32) for _ in range(2))
    place = LayerPlace(0, 1, kv_heads, bytes_per_token=1.0)
    plan, totals = plan_layer(chosen, [tokens], place, window=None, max_new_tokens=0)
    positions = jnp.arange(tokens, dtype=jnp.int32)[None]
    layer = compress_layer(
        chosen, plan, k, k, v, positions, positions >= 0, jnp.asarray(totals), jnp.int32(0), scale=0.5, window=None
    )
    held = np.asarray(layer.entries().positions[0])
    return [sorted(head[head >= 0].tolist()) for head in held], np.asarray(k[0])


def test_a_users_score_works_without_registration():
    built = Compressor(Latest(), Uniform(keep=0.25))
    assert str(built) == "latest | uniform(keep=0.25) | dense"
    assert kept(built, 20)[0] == [[15, 16, 17, 18, 19]] * 2

    read = compressor("latest(sign=-1) | uniform(keep=0.25)", stages={"latest": Latest})
    assert read == Compressor(Latest(sign=-1.0), Uniform(keep=0.25))
    assert kept(read, 20)[0] == [[0, 1, 2, 3, 4]] * 2

    with pytest.raises(ValueError, match="unknown name 'latest'"):
        compressor("latest | uniform(keep=0.25)")


def test_a_stage_that_is_nothing_is_refused():
    @dataclass(frozen=True)
    class Nothing:
        name: ClassVar[str] = "nothing"

    with pytest.raises(ValueError, match=r"Nothing\(\) is neither a score, a budget, a transform nor a codec"):
        compressor("nothing", stages={"nothing": Nothing})


@pytest.mark.parametrize("codec", ["dense", "fp8"])
def test_E03_no_sinks_and_no_recent_protect_nothing(codec):
    """40 tokens, 10 kept: exactly those with the shortest keys, wherever they lie."""
    got, k = kept(compressor(f"knorm | uniform(keep=0.25) | {codec} | sinks(0) | recent(0)"), 40)
    shortest = np.argsort(np.linalg.norm(k.astype(np.float64), axis=-1), axis=-1)[:, :10]
    assert got == np.sort(shortest, axis=-1).tolist()


@pytest.mark.parametrize("codec", ["dense", "fp8"])
def test_sinks_and_recent_come_out_of_the_budget(codec):
    got, k = kept(compressor(f"knorm | uniform(keep=0.25) | {codec} | sinks(2) | recent(3)"), 40)
    between = np.argsort(np.linalg.norm(k.astype(np.float64), axis=-1)[:, 2:37], axis=-1)[:, :5] + 2
    assert got == [sorted([0, 1, *head, 37, 38, 39]) for head in between.tolist()]
