"""Writing of a report into a folder: data, pages and badges, each file whole or not at all."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from byoc_core.file_replacement import replace_file

from byoc_conformance.report.badge import render_badge, render_endpoint
from byoc_conformance.report.markdown import render_markdown
from byoc_conformance.report.model import Report
from byoc_conformance.report.page import render_page

__all__ = ["prepare_folder", "render_files", "render_json", "write_report"]


def prepare_folder(folder: Path) -> None:
    """Create a folder if missing, and check before long work that a report can be written there.

    Raises:
        OSError: writing is impossible.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error


def render_json(report: Report) -> str:
    """Return the report as JSON text."""
    return report.model_dump_json(indent=2) + "\n"


def render_files(report: Report) -> Mapping[str, str]:
    """Return the texts of all files, by name."""
    return {
        "conformance.json": render_json(report),
        "conformance.html": render_page(report),
        "conformance.md": render_markdown(report),
        "badge.json": json.dumps(render_endpoint(report), indent=2) + "\n",
        "badge.svg": render_badge(report),
    }


def write_report(report: Report, folder: Path) -> None:
    """Write all files of a report; create the folder if missing.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in render_files(report).items():
        with replace_file(folder / name) as file:
            file.write(text.encode("utf-8"))
