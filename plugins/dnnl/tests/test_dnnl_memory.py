"""Calls, threads and loads leave memory unchanged; the long version is ``python -m benchmarks.run soak-dnnl``.

The kit's ``L4-memory-steady`` and the core's soak check the same for dnnl with fewer shapes, in every run.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.soak import soak
from benchmarks.soak_dnnl import allow, list_work

NUM_CALLS = 1_000


@pytest.mark.skipif(os.environ.get("BYOC_EXAMPLES") != "thorough", reason="`nox -s thorough` makes these calls")
def test_memory_is_steady(tmp_path: Path) -> None:
    works = list_work(tmp_path)
    for work in works.values():  # all threads have met, and all shapes are known to oneDNN
        work(NUM_CALLS)
    grown = soak(works, NUM_CALLS)
    assert {name: found for name, found in grown.items() if not found.is_within(allow(NUM_CALLS))} == {}
