"""Common parts of all tests here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from byoc_dnnl.library import Missing, find_library
from byoc_dnnl.native_half import library_path

if TYPE_CHECKING:
    from rt.tests.runner import NativeLibrary


@pytest.fixture(autouse=True)
def _needs_library(request: pytest.FixtureRequest) -> None:
    """Skip tests running oneDNN if the library is missing; tests of the search and the extension run everywhere."""
    found = find_library()
    if isinstance(found, Missing) and not any(word in request.node.path.name for word in ("library", "extension")):
        pytest.skip(found.reason)


@pytest.fixture(scope="session")
def native_half() -> Path:
    """Return the native half of the runtime."""
    path = library_path()
    if path is None:
        pytest.skip("the extension is not built, nor the native half")
    return path


@pytest.fixture(scope="session")
def c_runtime_file() -> Path:
    """Return the C runtime: ``$BYOC_RT_LIBRARY``, such as a sanitizer's build, else the installed file."""
    byoc_rt = pytest.importorskip("byoc_rt")
    return Path(os.environ.get("BYOC_RT_LIBRARY") or byoc_rt.library_path())


@pytest.fixture(scope="session")
def c_runtime(c_runtime_file: Path, native_half: Path) -> NativeLibrary:
    """Return the C runtime in this process, with the native half loaded."""
    from rt.tests.runner import NativeLibrary

    library = NativeLibrary(c_runtime_file)
    library.load_runtime(native_half)
    return library
