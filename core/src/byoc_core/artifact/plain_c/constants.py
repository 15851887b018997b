"""The constants of exported C: arrays in C text, a binary file included by the assembler, or a file of the caller.

The file of the caller, ``<prefix>.weights``, begins with a head of 64 bytes: the text ``byoc constants`` and two zeros,
the bytes of the file as a number of 64 bits, the SHA-256 digest of everything behind the head, and zeros. Each constant
begins at a multiple of 64 bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from byoc_core.errors import OptionsError
from byoc_core.native.c_text import C_TYPES, HALF_DTYPES, c_storage_type
from byoc_core.runtime.module import NDArray

__all__ = ["ALIGNMENT", "CONSTANT_FORMS", "ConstantFiles"]

ALIGNMENT = 64
"""Alignment of each constant in bytes, as in an artifact."""

CONSTANT_FORMS = ("auto", "array", "object", "file")
HEAD_NBYTES = 64

_MAX_TEXT_NBYTES = 1 << 18
_SECTION_MACRO = """\
/* Constants. Compiled with -D{upper}_CONSTANTS_SECTION='".name"', the constants lie in this section. */
#include <math.h>
#include <stdint.h>

#ifdef {upper}_CONSTANTS_SECTION
#define {upper}_CONSTANTS_ATTRIBUTE __attribute__((section({upper}_CONSTANTS_SECTION)))
#else
#define {upper}_CONSTANTS_ATTRIBUTE
#endif
"""
_INCLUDED = """\
#if !defined(__GNUC__) && !defined(__clang__)
#error "binary constants need gcc or clang: export with constants='array'"
#elif defined(__APPLE__)
#define SECTION ".const_data\\n"
#define SYMBOL "_{symbol}"
#define PREVIOUS ".text\\n"
#elif defined(_WIN32)
#define SECTION ".section .rdata,\\"dr\\"\\n"
#define SYMBOL "{symbol}"
#define PREVIOUS ".text\\n"
#else
#ifndef {upper}_CONSTANTS_SECTION
#define {upper}_CONSTANTS_SECTION ".rodata.{symbol}"
#endif
#define SECTION ".section " {upper}_CONSTANTS_SECTION ",\\"a\\"\\n"
#define SYMBOL "{symbol}"
#define PREVIOUS ".text\\n"
#endif
__asm__(SECTION ".globl " SYMBOL "\\n.balign {alignment}\\n" SYMBOL ":\\n.incbin \\"{file}\\"\\n" PREVIOUS);
"""


class ConstantFiles:
    """The files with all constants of a model.

    Args:
        prefix: the model's name.
        arrays: the arrays by digest, in order.
        form: ``"array"``: C arrays, for any C compiler; ``"object"``: a binary file included by the assembler of gcc,
            clang or zig; ``"file"``: a file passed by the caller in memory; ``"auto"``: arrays up to 256 KiB in all,
            else a binary file.

    Attributes:
        nbytes: bytes of all constants.
        is_text: whether the constants are C arrays.
        is_file: whether the caller passes the constants, as the parameter ``constants`` of functions.

    Raises:
        OptionsError: the form is unknown.
    """

    def __init__(self, prefix: str, arrays: Mapping[str, NDArray], form: str = "auto") -> None:
        if form not in CONSTANT_FORMS:
            raise OptionsError("option `constants`", "unknown form", got=repr(form), expected=", ".join(CONSTANT_FORMS))
        self._prefix = prefix
        self._arrays = {digest: np.ascontiguousarray(array) for digest, array in arrays.items()}
        self.nbytes = sum(array.nbytes for array in self._arrays.values())
        self.is_text = form == "array" or (form == "auto" and self.nbytes <= _MAX_TEXT_NBYTES)
        self.is_file = form == "file" and bool(arrays)
        self._offsets: dict[str, int] = {}
        end = 0
        for digest, array in self._arrays.items():
            self._offsets[digest] = end
            end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        self._end = end

    @property
    def names(self) -> list[str]:
        """The C names of the constants."""
        if self.is_text:
            return [f"{self._prefix}_constant_{number}" for number in range(len(self._arrays))]
        return [] if self.is_file else [self._symbol]

    def expressions(self) -> dict[str, str]:
        """Return a C expression of the address of each constant, by digest; constant but for a file of the caller."""
        if self.is_file:
            return {digest: f"constants + {HEAD_NBYTES + offset}" for digest, offset in self._offsets.items()}
        if self.is_text:
            return dict(zip(self._arrays, self.names, strict=True))
        return {digest: f"{self._symbol} + {offset}" for digest, offset in self._offsets.items()}

    def declarations(self) -> Iterator[str]:
        """Yield the declarations behind :meth:`expressions`."""
        if not self._arrays or self.is_file:
            return
        if self.is_text:
            for name, array in zip(self.names, self._arrays.values(), strict=True):
                yield f"extern const {_ctype(array)} {name}[{max(array.size, 1)}];"
        else:
            yield f"extern const unsigned char {self._symbol}[];"

    def files(self) -> dict[str, bytes]:
        """Return the files by name; none without constants."""
        if not self._arrays:
            return {}
        if self.is_file:
            return {self.file_name: self.head() + self._data()}
        if self.is_text:
            lines = [_SECTION_MACRO.format(upper=self._prefix.upper()), *self._definitions()]
            return {f"{self._prefix}_constants.c": ("\n".join(lines) + "\n").encode()}
        name = f"{self._prefix}_constants.bin"
        text = _INCLUDED.format(upper=self._prefix.upper(), symbol=self._symbol, alignment=ALIGNMENT, file=name)
        head = "/* Constants, included as binary data. */\nextern const unsigned char {0}[];\n"
        source = (head.format(self._symbol) + text).encode()
        return {f"{self._prefix}_constants.c": source, name: self._data()}

    @property
    def file_name(self) -> str:
        """The name of the file passed by the caller."""
        return f"{self._prefix}.weights"

    @property
    def file_nbytes(self) -> int:
        """The bytes of the file passed by the caller."""
        return HEAD_NBYTES + self._end

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 digest of the file passed by the caller, without the head."""
        return hashlib.sha256(self._data()).digest()

    def head(self) -> bytes:
        """Return the first bytes of the file passed by the caller."""
        return (b"byoc constants\0\0" + self.file_nbytes.to_bytes(8, "little") + self.digest).ljust(HEAD_NBYTES, b"\0")

    @property
    def _symbol(self) -> str:
        return f"{self._prefix}_constant_data"

    def _data(self) -> bytes:
        padded = (array.tobytes() + bytes(-array.nbytes % ALIGNMENT) for array in self._arrays.values())
        return b"".join(padded)

    def _definitions(self) -> Iterator[str]:
        for name, array in zip(self.names, self._arrays.values(), strict=True):
            ctype = _ctype(array)
            yield f"extern const {ctype} {name}[{max(array.size, 1)}];"
            section = f"{self._prefix.upper()}_CONSTANTS_ATTRIBUTE"
            yield f"{section} _Alignas({ALIGNMENT}) const {ctype} {name}[{max(array.size, 1)}] = {{"
            literals = [_literal(value) for value in _bits(array)] or ["0"]
            yield from (f"  {', '.join(literals[start : start + 8])}," for start in range(0, len(literals), 8))
            yield "};"


def _ctype(array: NDArray) -> str:
    return "uint16_t" if array.dtype.name in HALF_DTYPES else c_storage_type(array.dtype.name)


def _bits(array: NDArray) -> NDArray:
    flat = array.reshape(-1)
    is_number = array.dtype.name in C_TYPES and array.dtype.name not in HALF_DTYPES
    return flat if is_number else flat.view(f"u{array.dtype.itemsize}")


def _literal(value: np.generic) -> str:
    """Return a C constant of exactly this value; floats in hexadecimal."""
    if isinstance(value, np.floating):
        number = float(value)
        if number != number:
            return "-NAN" if np.signbit(value) else "NAN"
        if number in (float("inf"), float("-inf")):
            return "INFINITY" if number > 0 else "-INFINITY"
        return number.hex() + ("f" if value.dtype == np.float32 else "")
    number = int(value)
    if number == -(1 << 63):
        return "INT64_MIN"
    suffix = {"int64": "LL", "uint64": "ULL", "uint32": "U"}.get(value.dtype.name, "")
    return f"{number}{suffix}"
