"""The container seen from outside: read by Python's `zipfile`, with bytes unchanged across releases."""

from __future__ import annotations

import hashlib
import io
import mmap
import struct
import zipfile
from pathlib import Path
from typing import Any

import byoc_core.artifact.archive as archive_module
import pytest
from byoc_core.artifact.archive import check_crc, read_archive, write_archive
from byoc_core.errors import ArtifactError

MEMBERS = {"manifest.json": b"{}", "constants/0": bytes(range(256)), "program": b"", "a": b"x" * 64}
HINT = "Artifacts are made by `byoc compile` or `Executable.save`."
UNIX, STORED, VERSION = 3, 0, 45


def written(members: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    write_archive(file, members)
    return file.getvalue()


def check_entry(info: zipfile.ZipInfo) -> None:
    assert (info.create_system, info.create_version, info.extract_version) == (UNIX, VERSION, VERSION)
    assert (info.compress_type, info.flag_bits, info.volume, info.internal_attr) == (STORED, 0, 0, 0)
    assert info.external_attr == 0o100644 << 16
    assert info.date_time == (1980, 1, 1, 0, 0, 0)
    assert info.comment == b""


def test_zip_tools_read_what_is_written() -> None:
    with zipfile.ZipFile(io.BytesIO(written(MEMBERS))) as archive:
        assert archive.testzip() is None
        assert archive.comment == b""
        assert archive.namelist() == sorted(MEMBERS)
        assert {name: archive.read(name) for name in archive.namelist()} == MEMBERS
        for info in archive.infolist():
            check_entry(info)
            assert info.extra == b""


def test_zip_tools_read_more_members_than_the_first_format_counts() -> None:
    members = {f"{number:05}": b"" for number in range(0xFFFF)}
    data = written(members)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.namelist() == sorted(members)
    assert list(read_archive(memoryview(data), "x")) == sorted(members)
    del members["00000"]
    assert b"PK\x06\x06" not in written(members)


class Zeros:
    """A number of zero bytes, without memory."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def __len__(self) -> int:
        return self.nbytes

    def __getitem__(self, part: slice) -> Zeros:
        return Zeros(min(part.stop, self.nbytes) - part.start)


class SparseFile(io.FileIO):
    """A file with holes for zero bytes."""

    def write(self, data: Any) -> int:
        if isinstance(data, Zeros):
            self.truncate(self.seek(len(data), 1))
        else:
            super().write(data)
        return len(data)


@pytest.mark.parametrize("nbytes", [2**32 - 2, 2**32 - 1, 2**32, 5 * 2**30])
def test_zip_tools_read_members_of_four_gigabytes(nbytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "_crc", lambda data: len(data) % 1009)
    path = tmp_path / "x.byoc"
    members: dict[str, Any] = {"a": b"first", "b": Zeros(nbytes), "c": b"last", "d": b"end"}
    steps: list[tuple[int, int]] = []
    with SparseFile(str(path), "w") as file:
        write_archive(file, members, progress=lambda done, total: steps.append((done, total)))
    with zipfile.ZipFile(path) as archive:
        found = archive.infolist()
        assert [(info.filename, info.file_size) for info in found] == [(n, len(data)) for n, data in members.items()]
        assert [info.CRC for info in found] == [len(data) % 1009 for data in members.values()]
        for info in found:
            check_entry(info)
    with (
        path.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as data,
        memoryview(data) as view,
    ):
        placed = read_archive(view, "x")
        assert {name: member.nbytes for name, member in placed.items()} == {n: len(d) for n, d in members.items()}
        assert bytes(view[placed["c"].offset : placed["c"].end]) == b"last"
        for info in found:
            signature, *_, crc, packed, size, name, extra = struct.unpack_from("<4s5H3I2H", view, info.header_offset)
            start = info.header_offset + 30 + name
            if info.file_size >= 2**32 - 1:
                assert (packed, size) == (2**32 - 1, 2**32 - 1)
                assert struct.unpack_from("<2H2Q", view, start) == (1, 16, info.file_size, info.file_size)
            else:
                assert (packed, size) == (info.file_size, info.file_size)
            assert (signature, crc) == (b"PK\x03\x04", info.CRC)
            assert start + extra == placed[info.filename].offset
    total = sum(map(len, members.values()))
    assert [of for _, of in steps] == [total] * len(steps)
    assert [done for done, _ in steps] == sorted({done for done, _ in steps})
    assert (steps[0][0], steps[-1][0]) == (5, total)


@pytest.mark.parametrize(
    ("limit", "digest"),
    [
        (None, "829c72ae0a5a67c668556ee5d54ae6f74bdb36a4d5f9c08acd06846436750fb4"),
        (100, "00396953f8b67e31b682326390f13b7f107f0c51be19d04b5e4caa50ebaf6fc7"),
        (60, "3d7fe00e5bfb83d2ae0f1dd8cc7dedf6e14887bbc4e188519a9352ef495d0ff7"),
    ],
)
def test_the_bytes_of_an_archive_never_change(limit: int | None, digest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader writes all headers anew and compares, so other bytes are another format."""
    if limit is not None:
        monkeypatch.setattr(archive_module, "_LIMIT_32", limit)  # so there are records of ZIP64
    assert hashlib.sha256(written(MEMBERS)).hexdigest() == digest


def test_data_is_summed_and_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    members = {"a": bytes(range(40)), "b": b"", "c": bytes(range(15))}
    whole = written(members)
    monkeypatch.setattr(archive_module, "_CHUNK", 16)
    steps: list[tuple[int, int]] = []
    file = io.BytesIO()
    write_archive(file, members, progress=lambda done, total: steps.append((done, total)))
    assert file.getvalue() == whole
    assert steps == [(16, 55), (32, 55), (40, 55), (55, 55)]


def test_data_is_checked_against_the_sum_of_its_header() -> None:
    data = bytearray(written(MEMBERS))
    members = read_archive(memoryview(data), "x")
    for member in members.values():
        check_crc(memoryview(data), member, "x")
    data[members["constants/0"].offset] ^= 1
    for name in sorted(members.keys() - {"constants/0"}):
        check_crc(memoryview(data), members[name], "x")
    with pytest.raises(ArtifactError) as caught:
        check_crc(memoryview(data), members["constants/0"], "x")
    assert str(caught.value) == ("x, member constants/0: is damaged. Copy the file again, or compile the model again.")


@pytest.mark.parametrize(
    ("data", "problem"),
    [(b"", "is empty"), (b"P", "is not a byoc artifact"), (b"PK\x03\x05" + bytes(100), "is not a byoc artifact")],
)
def test_what_is_no_archive_is_called_so(data: bytes, problem: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        read_archive(memoryview(data), "file `m.onnx`")
    assert str(caught.value) == f"file `m.onnx`: {problem}. {HINT}"
