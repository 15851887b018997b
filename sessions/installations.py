"""Installations of wheels and requirements into the environments of sessions; an environment is changed only if needed.

A file in each environment states the requirements of the last installation: equal requirements are not installed again.
A wheel is installed again unless the environment records the same files, with the same digests, for the package: an
editable installation, or a removed package, is replaced. Nothing here imports nox: the tests run where nox is not
installed.
"""

from __future__ import annotations

import json
import zipfile
from email.parser import BytesParser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import nox

__all__ = ["STATEMENT", "install"]

STATEMENT = "byoc-installed.json"
"""The file in an environment with the requirements of the last installation."""


def _requirements_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return BytesParser().parsebytes(archive.read(name)).get_all("Requires-Dist", [])


def _recorded_files(record: str) -> set[str]:
    """Return the lines of a record of installed files, without files about the installation."""
    return {line for line in record.splitlines() if ".dist-info/" not in line}


def _is_installed(environment: Path, wheel: Path) -> bool:
    """Return whether an environment records the files of a wheel, with the same digests."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        expected = _recorded_files(archive.read(name).decode())
    found = [_recorded_files(path.read_text("utf-8")) for path in environment.glob(f"**/site-packages/{name}")]
    return len(found) == 1 and expected <= found[0]


def install(session: nox.Session, wheels: dict[Path, str], *requirements: str) -> None:
    """Install wheels and requirements, except for what the last installation of the environment left there.

    Args:
        session: the session.
        wheels: the extras of each wheel, such as ``"[onnx]"``.
        requirements: installed beside the wheels.
    """
    environment = Path(session.virtualenv.location)
    statement = environment / STATEMENT
    own = [f"{path}{extras} {_requirements_of(path)}" for path, extras in wheels.items()]
    requested = [*own, *requirements]
    present = json.loads(statement.read_text("utf-8")) if statement.exists() else None
    statement.unlink(missing_ok=True)  # an interrupted installation states nothing
    if requested != present:
        session.install(*(f"{path}{extras}" for path, extras in wheels.items()), *requirements)
    stale = [str(path) for path in wheels if not _is_installed(environment, path)]
    if stale:  # installers do not replace another build of the same version
        session.install("--force-reinstall", "--no-deps", *stale)
    statement.write_text(json.dumps(requested), "utf-8")
