"""The backend ``fakenpu`` installed for a test and the processes that it starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from byoc_core.backend.registry import backends
from byoc_core.plugin.discovery import installed
from byoc_core.plugin.metadata import snapshot
from byoc_core.runtime.registry import runtimes

FAKES = Path(__file__).parent / "fakes"


def forget_plugins() -> None:
    """Has this process look for plugins again, as a new process would."""
    for cached in (snapshot, installed, backends, runtimes):
        cached.cache_clear()


@pytest.fixture
def fakenpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of the fake backend, installed; set ``FAKENPU_FAULT`` before a process imports it to break it."""
    info = tmp_path / "site" / "byoc_fakenpu-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: byoc-fakenpu\nVersion: 1.0\nRequires-Dist: byoc-core>=0.1,<0.2\n"
    )
    (info / "entry_points.txt").write_text(
        "[byoc.backends]\nfakenpu = fakenpu.backend\n\n[byoc.runtimes]\nfakenpu = fakenpu.runtime\n"
    )
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delenv("FAKENPU_FAULT", raising=False)
    forget_plugins()
    yield "fakenpu"
    monkeypatch.undo()
    forget_plugins()
