"""Shared parts of the seed scenarios: the backends to use."""

from __future__ import annotations

import byoc_core
import pytest
from byoc_core.backend import backends as installed_backends


def usable_backends() -> list[str]:
    """The names of all installed backends able to compile on this machine."""
    handles = [installed_backends().get(name) for name in byoc_core.backends.names()]
    return [handle.name for handle in handles if handle.compile_status().ok]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with a parameter ``backend`` once for each installed backend."""
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", usable_backends())
