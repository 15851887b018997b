from __future__ import annotations

import os
from pathlib import Path

import pytest
from byoc_core.native.build_cache import BuildCache, cache_directory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def test_what_was_put_is_got(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache")
    assert cache.get(b"key") is None
    assert cache.put(b"key", b"product")
    assert cache.get(b"key") == b"product"
    assert cache.get(b"other") is None
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(position=st.integers(min_value=0), flip=st.integers(min_value=1, max_value=255), cut=st.booleans())
def test_a_damaged_entry_is_a_miss(tmp_path: Path, position: int, flip: int, cut: bool) -> None:
    cache = BuildCache(tmp_path)
    cache.put(b"key", b"product")
    data = bytearray(cache.path(b"key").read_bytes())
    position %= len(data)
    if cut:
        del data[position:]
    else:
        data[position] ^= flip
    cache.path(b"key").write_bytes(data)
    assert cache.get(b"key") is None


def test_the_whole_key_is_compared(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.put(b"one", b"product")
    cache.path(b"one").rename(cache.path(b"two"))
    assert cache.get(b"two") is None


def test_a_folder_that_cannot_be_written_is_a_miss(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = BuildCache(tmp_path / "file" / "cache")
    assert not cache.put(b"key", b"product")
    assert cache.get(b"key") is None


def test_a_folder_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache")
    cache.put(b"key", b"product")
    cache.directory.chmod(0o777)
    assert cache.get(b"key") is None
    assert not cache.put(b"key", b"product")


def test_the_oldest_entries_are_dropped(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, max_entries=2)
    for index, key in enumerate((b"a", b"b")):
        cache.put(key, key)
        os.utime(cache.path(key), (index, index))
    cache.put(b"c", b"c")
    assert [cache.get(key) for key in (b"a", b"b", b"c")] == [None, b"b", b"c"]


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path / "chosen"))
    assert cache_directory() == tmp_path / "chosen"
    monkeypatch.delenv("BYOC_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "byoc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path("~/.cache/byoc").expanduser()
