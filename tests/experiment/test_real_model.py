"""The commands on the real default model, small: run, resume, compare, probe."""

import json

import numpy as np
import pytest

from kvjax.compressor import compressor
from kvjax.evaluate import default_tokens
from kvjax.experiment.cli import main
from kvjax.experiment.config import Experiment
from kvjax.experiment.tasks.continuation import passage

pytestmark = pytest.mark.model("smollm2-135m")

EXPERIMENT = Experiment(
    name="small",
    compressors=(compressor("dense"), compressor("fp8")),
    context_tokens=64,
    continuation_tokens=8,
    contexts=2,
    needle=None,
)


def test_run_then_resume_then_compare(tmp_path, capsys) -> None:
    config, out = tmp_path / "small.json", tmp_path / "run"
    config.write_text(EXPERIMENT.to_json())
    assert main(["run", str(config), "--out", str(out), "--json", "--quiet"]) == 0
    dense, fp8 = json.loads(capsys.readouterr().out)
    # One block of 64 tokens in each of 30 layers x 3 KV heads: 64 x 2 numbers of 4 B (float32), or of 1 B (FP8).
    assert dense["payload_per_token"] == 30 * 3 * 64 * 2 * 4
    assert fp8["payload_per_token"] == 30 * 3 * 64 * 2
    assert dense["kl"]["estimate"] < 1e-6 and abs(dense["dnll"]["estimate"]) < 1e-4
    assert dense["agreement"]["estimate"] == 1.0
    assert 1e-6 < fp8["kl"]["estimate"] < 0.1

    before = (out / "metrics.jsonl").read_bytes()
    assert main(["run", str(out / "config.json"), "--out", str(out), "--quiet"]) == 2
    assert "--resume" in capsys.readouterr().err
    lines = before.splitlines(keepends=True)
    (out / "metrics.jsonl").write_bytes(b"".join(lines[:-1]) + lines[-1][:40])  # killed inside the last unit's line
    assert main(["run", str(out / "config.json"), "--out", str(out), "--resume", "--quiet"]) == 0
    assert (out / "metrics.jsonl").read_bytes() == before

    capsys.readouterr()
    assert main(["compare", str(out), str(out), "--json"]) == 0
    assert {d["difference"]["estimate"] for d in json.loads(capsys.readouterr().out)} == {0.0}


def test_probe_writes_the_promised_arrays(tmp_path) -> None:
    from kvjax.models import load_model

    np.save(tmp_path / "ids.npy", default_tokens(load_model("smollm2-135m").tokenizer)[:72])
    out = tmp_path / "probe.npz"
    arguments = ["probe", "--model", "smollm2-135m", "--tokens", str(tmp_path / "ids.npy"), "--context", "64"]
    arguments += ["--compressor", "knorm | uniform(keep=0.5) | fp8", "--out", str(out), "--reference"]
    assert main(arguments) == 0
    with np.load(out, allow_pickle=False) as arrays:
        shapes = {name: (arrays[name].dtype.str, arrays[name].shape) for name in arrays.files}
        assert shapes == {
            "nll": ("<f4", (7,)),
            "last_logits": ("<f4", (49152,)),
            "kept": ("<i4", (30, 3, 32)),
            "length": ("<i4", (30, 3)),
            "nbytes": ("<i8", (3,)),
            "stored_nbytes": ("<i8", ()),
            "dense_nbytes": ("<i8", ()),
            "kl": ("<f4", (8,)),
        }
        assert arrays["dense_nbytes"] == 64 * 30 * 3 * 64 * 2 * 2
        assert arrays["nbytes"][2] == arrays["nbytes"][0] + arrays["nbytes"][1]
        assert (arrays["length"] == 32).all() and (np.diff(arrays["kept"]) > 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("context_tokens=8190", "exceed the limit"),
        ("compressors=snapkv | uniform(keep=0.5)", "longer context"),
        ("compressors=knorm | uniform(tokens=65)", "more than the context"),
        ("serving.hardware=gp700", "did you mean 'gp7000'"),
    ],
)
def test_settings_that_do_not_fit_the_model_are_one_line(tmp_path, capsys, change: str, message: str) -> None:
    (tmp_path / "small.json").write_text(EXPERIMENT.to_json())
    run = ["run", str(tmp_path / "small.json"), "--out", str(tmp_path / "run"), "--quiet"]
    assert main([*run, "--set", change, "--set", "serving.input_tokens=4096"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and message in lines[0]


def test_passages_depend_on_seed_and_index_only() -> None:
    text = np.arange(1000, dtype=np.int32)
    first = passage(text, 64, 8, 0, 0, None)
    assert len(first) == 72 and (np.diff(first) == 1).all()
    assert (passage(text, 64, 8, 0, 0, None) == first).all()
    assert (passage(text, 64, 8, 0, 1, None) != first).any() and (passage(text, 64, 8, 1, 0, None) != first).any()
    with_bos = passage(text, 64, 8, 0, 0, 7)
    assert len(with_bos) == 72 and with_bos[0] == 7
    with pytest.raises(ValueError, match="text"):
        passage(text[:50], 64, 8, 0, 0, None)
