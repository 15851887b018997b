"""Installs the fake backend in a folder."""

from __future__ import annotations

from pathlib import Path

__all__ = ["FAKES", "install_fakenpu"]

FAKES = Path(__file__).parent / "fakes"
"""The folder with its code."""


def install_fakenpu(
    folder: Path,
    *,
    version: str = "1.0",
    requires: str = "byoc-core>=0.1,<1",
    runtimes: str = "fakenpu = fakenpu.runtime",
) -> Path:
    """Write the metadata of its distribution, and return the folder for ``sys.path``."""
    info = folder / "site" / "byoc_fakenpu.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: byoc-fakenpu\nVersion: {version}\nRequires-Dist: {requires}\n"
    )
    (info / "entry_points.txt").write_text(
        f"[byoc.backends]\nfakenpu = fakenpu.backend\n\n[byoc.runtimes]\n{runtimes}\n"
    )
    return info.parent
