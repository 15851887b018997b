"""What all tests here have in common."""

from __future__ import annotations

import pytest
from byoc_dnnl.library import Missing, find_library


@pytest.fixture(autouse=True)
def _needs_library(request: pytest.FixtureRequest) -> None:
    """Skips what runs oneDNN where there is none; tests of finding it, or of the extension alone, run everywhere."""
    found = find_library()
    if isinstance(found, Missing) and not any(word in request.node.path.name for word in ("library", "extension")):
        pytest.skip(found.reason)
