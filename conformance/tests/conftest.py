"""The backend ``fakenpu`` installed for a test and its child processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from byoc_conformance.runner import new_fork_server
from byoc_core.isolation import ForkServer
from byoc_core.plugin.installation import Installation, using

from conformance.tests.fakenpu_install import FAKES, install_fakenpu


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """A server of processes with the imported kit, for all runners of this process."""
    with new_fork_server() as server:
        yield server


@pytest.fixture
def look_again() -> Iterator[Callable[[], None]]:
    """Return a function repeating the search for plugins in this test, as in a new process."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(using(Installation()))


@pytest.fixture
def fakenpu_metadata(tmp_path: Path) -> Callable[..., Path]:
    """Return a function rewriting the metadata of the fake backend's distribution."""
    return lambda **metadata: install_fakenpu(tmp_path, **metadata)


@pytest.fixture
def fakenpu(
    fakenpu_metadata: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, look_again: Callable[[], None]
) -> str:
    """The name of the fake backend, installed; ``FAKENPU_FAULT``, set before the import by a process, breaks it."""
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.syspath_prepend(str(fakenpu_metadata()))
    monkeypatch.delenv("FAKENPU_FAULT", raising=False)
    look_again()
    return "fakenpu"
