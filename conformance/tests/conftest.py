"""The backend ``fakenpu`` installed for a test and the processes that it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from byoc_core.backend.registry import backends
from byoc_core.plugin.discovery import installed
from byoc_core.plugin.metadata import snapshot
from byoc_core.runtime.registry import runtimes

FAKES = Path(__file__).parent / "fakes"


def _forget_plugins() -> None:
    for cached in (snapshot, installed, backends, runtimes):
        cached.cache_clear()


@pytest.fixture
def install_fakenpu(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes the metadata of the fake backend's distribution, and gives the folder for ``sys.path``."""

    def install(
        *, version: str = "1.0", requires: str = "byoc-core>=0.1,<0.2", runtimes: str = "fakenpu = fakenpu.runtime"
    ) -> Path:
        info = tmp_path / "site" / "byoc_fakenpu.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: byoc-fakenpu\nVersion: {version}\nRequires-Dist: {requires}\n"
        )
        (info / "entry_points.txt").write_text(
            f"[byoc.backends]\nfakenpu = fakenpu.backend\n\n[byoc.runtimes]\n{runtimes}\n"
        )
        return info.parent

    return install


@pytest.fixture
def fakenpu(install_fakenpu: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of the fake backend, installed; set ``FAKENPU_FAULT`` before a process imports it to break it."""
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.syspath_prepend(str(install_fakenpu()))
    monkeypatch.delenv("FAKENPU_FAULT", raising=False)
    _forget_plugins()
    yield "fakenpu"
    monkeypatch.undo()
    _forget_plugins()
