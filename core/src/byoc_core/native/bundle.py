"""Libraries that hold everything: compiled functions, their constants, and an artifact as data.

``build_bundle`` links C sources with a blob into one shared library. A TVM FFI, C++ or Python program calls the
functions by their ``__tvm_ffi_*`` exports; byoc finds the whole model in the blob, which ``read_bundle`` takes out of
the file without running anything in it. Constants lie in the blob, once.
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
ARTIFACT_SIZE_SYMBOL = "byoc_artifact_size"
_SECTION = ".byoc.artifact"

_BLOBS_HEADER = """\
/* The artifact, as data. */
#include "byoc_ffi.h"

#if defined(__APPLE__)
#define BYOC_SECTION(elf, macho) ".section " macho "\\n"
#define BYOC_SYMBOL(name) "_" #name
#define BYOC_PREVIOUS ".text\\n"
#else
#define BYOC_SECTION(elf, macho) ".pushsection " elf ",\\"a\\"\\n"
#define BYOC_SYMBOL(name) #name
#define BYOC_PREVIOUS ".popsection\\n"
#endif
#define BYOC_BLOB(name, file, elf, macho) \\
  __asm__(BYOC_SECTION(elf, macho) ".globl " BYOC_SYMBOL(name) "\\n.balign 64\\n" BYOC_SYMBOL(name) ":\\n" \\
          ".incbin \\"" file "\\"\\n" BYOC_PREVIOUS)
"""


@dataclass(frozen=True, slots=True)
class BundleSource:
    """One C source.

    Attributes:
        text: the source.
        constants: what its table ``byoc_constants`` points to, in order: offsets in the blob, which begins at a
            multiple of 64 bytes.
        renamed: names of the source and what they are in the library, which has something else of that name.
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
    """Writes one shared library with all functions of the sources and the blob.

    The library exports each source's ``__tvm_ffi_*`` functions, ``byoc_last_error``, ``byoc_artifact`` (the blob's
    first byte) and ``byoc_artifact_size`` (``uint64_t``). The file appears whole or not at all; equal inputs give
    equal bytes.

    Raises:
        ToolchainError: no C compiler, or it failed (two sources that export one symbol, say).
        OSError: the library cannot be written.
    """
    items = [source if isinstance(source, BundleSource) else BundleSource(source) for source in sources]
    files: dict[str, str] = {}
    lines = [
        _BLOBS_HEADER,
        f'BYOC_BLOB({ARTIFACT_SYMBOL}, "artifact.bin", "{_SECTION}", "__DATA,__byoc_artifact");',
        f"BYOC_EXPORT extern const unsigned char {ARTIFACT_SYMBOL}[];",
        f"BYOC_EXPORT const uint64_t {ARTIFACT_SIZE_SYMBOL} = {len(blob)}u;",
    ]
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
    """Yields C that points one source's table at its constants when the library is loaded."""
    if not item.constants:
        return
    table = f"byoc_constants_{index}"
    yield f"extern const void *{table}[];"
    yield f"__attribute__((constructor)) static void fill_{table}(void) {{"
    yield from (f"  {table}[{place}] = {ARTIFACT_SYMBOL} + {offset}u;" for place, offset in enumerate(item.constants))
    yield "}"


_ELF_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_ELF_SECTION = struct.Struct("<IIQQQQIIQQ")


def read_bundle(path: str | os.PathLike[str]) -> bytes | None:
    """Gives the blob of a bundle, or ``None`` where the file is not a library made by :func:`build_bundle`.

    Reads the file's section table only; no code of the library runs. Linux (ELF) libraries, the form that
    :func:`build_bundle` makes there.

    Raises:
        ArtifactError: the file is such a library, but is damaged.
        OSError: the file cannot be read.
    """
    data = Path(path).read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return _read_macho(data)
    try:
        return _read_elf(data)
    except (struct.error, IndexError, ValueError) as error:
        raise ArtifactError(f"library `{os.fspath(path)}`", "its section table is damaged") from error


def _read_elf(data: bytes) -> bytes | None:
    header = _ELF_HEADER.unpack_from(data)
    offset, entry_size, count, names_index = header[5], header[10], header[11], header[12]
    if entry_size != _ELF_SECTION.size or not count:
        return None
    sections = [_ELF_SECTION.unpack_from(data, offset + index * entry_size) for index in range(count)]
    names_start = sections[names_index][4]
    wanted = _SECTION.encode()
    for section in sections:
        name_start = names_start + section[0]
        if data[name_start : data.index(b"\0", name_start)] == wanted:
            start, size = section[4], section[5]
            if start + size > len(data):
                raise ValueError(size)
            return data[start : start + size]
    return None


_MACHO_SEGMENT = 0x19
_MACHO_SECTION = struct.Struct("<16s16sQQI28x")


def _read_macho(data: bytes) -> bytes | None:
    """Finds the section ``__byoc_artifact`` of a 64-bit Mach-O library."""
    if data[:4] != b"\xcf\xfa\xed\xfe":
        return None
    try:
        (num_commands,) = struct.unpack_from("<I", data, 16)
        position = 32
        for _ in range(num_commands):
            command, size = struct.unpack_from("<II", data, position)
            if command == _MACHO_SEGMENT:
                (num_sections,) = struct.unpack_from("<I", data, position + 64)
                for index in range(num_sections):
                    name, _, _, nbytes, start = _MACHO_SECTION.unpack_from(data, position + 72 + index * 80)
                    if name.rstrip(b"\0") == b"__byoc_artifact":
                        return data[start : start + nbytes]
            position += size
    except struct.error as error:
        raise ArtifactError("library", "its load commands are damaged") from error
    return None
