"""Fixtures for tests of tuning."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.plugin.conftest import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A folder for fake distributions, on the path of fresh processes."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    return Site(folder)
