"""The backend ``fakenpu`` installed for a test and the processes that it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from byoc_core.plugin.installation import Installation, using

from conformance.tests.fakenpu_install import FAKES, install_fakenpu


@pytest.fixture
def look_again() -> Iterator[Callable[[], None]]:
    """A function that has this test look for plugins again, as a new process would."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(using(Installation()))


@pytest.fixture
def fakenpu_metadata(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes the metadata of the fake backend's distribution anew."""
    return lambda **metadata: install_fakenpu(tmp_path, **metadata)


@pytest.fixture
def fakenpu(
    fakenpu_metadata: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, look_again: Callable[[], None]
) -> str:
    """The name of the fake backend, installed; set ``FAKENPU_FAULT`` before a process imports it to break it."""
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.syspath_prepend(str(fakenpu_metadata()))
    monkeypatch.delenv("FAKENPU_FAULT", raising=False)
    look_again()
    return "fakenpu"
