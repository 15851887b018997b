"""Calls, threads and loads leave memory as it is.

``nox -s thorough`` makes more calls, and ``python -m benchmarks.run soak-dnnl`` makes most.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.soak import soak
from benchmarks.soak_dnnl import allow, list_work

NUM_CALLS = 1_000 if os.environ.get("BYOC_EXAMPLES") == "thorough" else 400


def test_memory_is_steady(tmp_path: Path) -> None:
    works = list_work(tmp_path)
    for work in works.values():  # all threads have met, and all shapes are known to oneDNN
        work(NUM_CALLS)
    grown = soak(works, NUM_CALLS)
    assert {name: found for name, found in grown.items() if not found.is_within(allow(NUM_CALLS))} == {}
