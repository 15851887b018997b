"""The faulty backend, as an object of this process and as one that other processes can import."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from byoc_core.backend.registry import backends
from byoc_core.plugin.discovery import installed
from byoc_core.plugin.metadata import snapshot
from byoc_core.runtime.registry import runtimes

SOURCE = Path(__file__).with_name("faulty_backend.py")


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("faulty_backend_under_test", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def faulty() -> Callable[..., Any]:
    """The class of faulty backends."""
    return _load().FaultyBackend  # type: ignore[no-any-return]


def forget_plugins() -> None:
    for cached in (snapshot, installed, backends, runtimes):
        cached.cache_clear()


@pytest.fixture
def installed_faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of the faulty backend, installed for this process and those that it starts."""
    site = tmp_path / "site"
    info = site / "byoc_faulty-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(SOURCE, site / "installed_faulty_backend.py")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: byoc-faulty\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[byoc.backends]\nfaulty = installed_faulty_backend:plugin\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("BYOC_BACKENDS", "faulty")
    forget_plugins()
    yield "faulty"
    monkeypatch.undo()
    forget_plugins()
