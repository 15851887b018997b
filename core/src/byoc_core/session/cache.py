"""The cache of compiled models: artifacts by key, in the user's cache folder.

The folder is ``sessions`` in the folder of :func:`byoc_core.native.build_cache.cache_directory`; a folder of another
user, or writable by others, is not used. An entry is an ordinary artifact: loading checks it like any other, and native
code in it loads only if this user's own process saved it. Entries appear whole or not at all. The least recently used
entries are dropped beyond a number of bytes, :data:`DEFAULT_NBYTES` or ``$BYOC_SESSION_CACHE_NBYTES``.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byoc_core.errors import OptionsError
from byoc_core.file_replacement import replace_file
from byoc_core.native.build_cache import cache_directory

__all__ = ["DEFAULT_NBYTES", "CacheEntry", "SessionCache"]

DEFAULT_NBYTES = 16 << 30
_LIMIT = "BYOC_SESSION_CACHE_NBYTES"
_ARTIFACT, _FACTS = ".byoc", ".json"
_MAX_FACTS = 1 << 20


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A compiled model in the cache.

    Attributes:
        path: the artifact.
        nbytes: the bytes of the artifact.
        used: the time of the last use, in seconds since the epoch.
        source: the path of the model when the model was compiled; empty if unknown.
    """

    path: Path
    nbytes: int
    used: float
    source: str


class SessionCache:
    """Artifacts by key, with facts beside them.

    Args:
        folder: the folder of the entries; by default the user's.
        max_nbytes: the most bytes of all artifacts; by default of the environment, or :data:`DEFAULT_NBYTES`.

    Raises:
        OptionsError: ``$BYOC_SESSION_CACHE_NBYTES`` is no number of bytes.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, max_nbytes: int | None = None) -> None:
        self.folder = cache_directory() / "sessions" if folder is None else Path(folder)
        self.max_nbytes = _limit_of_environment() if max_nbytes is None else max_nbytes

    def path(self, key: str) -> Path:
        """Return the path of the artifact of a key, whether the file exists or not."""
        return self.folder / (key + _ARTIFACT)

    def find(self, key: str) -> Path | None:
        """Return the artifact of a key, and count this as a use; ``None`` without an entry in a private folder."""
        path = self.path(key)
        try:
            if not self._is_private() or not stat.S_ISREG(path.lstat().st_mode):
                return None
        except OSError:
            return None
        with suppress(OSError):
            os.utime(path)
        return path

    def facts(self, key: str) -> dict[str, Any]:
        """Return the facts of a key; empty if absent or damaged."""
        try:
            if not self._is_private():
                return {}
            with (self.folder / (key + _FACTS)).open("rb") as file:
                found = json.loads(file.read(_MAX_FACTS))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def put(self, key: str, save: Callable[[Path], object]) -> Path:
        """Store an artifact.

        Args:
            key: the key.
            save: writes the artifact to a path; the file appears whole or not at all.

        Returns:
            The path of the artifact.

        Raises:
            OSError: the folder cannot be written, or is not private.
        """
        self._open_folder()
        save(self.path(key))
        self._drop_oldest(keep=self.path(key))
        return self.path(key)

    def put_facts(self, key: str, facts: Mapping[str, Any]) -> None:
        """Store facts under a key.

        Raises:
            OSError: the folder cannot be written, or is not private.
        """
        self._open_folder()
        with replace_file(self.folder / (key + _FACTS), mode=0o600) as file:
            file.write(json.dumps(facts, sort_keys=True).encode())

    def entries(self) -> list[CacheEntry]:
        """Return all entries, most recently used first."""
        found = []
        with suppress(OSError):
            for path in self.folder.iterdir():
                if path.suffix != _ARTIFACT or path.name.startswith("."):
                    continue
                with suppress(OSError):
                    status = path.stat()
                    source = self.facts(path.stem).get("source", "")
                    found.append(
                        CacheEntry(path, status.st_size, status.st_mtime, source if isinstance(source, str) else "")
                    )
        return sorted(found, key=lambda entry: (-entry.used, entry.path.name))

    def clear(self, *, unused_days: float = 0.0) -> int:
        """Remove entries, and return their bytes.

        Sessions in use go on: their files live as long as they are mapped.

        Args:
            unused_days: keep entries used within so many days.

        Raises:
            OSError: a file cannot be removed.
        """
        oldest = time.time() - unused_days * 86_400
        removed = [entry for entry in self.entries() if not unused_days or entry.used < oldest]
        for entry in removed:
            entry.path.unlink(missing_ok=True)
            entry.path.with_suffix(_FACTS).unlink(missing_ok=True)
        if not unused_days and self.folder.is_dir():
            for path in self.folder.iterdir():
                if path.suffix == _FACTS or path.name.startswith(".byoc-"):  # facts of models, and unfinished files
                    path.unlink(missing_ok=True)
        return sum(entry.nbytes for entry in removed)

    def _open_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._is_private():
            raise PermissionError(f"the folder `{self.folder}` belongs to another user, or others can write to it")

    def _is_private(self) -> bool:
        if not hasattr(os, "getuid"):
            return True
        status = self.folder.stat()
        return status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o022

    def _drop_oldest(self, keep: Path) -> None:
        nbytes = 0
        for entry in self.entries():
            nbytes += entry.nbytes
            if nbytes > self.max_nbytes and entry.path != keep:
                with suppress(OSError):
                    entry.path.unlink()
                    entry.path.with_suffix(_FACTS).unlink(missing_ok=True)


def _limit_of_environment() -> int:
    text = os.environ.get(_LIMIT, "")
    if not text:
        return DEFAULT_NBYTES
    if not (text.isascii() and text.isdigit()):
        raise OptionsError(f"environment variable {_LIMIT}", "is no number of bytes", got=repr(text))
    return int(text)
