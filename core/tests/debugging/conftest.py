"""The faulty backend, as an object of this process and importable by other processes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).with_name("faulty_backend.py")


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("faulty_backend_under_test", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def faulty() -> Callable[..., object]:
    """The class of faulty backends."""
    return _load().FaultyBackend  # type: ignore[no-any-return]


@pytest.fixture
def installed_faulty(install_faulty: Callable[[], str]) -> str:
    """The name of the faulty backend, installed for this process and child processes."""
    return install_faulty()
