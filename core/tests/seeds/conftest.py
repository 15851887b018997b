"""Shared parts of the seed scenarios: the backends to use."""

from __future__ import annotations

import byoc_core
import pytest
from byoc_core.backend import Support
from byoc_core.backend import backends as installed_backends
from byoc_core.ir import FunctionBuilder, tensor


def usable_backends() -> list[str]:
    """The names of all installed backends able to compile on this machine, and taking the scenarios' elementwise ops.

    A backend of products alone refuses these ops at codegen: that is scenario S000.2.
    """
    builder = FunctionBuilder("probe")
    product = builder.bind("multiply", [builder.param(name, tensor((16, 16))) for name in "xy"], {})
    handles = [installed_backends().get(name) for name in byoc_core.backends.names()]
    return [h.name for h in handles if h.compile_status().ok and isinstance(h.supports(product, h.context()), Support)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with a parameter ``backend`` once for each installed backend."""
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", usable_backends())
