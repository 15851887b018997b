"""What the properties of partition share with the tests next to them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from core.tests.partitioning.graphs import Case, grow, plans


@pytest.fixture(scope="session")
def cases() -> Callable[..., st.SearchStrategy[Case]]:
    """Random modules with claims and patterns of 1 to 4 backends, of up to ``max_size`` ops in ``main``."""
    return lambda max_size=60: plans(max_size).map(grow)
