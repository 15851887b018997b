from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from byoc_core.errors import ArtifactError, ToolchainError
from byoc_core.native.bundle import BundleSource, build_bundle, read_bundle

pytestmark = [pytest.mark.interpreter, pytest.mark.libraries]

WITH_CONSTANT = """\
#include "byoc_ffi.h"
BYOC_EXPORT const void *byoc_constants[2];
BYOC_EXPORT float read_constant_NAME(void) { return ((const float *)byoc_constants[1])[2]; }
"""


def _with_constant(name: str, offset: int) -> BundleSource:
    return BundleSource(WITH_CONSTANT.replace("NAME", name), (0, offset))


def test_everything_in_one_library(tmp_path: Path, make_source: Callable[..., str]) -> None:
    numbers = np.array([0, 0, 1.5, *range(13), 0, 0, -4], dtype="float32")
    blob = numbers.tobytes() + bytes(range(256)) * 5 + b"\0tail"
    path = tmp_path / "model.so"
    sources: list[BundleSource | str] = [
        make_source("f"),
        make_source("g", "3.0f"),
        _with_constant("a", 0),
        _with_constant("b", 64),
    ]
    build_bundle(sources, blob, path)
    assert read_bundle(path) == blob
    library = ctypes.CDLL(str(path))
    assert hasattr(library, "__tvm_ffi_f")
    assert hasattr(library, "__tvm_ffi_g")
    assert ctypes.c_uint64.in_dll(library, "byoc_artifact_size").value == len(blob)
    assert ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "byoc_artifact")), len(blob)) == blob
    values = []
    for name in ("a", "b"):
        function = library[f"read_constant_{name}"]
        function.restype = ctypes.c_float
        values.append(function())
    assert values == [1.5, -4.0]


def test_equal_input_gives_equal_bytes(tmp_path: Path, source: str) -> None:
    for name in ("one.so", "two.so"):
        build_bundle([source], b"blob", tmp_path / name)
    assert (tmp_path / "one.so").read_bytes() == (tmp_path / "two.so").read_bytes()


def test_the_functions_serve_the_real_package(tmp_path: Path, source: str) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    build_bundle([source], b"blob", tmp_path / "model.so")
    x, out = np.arange(3, dtype="float32"), np.zeros(3, dtype="float32")
    tvm_ffi.load_module(str(tmp_path / "model.so"))["scaled_add"](*map(tvm_ffi.from_dlpack, (x, x, out)))
    np.testing.assert_array_equal(out, 4 * x)


def test_other_files_hold_no_blob(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"PK text")
    assert read_bundle(path) is None
    assert read_bundle(_libm()) is None


def _libm() -> Path:
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/libm" in line:
            return Path(line.split()[-1])
    pytest.skip("no system library to look at")


def test_a_damaged_library_is_an_error(tmp_path: Path, source: str) -> None:
    path = tmp_path / "model.so"
    build_bundle([source], b"blob", path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ArtifactError, match=r"the section table is damaged$"):
        read_bundle(path)


def test_two_sources_with_one_symbol_leave_no_file(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The sources of a failed build are kept in the temporary folder.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ToolchainError, match="__tvm_ffi_scaled_add"):
        build_bundle([source, source], b"", tmp_path / "model.so")
    assert list(tmp_path.glob("*.so")) == []
