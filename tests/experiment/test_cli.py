"""The command line: exit codes, one clear line for each mistake, quick start."""

import json
import subprocess
import sys

import numpy as np
import pytest

from kvjax.experiment.cli import COMMANDS, main

COST = ["cost", "--model", "llama-2-70b", "--hardware", "h100", "--devices", "8", "--batch", "4"]
COST += ["--input", "1024", "--output", "128"]
PROBE = ["probe", "--model", "absent.gguf", "--context", "4", "--compressor", "fp8"]


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("kvjax: "), captured.err
    assert "Traceback" not in captured.err
    return lines[0]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command: str, capsys) -> None:
    assert main([*command.split(), "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: kvjax")


def test_starting_imports_nothing_that_only_a_run_needs() -> None:
    code = "import sys; from kvjax.experiment.cli import main; main(['run', '--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.splitlines()[-1].split())
    assert not imported & {"matplotlib", "rich", "gguf", "tokenizers", "kvjax.models", "kvjax.hardware"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["lsit"], "unknown command 'lsit'; did you mean 'list'"),
        (["list", "codex"], "codecs"),
        (["run"], "required: CONFIG"),
        (["run", "a.py", "--resum"], "unknown option --resum; did you mean '--resume'"),
        (["run", "absent.py"], "no config at absent.py"),
        ([*COST, "--compresor", "fp8"], "did you mean '--compressor'"),
        ([*COST, "--compressor", "fp9"], "did you mean 'fp8'"),
        ([*COST, "--compressor", "knorm | uniform(keep=1.5)"], "(0, 1]"),
        ([*COST, "--hardware", "h10"], "did you mean 'h100'"),
        ([*COST, "--model", "llama-2-71b"], "llama-2-70b"),
        ([*COST, "--batch", "0"], "--batch must be at least 1, got 0"),
        ([*COST, "--batch", "4.5"], "invalid int value"),
        ([*COST, "--devices", "1"], "does not fit"),
        (["compare", "a", "b"], "a is no run folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in one_line(capsys)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (None, "no such file"),
        (b"not an array", "not an .npy file"),
        (np.zeros((2, 3), np.int64), "one dimension"),
        (np.zeros(8), "whole numbers"),
        (np.array([1, -2, 3]), "ids must lie in"),
        (np.array([{"a": 1}], dtype=object), "not an .npy file"),
    ],
)
def test_probe_names_unusable_tokens(tokens, message: str, capsys, tmp_path) -> None:
    path = tmp_path / "ids.npy"
    if isinstance(tokens, bytes):
        path.write_bytes(tokens)
    elif tokens is not None:
        np.save(path, tokens)
    assert main([*PROBE, "--tokens", str(path), "--out", str(tmp_path / "probe.npz")]) == 2
    assert message in one_line(capsys)


def test_probe_names_a_missing_output_folder_before_anything_runs(capsys, tmp_path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(8))
    arguments = [*PROBE, "--tokens", str(tmp_path / "ids.npy"), "--out", str(tmp_path / "no" / "probe.npz")]
    assert main(arguments) == 2
    assert "does not exist" in one_line(capsys)


def test_a_fault_that_is_no_bad_input_is_exit_code_1(capsys, monkeypatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("device lost")

    monkeypatch.setattr("kvjax.hardware.load_profile", fail)
    monkeypatch.setattr("kvjax.experiment.prediction.load_profile", fail)
    assert main(COST) == 1
    assert "kvjax: fault: device lost" in one_line(capsys)
    with pytest.raises(RuntimeError):
        main([*COST, "--traceback"])


def test_cost_as_text_and_json(capsys) -> None:
    assert main(COST) == 0
    text = capsys.readouterr().out
    assert "time to first token" in text and "bound by" in text
    assert main([*COST, "--json", "--compressor", "fp8"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["compressor"] == "fp8" and data["devices"] == 8 and data["tpot"] > 0


def test_G02_every_option_of_cost_changes_the_prediction(capsys) -> None:
    def predicted(*extra: str) -> dict:
        assert main([*COST, "--json", *extra]) == 0
        return json.loads(capsys.readouterr().out)

    base = predicted()
    for name, value in (
        ("--model", "llama-2-13b"),
        ("--hardware", "h200"),
        ("--devices", "4"),
        ("--batch", "5"),
        ("--input", "2048"),
        ("--output", "256"),
        ("--compressor", "fp8"),
    ):
        changed = predicted(name, value)
        assert (changed["ttft"], changed["tpot"], changed["tokens_per_second"]) != (
            base["ttft"],
            base["tpot"],
            base["tokens_per_second"],
        ), name


def test_list_names_every_kind_and_codecs_have_bytes(capsys) -> None:
    assert main(["list", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    named = {(entry["kind"], entry["name"]) for entry in entries}
    assert {("scores", "snapkv"), ("budgets", "uniform"), ("codecs", "fp8"), ("models", "smollm2-135m")} <= named
    assert {("hardware", "gp7000"), ("tasks", "needle"), ("tasks", "continuation")} <= named
    assert all(entry["summary"] and entry["source"] for entry in entries)
    bf16 = next(entry for entry in entries if entry["name"] == "bf16")
    # 30 layers x 3 KV heads: 64 x 2 x 2 B of codes, and a block's 64 positions and 3 table words over its 64 tokens.
    assert bf16["bytes_per_token"] == 30 * 3 * (256 + (64 * 4 + 12) / 64)


def test_list_one_kind_as_text(capsys) -> None:
    assert main(["list", "codecs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "codecs" and any(line.startswith("fp8 ") for line in lines)
