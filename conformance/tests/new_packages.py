"""Packages of backends from their source folders, as pip would leave them: importable, with metadata."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

__all__ = ["install_package"]


def install_package(package: Path, site: Path) -> str:
    """Copies the modules of a package into a folder that stands for ``site-packages``, with its metadata.

    Args:
        package: the folder of its ``pyproject.toml``; the modules lie under ``src``.
        site: made where there is none.

    Returns:
        The name of its backend.
    """
    project: dict[str, Any] = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    shutil.copytree(package / "src", site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
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
    (backend,) = project["entry-points"]["byoc.backends"]
    return str(backend)
