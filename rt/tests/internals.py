"""Internal functions of the C runtime through ``ctypes``, compiled with visible symbols: sizes, JSON, checksums."""

from __future__ import annotations

import ctypes
import shlex
import subprocess
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_void_p
from pathlib import Path
from typing import Any

from byoc_core.native.toolchain import find_toolchain

__all__ = ["PartError", "Parts"]

SOURCES = Path(__file__).parents[1] / "csrc"
INCLUDES = (SOURCES.parent / "include", SOURCES, SOURCES / "shared")
FILES = ("digest", "dims", "dims_bind", "dims_text", "dtypes", "error", "json", "memory", "text", "shared/sizes")
UNKNOWN = -(1 << 63)


class PartError(Exception):
    """An error of a part."""


class _Text(ctypes.Structure):
    _fields_ = (("data", c_char_p), ("length", c_size_t))


class _Hash(ctypes.Structure):
    _fields_ = (("state", c_uint32 * 8), ("nbytes", ctypes.c_uint64), ("block", c_uint8 * 64))


class _Bytes(ctypes.Structure):
    """A text by address: zero bytes inside are kept."""

    _fields_ = (("data", c_void_p), ("length", c_size_t))


class _Json(ctypes.Structure):
    """A node."""


class _Member(ctypes.Structure):
    """A field of an object."""


class _Content(ctypes.Union):
    _fields_ = (
        ("is_true", c_int),
        ("integer", c_int64),
        ("real", ctypes.c_double),
        ("text", _Bytes),
        ("items", POINTER(_Json)),
        ("fields", POINTER(_Member)),
    )


_Json._fields_ = (("kind", c_int), ("count", c_uint32), ("content", _Content))
_Member._fields_ = (("name", _Bytes), ("value", _Json))


class Parts:
    """The compiled functions.

    Args:
        folder: the folder for the library.
    """

    def __init__(self, folder: Path) -> None:
        file = folder / "parts.so"
        command = [
            *find_toolchain().command,
            "-std=c11",
            "-O1",
            "-fPIC",
            "-shared",
            "-DBYOC_RT_BUILDS",
            "-o",
            str(file),
        ]
        command += [f"-I{folder}" for folder in INCLUDES] + [str(SOURCES / f"{name}.c") for name in FILES]
        done = subprocess.run([*command, "-lm"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stderr}"
        self._library = library = ctypes.CDLL(str(file))
        for name, result, arguments in (
            ("byoc_rt_last_error", c_char_p, ()),
            ("rt_pool_new", c_void_p, ()),
            ("rt_pool_free", None, (c_void_p,)),
            ("rt_dims_new", c_void_p, (c_void_p, c_int32)),
            ("rt_dim", c_int32, (c_void_p, _Text)),
            ("rt_symbol", c_int32, (c_void_p, _Text)),
            ("rt_num_sizes", c_int32, (c_void_p,)),
            ("rt_forget_sizes", None, (c_void_p, POINTER(c_int64))),
            ("rt_size", c_int32, (c_void_p, c_int32, POINTER(c_int64), c_char_p, POINTER(c_int64))),
            ("rt_json_read", POINTER(_Json), (c_void_p, _Text, c_int32, c_char_p)),
            ("rt_sha256_begin", None, (POINTER(_Hash),)),
            ("rt_sha256_add", None, (POINTER(_Hash), c_char_p, c_size_t)),
            ("rt_sha256_end", None, (POINTER(_Hash), c_char_p)),
            ("rt_crc32", c_uint32, (c_char_p, c_size_t)),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments

    def _error(self) -> PartError:
        return PartError(self._library.byoc_rt_last_error().decode())

    def evaluate(self, text: str, sizes: Mapping[str, int]) -> int:
        """Return the value of a size.

        Raises:
            PartError: the text does not parse, or the size has no value.
        """
        library = self._library
        pool = library.rt_pool_new()
        try:
            dims = library.rt_dims_new(pool, 1)
            encoded = text.encode()
            size = library.rt_dim(dims, _Text(encoded, len(encoded)))
            if size < 0:
                raise self._error()
            assert library.rt_dim(dims, _Text(encoded, len(encoded))) == size
            symbols = {name: library.rt_symbol(dims, _Text(name.encode(), len(name))) for name in sizes}
            table = (c_int64 * library.rt_num_sizes(dims))()
            library.rt_forget_sizes(dims, table)
            for name, value in sizes.items():
                table[symbols[name]] = value
            found = c_int64()
            if library.rt_size(dims, size, table, b"here", found):
                raise self._error()
            return found.value
        finally:
            library.rt_pool_free(pool)

    def read_json(self, data: bytes) -> Any:
        """Return a JSON value.

        Raises:
            PartError: the bytes are no JSON text.
        """
        library = self._library
        pool = library.rt_pool_new()
        try:
            found = library.rt_json_read(pool, _Text(data, len(data)), 1, b"here")
            if not found:
                raise self._error()
            return _value(found.contents)
        finally:
            library.rt_pool_free(pool)

    def sha256(self, *chunks: bytes) -> bytes:
        """Return the digest of chunks, added one after the other."""
        hash_ = _Hash()
        self._library.rt_sha256_begin(hash_)
        for chunk in chunks:
            self._library.rt_sha256_add(hash_, chunk, len(chunk))
        digest = ctypes.create_string_buffer(32)
        self._library.rt_sha256_end(hash_, digest)
        return digest.raw

    def crc32(self, data: bytes) -> int:
        """Return the CRC-32."""
        crc: int = self._library.rt_crc32(data, len(data))
        return crc


def _text(text: _Bytes) -> str:
    assert not ctypes.string_at(text.data + text.length, 1)[0]  # a zero byte behind
    return ctypes.string_at(text.data, text.length).decode()


def _value(node: _Json) -> Any:
    content = node.content
    match node.kind:
        case 0:
            return None
        case 1:
            return bool(content.is_true)
        case 2:
            return content.integer
        case 3:
            return content.real
        case 4:
            return _text(content.text)
        case 5:
            return [_value(content.items[index]) for index in range(node.count)]
        case 6:
            fields = (content.fields[index] for index in range(node.count))
            return {_text(field.name): _value(field.value) for field in fields}
    raise AssertionError(node.kind)
