"""Facts about files linked into compiled C, read again only if the file changed."""

from __future__ import annotations

import hashlib
import time
from functools import lru_cache
from pathlib import Path

from byoc_core.native.elf import read_dynamic_names

__all__ = ["file_digest", "library_name"]

_SETTLED_NS = 2 * 10**9
"""The age of a change after which a later change has another time: clocks of file systems are coarse."""


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file.

    Raises:
        OSError: the file cannot be read.

    Cost: reading the file, or the file's status if the same file was read before.
    """
    identity = _settled_identity(path)
    return _read_digest(path) if identity is None else _digest(path, identity)


def library_name(path: str) -> str:
    """Return the name recorded by the linker for a shared library: its own name, else its file's name.

    Raises:
        OSError: the file cannot be read.

    Cost: as :func:`file_digest`.
    """
    identity = _settled_identity(path)
    return _read_name(path) if identity is None else _name(path, identity)


def _settled_identity(path: str) -> tuple[int, ...] | None:
    """Return numbers changed by every later write and by another file at the path; ``None`` after a recent change."""
    status = Path(path).stat()
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < _SETTLED_NS:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@lru_cache(maxsize=256)
def _digest(path: str, _: tuple[int, ...]) -> str:
    return _read_digest(path)


@lru_cache(maxsize=256)
def _name(path: str, _: tuple[int, ...]) -> str:
    return _read_name(path)


def _read_digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _read_name(path: str) -> str:
    names = read_dynamic_names(Path(path).read_bytes())
    return (names.name if names is not None else "") or Path(path).name
