"""The artifacts with native code trusted by this user: compiled and saved by the user's own processes.

An artifact is known by the SHA-256 of the manifest, which holds the digests of everything else. Trusted digests are
empty files in the folder ``trusted`` of the user's cache; the folder counts only if nobody else can write to it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from byoc_core.native.build_cache import cache_directory

__all__ = ["is_trusted", "trust"]


def trust(digest: str) -> bool:
    """Record permission to load native code of the artifact with this digest; return whether the recording worked."""
    folder = _folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(folder):
            return False
        (folder / digest).touch(mode=0o600)
    except OSError:
        return False
    return True


def is_trusted(digest: str) -> bool:
    """Return whether the artifact with this digest was recorded by :func:`trust` for this user."""
    folder = _folder()
    try:
        return _is_private(folder) and (folder / digest).is_file()
    except OSError:
        return False


def _folder() -> Path:
    return cache_directory() / "trusted"


def _is_private(folder: Path) -> bool:
    if not hasattr(os, "getuid"):
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077
