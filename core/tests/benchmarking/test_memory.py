"""The memory added to a process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from byoc_core.benchmarking import memory
from byoc_core.benchmarking.memory import PeakMemory

_NBYTES = 64 << 20


def test_memory_in_use_for_a_while_counts() -> None:
    meter = PeakMemory()
    ones = np.ones(_NBYTES, np.uint8)
    del ones
    growth = meter.read_growth()
    assert growth is not None
    if memory._CLEAR_REFS.exists():
        assert growth >= _NBYTES * 0.9


def test_without_a_resettable_peak_the_growth_of_the_peak_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_CLEAR_REFS", "_STATUS"):
        monkeypatch.setattr(memory, name, Path("/nowhere/at/all"))
    meter = PeakMemory()
    growth = meter.read_growth()
    assert growth is None or growth >= 0
    monkeypatch.setattr(memory, "_read_lifetime_peak", lambda: None)
    assert PeakMemory().read_growth() is None
