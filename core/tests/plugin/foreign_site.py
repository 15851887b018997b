"""The third-party package ``byoc-foreign`` as left by pip: metadata in a folder, the modules in ``foreign``."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["FOREIGN", "foreign_paths"]

FOREIGN = Path(__file__).parent / "foreign"
"""The folder with the modules of the package."""


def foreign_paths(folder: Path) -> tuple[str, str]:
    """Write the metadata of the package into a folder, and return the entries for ``sys.path``."""
    info = folder / "byoc_foreign-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: byoc-foreign\nVersion: 1.0\nRequires-Dist: byoc-core>=0.1,<1\n"
    )
    (info / "entry_points.txt").write_text(
        "[byoc.backends]\nforeign = foreign_backend\n\n[byoc.runtimes]\nforeign = foreign_runtime\n"
    )
    return os.fspath(folder), os.fspath(FOREIGN)
