"""The kit under pytest: options of its own."""

from __future__ import annotations

import pytest

__all__ = ["pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--byoc-backend``."""
    group = parser.getgroup("byoc", "conformance of byoc backends")
    group.addoption("--byoc-backend", metavar="NAME", help="the backend that `--pyargs byoc_conformance` tests")
