"""The built library: size, dependencies, exported names."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import byoc_rt
import pytest
from byoc_core.native.elf import read_dynamic_names

from rt.tests.runner import NativeLibrary

HEADER = byoc_rt.include_directory() / "byoc_rt.h"
DECLARED = re.compile(r"^BYOC_RT_API [^(]*?\b(byoc_rt_\w+)\(", re.MULTILINE)
SYSTEM = re.compile(r"lib(c|m|dl|pthread)\.so(\.\d+)?|ld-linux[\w-]*\.so\.\d+|libc\.musl-\w+\.so\.1")
"""The libraries of the C library's package."""

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a library of Linux is read")


def list_symbols(library_file: Path, kind: str) -> set[str]:
    """Return the dynamic symbols of a kind."""
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    done = subprocess.run(["nm", "-D", kind, library_file], capture_output=True, text=True, check=True)
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}


def test_the_library_is_small(library_file: Path) -> None:
    assert 50_000 < library_file.stat().st_size < 1_000_000


@linux
def test_the_library_needs_the_c_library_only(library_file: Path) -> None:
    names = read_dynamic_names(library_file.read_bytes())
    assert names is not None
    assert names.name == library_file.name == "libbyoc_rt.so"
    assert [name for name in names.needed if not SYSTEM.fullmatch(name)] == []
    assert "libc.so.6" in names.needed or any("musl" in name for name in names.needed)


@linux
def test_the_library_names_no_folder(library_file: Path) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    done = subprocess.run(["readelf", "-d", library_file], capture_output=True, text=True, check=True)
    assert "(SONAME)" in done.stdout
    assert "PATH)" not in done.stdout


@linux
def test_the_library_calls_nothing_of_python(library_file: Path) -> None:
    needed = list_symbols(library_file, "--undefined-only")
    assert "dlopen" in needed
    assert [name for name in needed if name.startswith(("Py", "_Py"))] == []


@linux
def test_exactly_the_declared_functions_are_exported(library_file: Path) -> None:
    declared = set(DECLARED.findall(HEADER.read_text("utf-8")))
    assert len(declared) > 15
    # Beside the interface for programs, the interface for byoc-core (core/csrc/native_machine.h).
    assert list_symbols(library_file, "--defined-only") == declared | {"byoc_native_machine_table"}


def test_the_library_has_the_version_of_the_header(native: NativeLibrary) -> None:
    (version,) = re.findall(r"^#define BYOC_RT_ABI_VERSION (\d+)$", HEADER.read_text("utf-8"), re.MULTILINE)
    assert native.c_abi_version() == int(version)
