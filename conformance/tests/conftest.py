"""The backend ``fakenpu`` installed for a test and the processes that it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from byoc_core.backend.registry import backends
from byoc_core.plugin.discovery import installed
from byoc_core.plugin.metadata import snapshot
from byoc_core.runtime import runtimes

from conformance.tests.fakenpu_install import FAKES, install_fakenpu


def forget_plugins() -> None:
    """Has this process look for plugins again, as a new process would."""
    for cached in (snapshot, installed, backends, runtimes):
        cached.cache_clear()


@pytest.fixture
def fakenpu_metadata(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes the metadata of the fake backend's distribution anew."""
    return lambda **metadata: install_fakenpu(tmp_path, **metadata)


@pytest.fixture
def fakenpu(fakenpu_metadata: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of the fake backend, installed; set ``FAKENPU_FAULT`` before a process imports it to break it."""
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.syspath_prepend(str(fakenpu_metadata()))
    monkeypatch.delenv("FAKENPU_FAULT", raising=False)
    forget_plugins()
    yield "fakenpu"
    monkeypatch.undo()
    forget_plugins()
