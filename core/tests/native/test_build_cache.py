from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from byoc_core.native.build_cache import BuildCache, cache_directory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = [pytest.mark.interpreter, pytest.mark.libraries]


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


def test_a_large_cache_is_counted_for_some_keys_only(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, max_entries=300)
    counts = []
    for index in range(700):
        key = b"%d" % index
        cache.put(key, key)
        os.utime(cache.path(key), (index, index))
        counts.append(len(list(tmp_path.iterdir())))
    assert counts[299] == 300
    assert 300 < max(counts) < 300 + 120  # the longest run without a counted key
    assert [counts[index] == 300 for index in range(300, 700)].count(True) in range(10, 50)
    assert cache.get(b"0") is None
    assert cache.get(b"699") == b"699"


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path / "chosen"))
    assert cache_directory() == tmp_path / "chosen"
    monkeypatch.delenv("BYOC_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "byoc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path("~/.cache/byoc").expanduser()


def _run(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


FULL_DISK = """
import resource, sys
from pathlib import Path
from byoc_core.native.build_cache import BuildCache
cache = BuildCache(Path(sys.argv[1]))
assert cache.put(b"small", b"product")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # a write stops in the middle, as where space runs out
print(cache.put(b"large", bytes(1_000_000)), cache.get(b"large"), cache.get(b"small"), cache.put(b"next", b"next"))
print(len(list(Path(sys.argv[1]).iterdir())))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits on a file's size are POSIX's")
def test_a_full_disk_is_a_miss_and_leaves_nothing(tmp_path: Path) -> None:
    output, errors = _run(FULL_DISK, tmp_path / "cache").communicate(timeout=60)
    assert errors == ""
    assert output.splitlines() == ["False None b'product' True", "2"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_what_cannot_be_stored_is_still_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object, **__: object) -> object:
        raise OSError(number, os.strerror(number))

    cache = BuildCache(tmp_path / "cache")
    monkeypatch.setattr("byoc_core.native.build_cache.tempfile.mkstemp", refuse)
    assert not cache.put(b"key", b"product")
    monkeypatch.undo()
    assert list((tmp_path / "cache").iterdir()) == []


WRITER = """
import sys
from pathlib import Path
from byoc_core.native.build_cache import BuildCache
cache = BuildCache(Path(sys.argv[1]), max_entries=6)
for round in range(150):
    key = b"key %d" % (round % 8)
    found = cache.get(key)
    assert found is None or found == key * 1000, found[:50]
    cache.put(key, key * 1000)
"""


def test_many_writers_at_once(tmp_path: Path) -> None:
    """Entries are written, replaced and dropped by other processes: a reader sees a whole entry or none."""
    writers = [_run(WRITER, tmp_path) for _ in range(4)]
    assert [writer.communicate(timeout=120)[1] for writer in writers] == [""] * 4
    assert [writer.returncode for writer in writers] == [0] * 4
    assert len(list(tmp_path.iterdir())) <= 6 + len(writers)
    assert not list(tmp_path.glob("new-*"))


def test_the_bytes_are_bounded(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, max_nbytes=1000)
    for index, key in enumerate((b"a", b"b", b"c")):
        cache.put(key, bytes(400))
        if index < 2:
            os.utime(cache.path(key), (index, index))
    assert [cache.get(key) is None for key in (b"a", b"b", b"c")] == [True, False, False]
    cache.put(b"huge", bytes(2000))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1000


def test_an_entry_too_large_for_the_cache_drops_no_other(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, max_nbytes=2000)
    assert cache.put(b"small", bytes(100))
    assert not cache.put(b"large", bytes(4000))
    assert cache.get(b"large") is None
    assert cache.get(b"small") == bytes(100)
