"""The obstacles between a release and an index: facts known only to the owner of the repository, or a last step."""

from __future__ import annotations

from pathlib import Path

from packaging.version import Version

from release.commands import run
from release.project import PACKAGES, ROOT, Settings, read_settings, read_version

__all__ = ["find_obstacles"]


def find_obstacles(settings: Settings | None = None, version: str | None = None, root: Path = ROOT) -> list[str]:
    """Return a line with the remedy for each obstacle to an upload of the files.

    Args:
        settings: the table ``[tool.byoc]``; by default the table of this checkout.
        version: by default the version of this checkout.
        root: the repository.
    """
    settings, version = settings or read_settings(), version or read_version()
    lines = []
    if unknown := [label for label, url in settings.urls.items() if not url]:
        lines.append(
            f"the project's pages are not known ({', '.join(unknown)}): fill in [tool.byoc.urls] of pyproject.toml, "
            "then python -m release.metadata"
        )
    if Version(version).is_devrelease:
        lines.append(
            f"{version} is a version of development: python -m release.metadata {Version(version).base_version}"
        )
    for folder in PACKAGES:
        first = next(
            line for line in (root / folder / "CHANGELOG.md").read_text("utf-8").splitlines() if line[:3] == "## "
        )
        if first.split()[1] != Version(version).base_version or "unreleased" in first:
            lines.append(
                f"{folder}/CHANGELOG.md begins with `{first}`: give it the version and the date of the release"
            )
    if changed := run(["git", "status", "--porcelain"], root).splitlines():
        lines.append(f"{len(changed)} files differ from the commit: commit the changes")
    return lines
