"""The container of an artifact: a zip of stored members in canonical form.

Any zip tool can read the container. The form is fixed down to the last byte: members in order of name, no compression,
one timestamp, no comment. An extra field in each local header pads the member's data to a multiple of 64 bytes, to map
the data into memory in place. Writing is therefore deterministic, and reading can be strict: :func:`read_archive` takes
the members from the central directory, writes all headers anew, and refuses a file with different headers. No header
byte of a file is trusted beyond this check. Overlapping members, wrong sizes, duplicate names and compression are
therefore no means of attack.

Format: APPNOTE.TXT 6.3, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16, 4.5.3 (ZIP64). The padding is an extra field with the
header id used by Android's zipalign.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from byoc_core.errors import ArtifactError

__all__ = ["ALIGNMENT", "Buffer", "Member", "check_crc", "map_file", "read_archive", "write_archive"]

Buffer = bytes | memoryview
"""The data of a member."""

ALIGNMENT = 64
"""Every member's data begins at a multiple of this number of bytes."""

_LIMIT_16 = 0xFFFF
_LIMIT_32 = 0xFFFFFFFF
_VERSION = 45
_DATE, _TIME = 0x0021, 0  # 1 January 1980, the earliest date of the format
_MODE = 0o100644 << 16
_ZIP64_ID = 0x0001
_PADDING_ID = 0xD935
_CHUNK = 1 << 24

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_END_64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR_64 = struct.Struct("<4sIQI")
_EXTRA = struct.Struct("<HH")


@dataclass(frozen=True, slots=True)
class Member:
    """A member: the name, the position and size of the data, and the CRC-32 of the data."""

    name: str
    offset: int
    nbytes: int
    crc: int

    @property
    def end(self) -> int:
        """The end of the data."""
        return self.offset + self.nbytes


def write_archive(
    file: IO[bytes], members: Mapping[str, Buffer], *, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write the members in order of name; equal members give equal bytes.

    Args:
        file: the file to write, from the file's start.
        members: data by name; names are ASCII.
        progress: called with the bytes of data written so far and in all.
    """
    total = sum(len(data) for data in members.values())
    done = 0
    placed: list[Member] = []
    starts: list[int] = []
    position = 0
    for name in sorted(members):
        data = members[name]
        member, header = _local_header(name, len(data), _crc(data), position)
        starts.append(position)
        placed.append(member)
        file.write(header)
        for start in range(0, len(data), _CHUNK):
            file.write(data[start : start + _CHUNK])
            done += min(_CHUNK, len(data) - start)
            if progress is not None:
                progress(done, total)
        position = member.end
    file.write(_directory(placed, starts, position))


def read_archive(data: memoryview, where: str) -> dict[str, Member]:
    """Return the members of a file by name. Reads headers only, never data.

    Raises:
        ArtifactError: the file is no archive, is cut short, or is not in the canonical form.
    """
    if bytes(data[:4]) != b"PK\x03\x04":
        problem = "is empty" if not len(data) else "is not a byoc artifact"
        raise ArtifactError(where, problem, hint="Artifacts are made by `byoc compile` or `Executable.save`.")
    damaged = ArtifactError(where, "is truncated or damaged", hint="Copy the file again, or compile the model again.")
    try:
        claimed = list(_read_directory(data))
    except (struct.error, ValueError) as error:
        raise damaged from error
    members: dict[str, Member] = {}
    starts: list[int] = []
    position = 0
    for name, nbytes, crc in claimed:
        member, header = _local_header(name, nbytes, crc, position)
        if data[position : member.offset] != header or member.end > len(data):
            raise damaged
        starts.append(position)
        members[name] = member
        position = member.end
    if list(members) != sorted(members) or len(members) != len(claimed):
        raise damaged
    if data[position:] != _directory(list(members.values()), starts, position):
        raise damaged
    return members


def map_file(path: str | os.PathLike[str]) -> memoryview:
    """Return the bytes of a file, mapped read-only as long as any references exist.

    Raises:
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def check_crc(data: memoryview, member: Member, where: str) -> None:
    """Check a member's data against the CRC-32 stored in the member's header.

    Raises:
        ArtifactError: the checksums differ.
    """
    if _crc(data[member.offset : member.end]) != member.crc:
        raise ArtifactError(
            f"{where}, member {member.name}", "is damaged", hint="Copy the file again, or compile the model again."
        )


def _crc(data: Buffer) -> int:
    crc = 0
    for start in range(0, len(data), _CHUNK):
        crc = zlib.crc32(data[start : start + _CHUNK], crc)
    return crc


def _local_header(name: str, nbytes: int, crc: int, position: int) -> tuple[Member, bytes]:
    """Return a member with the local header at ``position``, and this header."""
    encoded = name.encode("ascii")
    large = nbytes >= _LIMIT_32
    zip64 = _EXTRA.pack(_ZIP64_ID, 16) + struct.pack("<QQ", nbytes, nbytes) if large else b""
    fixed = position + _LOCAL.size + len(encoded) + len(zip64) + _EXTRA.size
    padding = -fixed % ALIGNMENT
    extra = zip64 + _EXTRA.pack(_PADDING_ID, padding) + bytes(padding)
    size = _LIMIT_32 if large else nbytes
    header = _LOCAL.pack(
        b"PK\x03\x04", _VERSION, 0, 0, _TIME, _DATE, crc, size, size, len(encoded), len(extra)
    )  # fmt: skip
    return Member(name, fixed + padding, nbytes, crc), header + encoded + extra


def _directory(members: Sequence[Member], starts: Iterable[int], position: int) -> bytes:
    """Return the central directory and the end records, placed at ``position``."""
    records: list[bytes] = []
    for member, start in zip(members, starts, strict=True):
        large = [value for value in (member.nbytes, member.nbytes, start) if value >= _LIMIT_32]
        extra = _EXTRA.pack(_ZIP64_ID, 8 * len(large)) + struct.pack(f"<{len(large)}Q", *large) if large else b""
        size = min(member.nbytes, _LIMIT_32)
        encoded = member.name.encode("ascii")
        records.append(
            _CENTRAL.pack(
                b"PK\x01\x02", 3 << 8 | _VERSION, _VERSION, 0, 0, _TIME, _DATE, member.crc, size, size, len(encoded),
                len(extra), 0, 0, 0, _MODE, min(start, _LIMIT_32),
            ) + encoded + extra
        )  # fmt: skip
    directory = b"".join(records)
    count, size = len(records), len(directory)
    if count >= _LIMIT_16 or size >= _LIMIT_32 or position >= _LIMIT_32:
        end_64 = position + size
        directory += _END_64.pack(
            b"PK\x06\x06", _END_64.size - 12, 3 << 8 | _VERSION, _VERSION, 0, 0, count, count, size, position
        )
        directory += _LOCATOR_64.pack(b"PK\x06\x07", 0, end_64, 1)
    count, size, position = min(count, _LIMIT_16), min(size, _LIMIT_32), min(position, _LIMIT_32)
    return directory + _END.pack(b"PK\x05\x06", 0, 0, count, count, size, position, 0)


def _read_directory(data: memoryview) -> Iterator[tuple[str, int, int]]:
    """Yield name, size and CRC-32 of each member, as claimed by the central directory."""
    end = len(data) - _END.size
    signature, *_, count, size, position, _comment = _END.unpack_from(data, max(end, 0))
    if end < 0 or signature != b"PK\x05\x06":
        raise ValueError(signature)
    if count == _LIMIT_16 or size == _LIMIT_32 or position == _LIMIT_32:
        end = end - _LOCATOR_64.size - _END_64.size
        if end < 0:
            raise ValueError(end)
        *_, count, _count, size, position = _END_64.unpack_from(data, end)
    if position + size != end:
        raise ValueError(position)
    # The end of the file bounds the records read, for any claimed count.
    for _ in range(count):
        fields = _CENTRAL.unpack_from(data, position)
        crc, nbytes, name_length, extra_length = fields[7], fields[9], fields[10], fields[11]
        position += _CENTRAL.size
        name = bytes(data[position : position + name_length]).decode("ascii")
        position += name_length
        if nbytes == _LIMIT_32:
            (nbytes,) = struct.unpack_from("<Q", data, position + _EXTRA.size)
        position += extra_length
        yield name, nbytes, crc
