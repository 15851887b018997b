"""Common parts of all tests here."""

from __future__ import annotations

import pytest
from byoc_dnnl.library import Missing, find_library


@pytest.fixture(autouse=True)
def _needs_library(request: pytest.FixtureRequest) -> None:
    """Skip tests running oneDNN if the library is missing; tests of the search and the extension run everywhere."""
    found = find_library()
    if isinstance(found, Missing) and not any(word in request.node.path.name for word in ("library", "extension")):
        pytest.skip(found.reason)
