"""Installations of wheels and requirements into the environments of sessions; an environment is changed only if needed.

A file in each environment states the last installation: the requirements, the requirements of the wheels, and the
digests of the wheels. An equal installation is left out, and of other wheels only the changed wheels are installed.
Nothing here imports nox: the tests run where nox is not installed.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from email.parser import BytesParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import nox

__all__ = ["STATEMENT", "Installation", "install", "installation_of"]

STATEMENT = "byoc-installed.json"
"""The file in an environment with the last installation."""

Installation = dict[str, Any]
"""``requirements``: the texts for the installer, and the requirements of the wheels; ``wheels``: digests by path."""


def _requirements_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return BytesParser().parsebytes(archive.read(name)).get_all("Requires-Dist", [])


def installation_of(wheels: dict[Path, str], requirements: tuple[str, ...]) -> Installation:
    """Return the statement of an installation.

    Args:
        wheels: the extras of each wheel, such as ``"[onnx]"``.
        requirements: installed beside the wheels.
    """
    own = [f"{path}{extras} {_requirements_of(path)}" for path, extras in wheels.items()]
    digests = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels}
    return {"requirements": [*own, *requirements], "wheels": digests}


def install(session: nox.Session, wheels: dict[Path, str], *requirements: str) -> None:
    """Install wheels and requirements, except for what the last installation of the environment left there.

    Args:
        session: the session.
        wheels: the extras of each wheel, such as ``"[onnx]"``.
        requirements: installed beside the wheels.
    """
    environment = Path(session.virtualenv.location)
    statement = environment / STATEMENT
    requested = installation_of(wheels, requirements)
    present: Installation = {"requirements": None, "wheels": {}}
    if statement.exists():
        present = json.loads(statement.read_text("utf-8"))
    statement.unlink(missing_ok=True)  # an interrupted installation states nothing
    is_new = not any(environment.glob("**/site-packages/byoc_*"))
    if requested["requirements"] != present["requirements"]:
        session.install(*(f"{path}{extras}" for path, extras in wheels.items()), *requirements)
    changed = [path for path, digest in requested["wheels"].items() if present["wheels"].get(path) != digest]
    if changed and not is_new:  # the environment may hold an older build of the same version
        session.install("--force-reinstall", "--no-deps", *changed)
    statement.write_text(json.dumps(requested), "utf-8")
