"""The C runtime under test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import byoc_rt
import pytest
from byoc_core.plugin.installation import using

from core.tests.native_machine_installation import installation_with_machines
from rt.tests.runner import NativeLibrary


@pytest.fixture(scope="session")
def library_file() -> Path:
    """Return the library under test: ``$BYOC_RT_LIBRARY``, such as a sanitizer's build, else the installed file."""
    return Path(os.environ.get("BYOC_RT_LIBRARY") or byoc_rt.library_path())


@pytest.fixture(scope="session")
def native(library_file: Path) -> NativeLibrary:
    """Return the loaded library."""
    return NativeLibrary(library_file)


@pytest.fixture
def native_machine() -> Iterator[None]:
    """Install the library under test as the only native machine."""
    with using(installation_with_machines({"rt": "rt.tests.machine_under_test:find_library"})):
        yield
