"""Calls of all kinds, right and wrong, leave memory unchanged.

``nox -s thorough`` makes more calls, and ``python -m benchmarks.run soak`` makes most.
"""

from __future__ import annotations

import os

import byoc_core
import pytest
from byoc_core.backend import Support
from byoc_core.backend import backends as installed_backends
from byoc_core.ir import FunctionBuilder, tensor

from benchmarks.soak import allowed_growth, list_work, soak

pytestmark = pytest.mark.lowest  # not `interpreter`: it is long, and differs in no law between Pythons

NUM_CALLS = 20_000 if os.environ.get("BYOC_EXAMPLES") == "thorough" else 3_000
LEAKY_CALLS = 200_000


def _backends() -> list[str]:
    """Return the installed backends for elementwise ops of symbolic sizes, able to compile here, without the host."""
    builder = FunctionBuilder("probe")
    x = builder.param("x", tensor(("n", 10)))
    total = builder.bind("add", (x, x), {})
    handles = [
        handle
        for handle in map(installed_backends().get, byoc_core.backends.names())
        if handle.name != "host" and handle.info().dynamic_shapes and handle.compile_status().ok
    ]
    return [handle.name for handle in handles if isinstance(handle.supports(total, handle.context()), Support)]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("backend", _backends())
def test_memory_is_steady(backend: str, native: bool) -> None:
    works = list_work(backend, native=native)
    share = NUM_CALLS // len(works)
    grown = soak(works, share)
    assert {name: found for name, found in grown.items() if not found.is_within(allowed_growth(share))} == {}


def test_a_leak_at_each_tenth_call_is_found() -> None:
    leaked: list[object] = []

    def leak(num_calls: int) -> None:
        leaked.extend(bytes(64 + number % 2) for number in range(num_calls // 10))

    assert not soak({"leaky": leak}, LEAKY_CALLS)["leaky"].is_within(allowed_growth(LEAKY_CALLS))
