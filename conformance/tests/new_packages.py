"""Packages of backends from their source folders, as left by pip: importable, with metadata."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

__all__ = ["install_package", "write_metadata"]


def install_package(package: Path, site: Path) -> str:
    """Copy the modules of a package into a folder in the role of ``site-packages``, with the metadata.

    Args:
        package: the folder of its ``pyproject.toml``; the modules lie under ``src``.
        site: created if missing.

    Returns:
        The name of its backend.
    """
    shutil.copytree(package / "src", site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    project = write_metadata(package, site)
    (backend,) = project["entry-points"]["byoc.backends"]
    return str(backend)


def write_metadata(package: Path, site: Path) -> dict[str, Any]:
    """Write a package's metadata into a folder, as far as read by byoc, and return the table ``project``."""
    project: dict[str, Any] = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    fields = [("Metadata-Version", "2.1"), ("Name", project["name"]), ("Version", project["version"])]
    fields += [("Requires-Dist", line) for line in project["dependencies"]]
    (info / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in fields), "utf-8")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups), "utf-8")
    return project
