"""What all tests here have in common."""

from __future__ import annotations

import pytest
from byoc_dnnl.library import Missing, find_library


@pytest.fixture(autouse=True)
def _needs_library(request: pytest.FixtureRequest) -> None:
    """Skips what runs oneDNN where there is none; the tests of finding it run everywhere."""
    found = find_library()
    if isinstance(found, Missing) and "library" not in str(request.node.path.name):
        pytest.skip(found.reason)
