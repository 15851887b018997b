"""The database of measured ops: an SQLite file shared by all processes of a user.

The file is ``$BYOC_MEASUREMENTS``, by default ``measurements.sqlite`` in the cache folder (``$BYOC_CACHE_DIR``, else
``$XDG_CACHE_HOME/byoc``, else ``~/.cache/byoc``). ``BYOC_MEASUREMENTS=0`` switches the user's database off.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from byoc_core.errors import ArtifactError
from byoc_core.measurements.measurement import Measurement, merged
from byoc_core.native.build_cache import cache_directory
from byoc_core.printable import to_printable

__all__ = ["SWITCH", "USER_DATABASE", "Measurements"]

SWITCH = "BYOC_MEASUREMENTS"
"""The environment variable with the path of the user's database, or ``0``."""

_VERSION = 1
_WAIT_S = 30.0
"""The longest wait for another process's transaction."""
_LOGGER = logging.getLogger("byoc_core")
_NAMES = tuple(field.name for field in fields(Measurement))
_IDENTITY = ("processor", "threads", "backend", "version", "options", "schedule", "key")
_CREATE = (
    f"CREATE TABLE IF NOT EXISTS measurements ({', '.join(f'{name} NOT NULL' for name in _NAMES)}, "
    f"PRIMARY KEY ({', '.join(_IDENTITY)})) WITHOUT ROWID"
)
_SELECT = f"SELECT {', '.join(_NAMES)} FROM measurements"  # noqa: S608 - names of fields
_ORDER = f" ORDER BY {', '.join(_IDENTITY)}"
_REPLACE = f"REPLACE INTO measurements ({', '.join(_NAMES)}) VALUES ({', '.join('?' * len(_NAMES))})"  # noqa: S608


@dataclass(frozen=True)
class Measurements:
    """A database of measured ops.

    Several processes may read and write at once. Nothing depends on the database but the choice of a placement: a build
    goes on with a damaged file, with a warning, and a row with a value that does not fit is ignored.

    Attributes:
        path: of the file, which need not exist; by default the user's database.
    """

    path: str = ""

    @property
    def file(self) -> Path | None:
        """The file; ``None`` if the user's database is switched off."""
        if self.path:
            return Path(self.path)
        location = os.environ.get(SWITCH, "")
        if location == "0":
            return None
        return Path(location) if location else cache_directory() / "measurements.sqlite"

    def rows(self, **equal: str | int) -> list[Measurement]:
        """Return the measurements with given values of fields, in order of identity.

        Args:
            equal: values by field.

        Raises:
            ArtifactError: the file is no database of measurements.
        """
        file = self.file
        if file is None or not file.is_file():
            return []
        where = " AND ".join(f"{name} = ?" for name in equal if name in _NAMES)
        query = f"{_SELECT}{' WHERE ' if where else ''}{where}{_ORDER}"
        with _opened(file, "ro") as connection:
            if not _version(connection):
                return []
            found = connection.execute(query, tuple(equal.values())).fetchall()
        return [row for row in map(Measurement.read, found) if row is not None]

    def usable_rows(self, **equal: str | int) -> list[Measurement]:
        """Return the same as :meth:`rows`; nothing, with a warning, if the file is no database of measurements."""
        try:
            return self.rows(**equal)
        except ArtifactError as error:
            _LOGGER.warning("measured ops do not count: %s", error)
            return []

    def add(self, rows: Iterable[Measurement]) -> int:
        """Merge measurements into the database, and return the number of new or changed measurements.

        Raises:
            ArtifactError: the file is no database of measurements, or cannot be written.
        """
        file = self.file
        added = merged(rows)
        if file is None or not added:
            return 0
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(file, str(error)) from error
        with _opened(file, "rwc") as connection:
            connection.execute("BEGIN IMMEDIATE")
            if not _version(connection):
                connection.execute(_CREATE)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            changed = []
            condition = " AND ".join(f"{name} = ?" for name in _IDENTITY)
            for row in added:
                present = connection.execute(f"{_SELECT} WHERE {condition}", row.identity).fetchone()
                best = merged([row], [other for other in (Measurement.read(present),) if other is not None])[0]
                if present is None or astuple(best) != tuple(present):
                    changed.append(astuple(best))
            connection.executemany(_REPLACE, changed)
            connection.execute("COMMIT")
        return len(changed)

    def clear(self) -> None:
        """Remove the database; nothing happens if there is none.

        Raises:
            ArtifactError: the file cannot be removed.
        """
        file = self.file
        for path in () if file is None else (file, *(file.with_name(f"{file.name}-{end}") for end in _SIDE_FILES)):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise _unusable(path, str(error)) from error


USER_DATABASE = Measurements()
"""The database of the user, by the environment of the time of use."""

_SIDE_FILES = ("journal", "wal", "shm")


@contextmanager
def _opened(file: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """Yield a connection, closed behind the block; an open transaction is rolled back.

    Raises:
        ArtifactError: SQLite refuses the file.
    """
    try:
        uri = f"{file.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, timeout=_WAIT_S, isolation_level=None, uri=True)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            yield connection
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        raise _unusable(file, str(error)) from error


def _version(connection: sqlite3.Connection) -> int:
    """Return the version of the database, 0 for a new file.

    Raises:
        sqlite3.DatabaseError: the file has another version.
    """
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found not in (0, _VERSION):
        raise sqlite3.DatabaseError(f"version {found} of the database, expected {_VERSION}")
    return int(found)


def _unusable(file: Path, problem: str) -> ArtifactError:
    return ArtifactError(
        f"measurements {to_printable(str(file))}",
        f"cannot be used: {to_printable(problem)}",
        hint=f"`byoc measurements clear` removes the file; {SWITCH} names another, or switches off by 0.",
    )
