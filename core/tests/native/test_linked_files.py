"""Facts about linked files: equal to the file's content at each moment, read again only after a change."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from byoc_core.native.linked_files import file_digest, library_name

OLD = 10**18
"""A time long past, in nanoseconds."""


def test_a_changed_file_has_another_digest(tmp_path: Path) -> None:
    path = tmp_path / "libx.a"
    for text in (b"one", b"two", b"two and more", b"one"):
        path.write_bytes(text)
        assert file_digest(str(path)) == hashlib.sha256(text).hexdigest()
        assert library_name(str(path)) == "libx.a"


def test_another_file_with_the_same_size_and_time_has_another_digest(tmp_path: Path) -> None:
    path, other = tmp_path / "libx.a", tmp_path / "other"
    for text in (b"one", b"two"):
        other.write_bytes(text)
        os.utime(other, ns=(OLD, OLD))
        other.replace(path)
        assert file_digest(str(path)) == hashlib.sha256(text).hexdigest()


def test_an_unchanged_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "libx.a"
    path.write_bytes(b"one")
    reads: list[Path] = []
    read_bytes = Path.read_bytes

    def count(self: Path) -> bytes:
        reads.append(self)
        return read_bytes(self)

    monkeypatch.setattr(Path, "read_bytes", count)
    recent = [file_digest(str(path)) for _ in range(3)]
    assert len(reads) == 3  # a later change could have the same time
    written = path.stat().st_ctime_ns
    monkeypatch.setattr("time.time_ns", lambda: written + 10**10)
    settled = [file_digest(str(path)) for _ in range(3)]
    assert len(reads) == 4
    assert {*recent, *settled} == {hashlib.sha256(b"one").hexdigest()}


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    for ask in (file_digest, library_name):
        with pytest.raises(FileNotFoundError):
            ask(str(tmp_path / "absent.so"))
