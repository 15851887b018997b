"""Common parts of all tests here."""

from __future__ import annotations

import pytest
from byoc_cblas.library import library_status


@pytest.fixture(autouse=True)
def _needs_library(request: pytest.FixtureRequest) -> None:
    """Skip tests running a BLAS if there is none; tests of the search run everywhere."""
    status = library_status()
    if not status.ok and "library" not in request.node.path.name:
        pytest.skip(status.reason)
