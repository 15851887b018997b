"""Self-contained libraries: compiled functions, their constants, and an artifact as data.

``build_bundle`` links C sources with a blob into a shared library. A TVM FFI, C++ or Python program calls the
functions by their ``__tvm_ffi_*`` exports. byoc finds the whole model in the blob: ``read_bundle`` extracts the blob
from the file without running any code of the file. Constants lie in the blob, once.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from byoc_core.errors import ArtifactError
from byoc_core.file_replacement import replace_file
from byoc_core.native.toolchain import BuildOptions, Toolchain, find_toolchain

__all__ = ["ARTIFACT_SYMBOL", "BundleSource", "build_bundle", "read_bundle"]

ARTIFACT_SYMBOL = "byoc_artifact"
"""The blob's first byte, for the sources of a bundle."""

_SECTIONS = {"elf": ".byoc.artifact", "macho": "__byoc_artifact", "pe": ".byoc"}
_DATA = """\
/* The artifact, as data. */
#include "byoc_ffi.h"

#if defined(__APPLE__)
#define SECTION ".section __DATA,@macho@\\n"
#define SYMBOL(name) "_" #name
#define PREVIOUS ".text\\n"
#elif defined(_WIN32)
#define SECTION ".section @pe@,\\"dr\\"\\n"
#define SYMBOL(name) #name
#define PREVIOUS ".text\\n"
#else
#define SECTION ".pushsection @elf@,\\"a\\"\\n"
#define SYMBOL(name) #name
#define PREVIOUS ".popsection\\n"
#endif
__asm__(SECTION ".globl " SYMBOL(byoc_artifact) "\\n.balign 64\\n" SYMBOL(byoc_artifact) ":\\n"
        ".incbin \\"artifact.bin\\"\\n" PREVIOUS);
BYOC_EXPORT extern const unsigned char byoc_artifact[];
BYOC_EXPORT const uint64_t byoc_artifact_size = @size@u;
"""


@dataclass(frozen=True, slots=True)
class BundleSource:
    """A C source.

    Attributes:
        text: the source.
        constants: targets of the table ``byoc_constants``, in order: offsets in the blob; the blob begins at a multiple
            of 64 bytes.
        renamed: names of the source with their new names in the library, because the old names are taken there.
    """

    text: str
    constants: tuple[int, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()


def build_bundle(
    sources: Sequence[BundleSource | str],
    blob: bytes,
    path: str | os.PathLike[str],
    *,
    options: BuildOptions | None = None,
    toolchain: Toolchain | None = None,
) -> None:
    """Write a shared library with all functions of the sources and the blob.

    The library exports each source's ``__tvm_ffi_*`` functions, ``byoc_last_error``, ``byoc_artifact`` (the blob's
    first byte) and ``byoc_artifact_size`` (``uint64_t``). The file appears whole or not at all; equal inputs give
    equal bytes.

    Raises:
        ToolchainError: no C compiler, or the compiler failed (for example, two sources export the same symbol).
        OSError: the library cannot be written.
    """
    items = [source if isinstance(source, BundleSource) else BundleSource(source) for source in sources]
    files: dict[str, str] = {}
    data = _DATA.replace("@size@", str(len(blob)))
    for kind, section in _SECTIONS.items():
        data = data.replace(f"@{kind}@", section)
    lines = [data]
    for index, item in enumerate(items):
        renamed = (*item.renamed, ("byoc_constants", f"byoc_constants_{index}"))
        files[f"source_{index}.c"] = "".join(
            [*(f"#define {old} {new}\n" for old, new in renamed if old != new), item.text]
        )
        lines += _constant_table(index, item)
    files["data.c"] = "\n".join(lines) + "\n"
    toolchain = toolchain or find_toolchain(options.target if options else "")
    library = toolchain.compile(files, options, data_files={"artifact.bin": bytes(blob)})
    with replace_file(path, mode=0o777) as file:
        file.write(library.data)


def _constant_table(index: int, item: BundleSource) -> Iterator[str]:
    """Yield C code for filling a source's table with pointers to its constants when the library is loaded."""
    if not item.constants:
        return
    table = f"byoc_constants_{index}"
    yield f"extern const void *{table}[];"
    yield f"__attribute__((constructor)) static void fill_{table}(void) {{"
    yield from (
        f"  {table}[{position}] = {ARTIFACT_SYMBOL} + {offset}u;" for position, offset in enumerate(item.constants)
    )
    yield "}"


_ELF_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_ELF_SECTION = struct.Struct("<IIQQQQIIQQ")


def read_bundle(path: str | os.PathLike[str]) -> bytes | None:
    """Return the blob of a bundle, or ``None`` if the file is not a library from :func:`build_bundle`.

    Reads the file's section table only; no code of the library runs. Supports libraries for Linux (ELF), macOS (Mach-O)
    and Windows (PE).

    Raises:
        ArtifactError: the file is a bundle, but is damaged.
        OSError: the file cannot be read.
    """
    data = Path(path).read_bytes()
    for start, read in ((b"\x7fELF\x02\x01", _read_elf), (b"\xcf\xfa\xed\xfe", _read_macho), (b"MZ", _read_pe)):
        if data.startswith(start):
            try:
                return read(data)
            except (struct.error, IndexError, ValueError) as error:
                raise ArtifactError(f"library `{os.fspath(path)}`", "the section table is damaged") from error
    return None


def _cut(data: bytes, start: int, nbytes: int) -> bytes:
    if start + nbytes > len(data):
        raise ValueError(nbytes)
    return data[start : start + nbytes]


def _read_elf(data: bytes) -> bytes | None:
    header = _ELF_HEADER.unpack_from(data)
    offset, entry_size, count, names_index = header[5], header[10], header[11], header[12]
    if entry_size != _ELF_SECTION.size or not count:
        return None
    sections = [_ELF_SECTION.unpack_from(data, offset + index * entry_size) for index in range(count)]
    names_start = sections[names_index][4]
    section_name = _SECTIONS["elf"].encode()
    for section in sections:
        name_start = names_start + section[0]
        if data[name_start : data.index(b"\0", name_start)] == section_name:
            return _cut(data, section[4], section[5])
    return None


_MACHO_SEGMENT = 0x19
_MACHO_SECTION = struct.Struct("<16s16sQQI28x")


def _read_macho(data: bytes) -> bytes | None:
    (num_commands,) = struct.unpack_from("<I", data, 16)
    position = 32
    for _ in range(num_commands):
        command, size = struct.unpack_from("<II", data, position)
        if command == _MACHO_SEGMENT:
            (num_sections,) = struct.unpack_from("<I", data, position + 64)
            for index in range(num_sections):
                name, _, _, nbytes, start = _MACHO_SECTION.unpack_from(data, position + 72 + index * 80)
                if name.rstrip(b"\0") == _SECTIONS["macho"].encode():
                    return _cut(data, start, nbytes)
        position += size
    return None


_PE_SECTION = struct.Struct("<8sI4xII16x")


def _read_pe(data: bytes) -> bytes | None:
    (header,) = struct.unpack_from("<I", data, 0x3C)
    if data[header : header + 4] != b"PE\0\0":
        return None
    (num_sections,) = struct.unpack_from("<H", data, header + 6)
    (optional_nbytes,) = struct.unpack_from("<H", data, header + 20)
    for index in range(num_sections):
        section_offset = header + 24 + optional_nbytes + index * _PE_SECTION.size
        name, nbytes, _, start = _PE_SECTION.unpack_from(data, section_offset)
        if name.rstrip(b"\0") == _SECTIONS["pe"].encode():
            return _cut(data, start, nbytes)
    return None
