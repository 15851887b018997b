"""Names in ELF files, and arbitrarily damaged files."""

from __future__ import annotations

import struct

import pytest
from byoc_core.native.elf import DynamicNames, read_dynamic_names
from hypothesis import given
from hypothesis import strategies as st

HEADER, SEGMENT, ENTRY = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ"), struct.Struct("<qQ")
BASE = 0x1000
NEEDED, STRINGS, NAME = 1, 5, 14


def _library(entries: list[tuple[int, int]], strings: bytes = b"\0libm.so.6\0libown.so\0") -> bytes:
    """Return a library of a single loaded segment, with the string table behind the dynamic entries."""
    start = HEADER.size + 2 * SEGMENT.size
    table = start + (len(entries) + 1) * ENTRY.size
    dynamic = b"".join(ENTRY.pack(tag, BASE + table if tag == STRINGS else value) for tag, value in (*entries, (0, 0)))
    size = table + len(strings)
    segments = SEGMENT.pack(1, 5, 0, BASE, BASE, size, size, 4096)
    segments += SEGMENT.pack(2, 6, start, BASE + start, BASE + start, len(dynamic), len(dynamic), 8)
    header = HEADER.pack(b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, HEADER.size, 0, 0, HEADER.size, SEGMENT.size, 2, 0, 0, 0)
    return header + segments + dynamic + strings


WHOLE = _library([(NEEDED, 1), (NAME, 11), (STRINGS, 0)])


def test_the_names_of_a_library() -> None:
    assert read_dynamic_names(WHOLE) == DynamicNames("libown.so", ("libm.so.6",))
    assert read_dynamic_names(_library([])) == DynamicNames()
    assert read_dynamic_names(b"MZ" + WHOLE) is None


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([(NEEDED, 1)], id="no string table"),
        pytest.param([(STRINGS, 0), (NEEDED, 10_000)], id="a name behind the end"),
        pytest.param([(STRINGS, 0), (NEEDED, 2**64 - 1)], id="a name far behind the end"),
    ],
)
def test_names_without_text_are_none(entries: list[tuple[int, int]]) -> None:
    assert read_dynamic_names(_library(entries)) is None


def test_a_string_table_outside_of_what_is_loaded_is_none() -> None:
    damaged = WHOLE.replace(ENTRY.pack(STRINGS, BASE + WHOLE.index(b"\0libm")), ENTRY.pack(STRINGS, 7))
    assert damaged != WHOLE
    assert read_dynamic_names(damaged) is None


@given(st.integers(6, len(WHOLE) - 1), st.binary(min_size=1, max_size=16))
def test_a_damaged_library_has_names_or_none(place: int, damage: bytes) -> None:
    damaged = WHOLE[:place] + damage + WHOLE[place + len(damage) :]
    assert isinstance(read_dynamic_names(damaged), DynamicNames | None)


@given(st.integers(0, len(WHOLE)))
def test_a_library_that_ends_early_has_names_or_none(size: int) -> None:
    assert isinstance(read_dynamic_names(WHOLE[:size]), DynamicNames | None)
