"""Writing files whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

import pytest
from byoc_core.file_replacement import replace_file

pytestmark = pytest.mark.interpreter


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_and_fail(target: Path, error: BaseException) -> None:
    with replace_file(target) as file:
        file.write(b"new")
        raise error


def test_the_file_appears_whole_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "out.bin"
    target.write_bytes(b"old")
    with replace_file(target) as file:
        file.write(b"new")
        file.flush()
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert names_in(tmp_path) == ["out.bin"]


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_after_an_error_the_old_file_is_as_it_was(tmp_path: Path, error: BaseException) -> None:
    target = tmp_path / "out.bin"
    target.write_bytes(b"old")
    with pytest.raises(type(error)) as caught:
        write_and_fail(target, error)
    assert target.read_bytes() == b"old"
    assert names_in(tmp_path) == ["out.bin"]
    if isinstance(caught.value, OSError):
        assert caught.value.filename == str(target)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions and links are those of POSIX")
class TestPosix:
    def test_the_umask_counts(self, tmp_path: Path) -> None:
        old = os.umask(0o027)
        try:
            for name, mode in (("plain", 0o666), ("program", 0o777)):
                with replace_file(tmp_path / name, mode=mode):
                    pass
        finally:
            os.umask(old)
        assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "program")] == [0o640, 0o750]

    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        folder = tmp_path / "elsewhere"
        folder.mkdir()
        link = tmp_path / "link"
        link.symlink_to(folder / "real")
        for content in (b"first", b"second"):
            with replace_file(link) as file:
                file.write(content)
            assert link.is_symlink()
            assert (folder / "real").read_bytes() == content

    def test_a_pipe_is_never_replaced(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        link = tmp_path / "link"
        link.symlink_to(pipe)
        for path in (pipe, link):
            with pytest.raises(OSError, match="Is not a regular file, and is not replaced by a regular file") as caught:
                replace_file(path).__enter__()
            assert caught.value.filename == str(path)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert names_in(tmp_path) == ["link", "pipe"]


@pytest.mark.parametrize(
    ("name", "kind"), [("folder", IsADirectoryError), ("absent/x", FileNotFoundError), ("file/x", NotADirectoryError)]
)
def test_errors_name_what_was_asked_for(tmp_path: Path, name: str, kind: type[OSError]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(kind) as caught, replace_file(tmp_path / name):
        pass
    assert caught.value.filename == str(tmp_path / name)
    assert names_in(tmp_path) == ["file", "folder"]


def test_a_name_of_the_greatest_length(tmp_path: Path) -> None:
    with replace_file(tmp_path / ("n" * 255)) as file:
        file.write(b"x")
    assert (tmp_path / ("n" * 255)).read_bytes() == b"x"
