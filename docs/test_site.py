"""Sphinx builds the documentation's site from every page, without broken links.

The pages have a plain theme: the theme of the site repeats the tree of all pages in each page, for half of the time.
``nox -s site`` builds with the theme of the site. A single process takes the least processor time.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_site_is_made(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "docs.site.build", str(tmp_path), "--theme", "basic", "--jobs", "1"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "index.html").is_file()
