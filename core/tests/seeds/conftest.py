"""What the seed scenarios share: the backends to run them with."""

from __future__ import annotations

import byoc_core
import pytest
from byoc_core.backend import backends as installed_backends


def usable_backends() -> list[str]:
    """The names of all installed backends that can compile on this machine."""
    handles = [installed_backends().get(name) for name in byoc_core.backends.names()]
    return [handle.name for handle in handles if handle.compile_status().ok]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that takes ``backend`` once for each installed backend."""
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", usable_backends())
