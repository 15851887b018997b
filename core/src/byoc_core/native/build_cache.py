"""A cache of build products on disk, addressed by all inputs of a product.

The folder is ``$BYOC_CACHE_DIR``, else ``$XDG_CACHE_HOME/byoc``, else ``~/.cache/byoc``. A folder of another user, or
writable by others, is not used. A damaged, full or read-only cache only misses: nothing depends on the cache.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["BuildCache", "cache_directory"]

_MAGIC = b"byoc-build-1\n"
_LENGTHS = struct.Struct("<QQ")
_SHARE = 256
"""Entries above this part of a limit, by number or size, are counted at each :meth:`BuildCache.put`."""


def cache_directory() -> Path:
    """Return the user's cache folder for byoc (it may not exist yet)."""
    override = os.environ.get("BYOC_CACHE_DIR")
    if override:
        return Path(override)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "byoc"


class BuildCache:
    """Build products by key.

    An entry holds the whole key, compared on reading, and a digest over key and product. Entries are written to a
    temporary file and renamed; readers therefore never see a partial entry. The least recently used entries are
    dropped beyond ``max_entries`` and ``max_nbytes``; a small entry in a large cache causes the count by chance only,
    for one key in sixteen.

    Args:
        directory: folder of the entries.
        max_entries: maximum number of entries.
        max_nbytes: maximum size of all entries in bytes.
    """

    def __init__(self, directory: Path | None = None, *, max_entries: int = 4096, max_nbytes: int = 1 << 30) -> None:
        self.directory = directory if directory is not None else cache_directory() / "build"
        self.max_entries = max_entries
        self.max_nbytes = max_nbytes

    def path(self, key: bytes) -> Path:
        """Return the path for the product of a key, whether the file exists or not."""
        return self.directory / hashlib.sha256(key).hexdigest()

    def get(self, key: bytes) -> bytes | None:
        """Return the product of a key, or ``None``."""
        try:
            if not self._is_private():
                return None
            path = self.path(key)
            entry = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return _unpack(entry, key)

    def put(self, key: bytes, product: bytes) -> bool:
        """Store a product, and return whether storing succeeded; an entry above ``max_nbytes`` is not stored."""
        entry = _pack(key, product)
        if len(entry) > self.max_nbytes:
            return False
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_private():
                return False
            handle, temporary = tempfile.mkstemp(dir=self.directory, prefix="new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(entry)
                Path(temporary).replace(self.path(key))
            except OSError:
                with suppress(OSError):
                    Path(temporary).unlink()
                raise
            if self._is_counted(key, len(entry)):
                self._drop_oldest()
        except OSError:
            return False
        return True

    def _is_counted(self, key: bytes, nbytes: int) -> bool:
        """Return whether storing an entry of a size in bytes needs a look at all entries."""
        is_large = self.max_entries < _SHARE or nbytes * _SHARE > self.max_nbytes
        return is_large or self.path(key).name.startswith("0")

    def _is_private(self) -> bool:
        if not hasattr(os, "getuid"):
            return True
        status = self.directory.stat()
        return status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o022

    def _drop_oldest(self) -> None:
        entries = []
        with os.scandir(self.directory) as found:
            for file in found:
                with suppress(OSError):
                    status = file.stat()
                    entries.append((status.st_mtime_ns, status.st_size, file.path))
        entries.sort(key=lambda entry: entry[0], reverse=True)
        nbytes = 0
        for index, (_, size, path) in enumerate(entries):
            nbytes += size
            if index >= self.max_entries or nbytes > self.max_nbytes:
                with suppress(OSError):
                    Path(path).unlink()


def _pack(key: bytes, product: bytes) -> bytes:
    body = _LENGTHS.pack(len(key), len(product)) + key + product
    return _MAGIC + hashlib.sha256(body).digest() + body


def _unpack(entry: bytes, key: bytes) -> bytes | None:
    start = len(_MAGIC) + 32
    body = entry[start:]
    if entry[: len(_MAGIC)] != _MAGIC or len(body) < _LENGTHS.size:
        return None
    if hashlib.sha256(body).digest() != entry[len(_MAGIC) : start]:
        return None
    key_length, product_length = _LENGTHS.unpack_from(body)
    if len(body) != _LENGTHS.size + key_length + product_length:
        return None
    if body[_LENGTHS.size : _LENGTHS.size + key_length] != key:
        return None
    return body[_LENGTHS.size + key_length :]
