"""Reading an ELF library's own name and the names of the needed libraries."""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["DynamicNames", "read_dynamic_names"]

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRING_TABLE, _NAME = 1, 5, 14
_MAX_ENTRIES = 4096


@dataclass(frozen=True, slots=True)
class DynamicNames:
    """Names for the dynamic linker.

    Attributes:
        name: the library's own name (``DT_SONAME``); empty without such an entry.
        needed: names of the libraries to load with the library (``DT_NEEDED``).
    """

    name: str = ""
    needed: tuple[str, ...] = ()


def read_dynamic_names(data: bytes) -> DynamicNames | None:
    """Return the names in a 64-bit little-endian ELF file; ``None`` for anything else, damaged files included."""
    if not data.startswith(b"\x7fELF\x02\x01"):
        return None
    try:
        return _read(data)
    except (struct.error, KeyError, OverflowError, ValueError):
        return None


def _read(data: bytes) -> DynamicNames | None:
    header = _HEADER.unpack_from(data)
    offset, entry_size, count = header[4], header[8], header[9]
    if entry_size != _SEGMENT.size:
        return None
    segments = [_SEGMENT.unpack_from(data, offset + index * entry_size) for index in range(count)]
    loaded = [(address, start, size) for kind, _, start, address, _, size, _, _ in segments if kind == _LOAD]
    dynamic = next(((start, size) for kind, _, start, _, _, size, _, _ in segments if kind == _DYNAMIC), None)
    if dynamic is None:
        return None
    entries = []
    for index in range(min(dynamic[1] // _ENTRY.size, _MAX_ENTRIES)):
        tag, value = _ENTRY.unpack_from(data, dynamic[0] + index * _ENTRY.size)
        if tag == 0:
            break
        entries.append((tag, value))
    if not entries:
        return DynamicNames()
    address = dict(reversed(entries))[_STRING_TABLE]
    strings = next((start + address - base for base, start, size in loaded if base <= address < base + size), None)
    if strings is None:
        return None

    def text(position: int) -> str:
        begin = strings + position
        return data[begin : data.index(b"\0", begin)].decode()

    name = next((text(value) for tag, value in entries if tag == _NAME), "")
    return DynamicNames(name, tuple(text(value) for tag, value in entries if tag == _NEEDED))
