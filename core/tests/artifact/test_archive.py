"""The container of an artifact, by itself: a single canonical form; all other forms are refused."""

from __future__ import annotations

import io
from collections.abc import Mapping

import byoc_core.artifact.archive as archive_module
import pytest
from byoc_core.artifact.archive import read_archive, write_archive
from byoc_core.errors import ArtifactError
from hypothesis import given
from hypothesis import strategies as st

DAMAGED = "x: is truncated or damaged. Copy the file again, or compile the model again."


def written(members: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    write_archive(file, members)
    return file.getvalue()


def refused(data: bytes) -> None:
    with pytest.raises(ArtifactError) as caught:
        read_archive(memoryview(data), "x")
    assert str(caught.value) == DAMAGED


@given(st.dictionaries(st.text("abc/.0", min_size=1, max_size=4), st.binary(max_size=200), min_size=1, max_size=6))
def test_members_come_back_in_order_of_name_and_aligned(members: dict[str, bytes]) -> None:
    data = written(members)
    found = read_archive(memoryview(data), "x")
    assert list(found) == sorted(members)
    assert {name: data[member.offset : member.end] for name, member in found.items()} == members
    assert all(member.offset % 64 == 0 for member in found.values())


@pytest.mark.parametrize(("first", "second"), [("bbbb", "aaaa"), ("aaaa", "aaaa")])
def test_members_out_of_order_or_twice_are_refused(first: str, second: str) -> None:
    data = written({"1111": b"one", "2222": b"two"})
    refused(data.replace(b"1111", first.encode()).replace(b"2222", second.encode()))
    assert list(read_archive(memoryview(data.replace(b"1111", b"0000")), "x")) == ["0000", "2222"]


def test_a_directory_far_beyond_the_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "_LIMIT_32", 1)  # so the end record is one of ZIP64
    data = bytearray(written({"a": b"data"}))
    monkeypatch.undo()
    start = data.rindex(b"PK\x06\x06")
    for field in (24, 32, 40, 48):  # both counts, the size, the position
        forged = bytearray(data)
        forged[start + field : start + field + 8] = b"\xff" * 8
        refused(bytes(forged))


def test_large_members_use_zip64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "_LIMIT_32", 1000)
    members = {"a": bytes(999), "b": bytes(1000), "c": bytes(5000), "d": b"end"}
    data = written(members)
    placed = read_archive(memoryview(data), "x")
    assert {name: data[member.offset : member.end] for name, member in placed.items()} == members
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 0x55
        try:
            found = read_archive(memoryview(flipped), "x")
        except ArtifactError:
            continue
        assert any(member.offset <= position < member.end for member in found.values())


def test_a_hundred_thousand_members_come_back() -> None:
    names = [f"constants/{number}" for number in range(100_000)]
    data = written({"a": b"", **dict.fromkeys(names, b"")})
    assert sorted(read_archive(memoryview(data), "x")) == ["a", *sorted(names)]


@pytest.mark.parametrize("count", [2, 0xFFFE])
def test_a_count_of_members_beyond_the_directory_is_refused(count: int) -> None:
    data = bytearray(written({"a": b"data"}))
    data[-14:-10] = count.to_bytes(2, "little") * 2
    refused(bytes(data))
