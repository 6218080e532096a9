"""Files are written whole or not at all."""

import os
import stat

import pytest

from kvjax.files import atomic_file, write_atomic


def test_text_and_bytes_replace_what_was_there(tmp_path):
    path = tmp_path / "table.md"
    write_atomic(path, "ä")
    assert path.read_bytes() == b"\xc3\xa4"
    write_atomic(path, b"\x00")
    assert path.read_bytes() == b"\x00"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_seen_before_the_end_and_nothing_stays_after_an_error(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_text("old")
    with pytest.raises(ValueError, match="checksum"), atomic_file(path) as file:
        file.write(b"half")
        assert path.read_text() == "old"
        raise ValueError("checksum")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_any_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "file", "")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
