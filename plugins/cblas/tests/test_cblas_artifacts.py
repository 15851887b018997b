"""Saved artifacts and exported libraries in fresh processes: the library is found, or named."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_cblas.library import Library, find_library
from byoc_core.native.elf import read_dynamic_names

from plugins.cblas.tests.judged_layers import module_text, numbers

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names in libraries are read on Linux"),
]
LINES = ["p = R.nn.dense(x, w)", "s = R.nn.bias_add(p, b)", "t = R.nn.relu(s)", "q = R.nn.dense(t, v)"]
OPERANDS: dict[str, tuple[object, ...]] = {"x": ("n", 20), "w": (30, 20), "b": (30,), "v": (5, 30)}
RUN = """
import sys
import numpy as np
import byoc_core
inputs = np.load("inputs.npz")
inputs = [inputs[name] for name in inputs.files]
try:
    executable = byoc_core.load("model.byoc", allow_native=True)
    np.save("out.npy", byoc_core.VirtualMachine(executable)["main"](*inputs))
except byoc_core.errors.ByocError as error:
    print(error)
compile_side = ("byoc_core.ir", "byoc_core.backend", "byoc_cblas.backend", "byoc_cblas.library", "scipy_openblas32")
assert not (loaded := {name for name in sys.modules if name.startswith(compile_side)}), loaded
"""
HIDE = """
import importlib.metadata
everything = importlib.metadata.distributions
importlib.metadata.distributions = lambda **k: [d for d in everything(**k) if d.metadata["Name"] != "byoc-cblas"]
"""


@pytest.fixture(autouse=True)
def _needs_the_distribution() -> None:
    if "cblas" not in {entry.name for entry in metadata.entry_points(group="byoc.backends")}:
        pytest.skip("no backend cblas here")


@pytest.fixture
def library() -> Library:
    found = find_library("scipy-openblas")
    if not isinstance(found, Library):
        pytest.skip(found.reason)
    return found


@pytest.fixture
def executable(library: Library, tmp_path: Path) -> byoc_core.Executable:
    """Return a built function, with a saved artifact, inputs and the expected output in the folder."""
    module = byoc_core.parse(module_text(OPERANDS, "float32", LINES))
    built = byoc_core.build(module, backends=["cblas"], fallback="error")
    assert built.report_data["offloaded_share"] == 1
    arrays = [numbers((7, 20), "float32", 0)]
    arrays += [numbers([int(str(size)) for size in OPERANDS[name]], "float32", k) for k, name in enumerate("wbv")]
    np.savez(tmp_path / "inputs.npz", *arrays)
    np.save(tmp_path / "expected.npy", byoc_core.VirtualMachine(built)["main"](*arrays))
    built.save(tmp_path / "model.byoc")
    return built


def run_in(folder: Path, script: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_output(folder: Path) -> None:
    np.testing.assert_array_equal(np.load(folder / "out.npy"), np.load(folder / "expected.npy"))


def test_the_wheels_library_is_found_by_the_declaration(executable: byoc_core.Executable, tmp_path: Path) -> None:
    assert run_in(tmp_path, RUN) == ""
    check_output(tmp_path)


def test_the_artifact_holds_the_name_and_no_folder(
    executable: byoc_core.Executable, library: Library, tmp_path: Path
) -> None:
    data = (tmp_path / "model.byoc").read_bytes()
    assert b"libscipy_openblas.so" in data
    assert library.folder.encode() not in data


def test_without_the_plugin_a_setting_names_the_folder(
    executable: byoc_core.Executable, library: Library, tmp_path: Path
) -> None:
    printed = run_in(tmp_path, HIDE + RUN)
    assert not (tmp_path / "out.npy").exists()
    assert (
        "needs library `libscipy_openblas.so`, but the library is not found. pip install byoc-cblas, or add" in printed
    )
    assert run_in(tmp_path, HIDE + RUN, BYOC_LIBRARY_PATH=library.folder) == ""
    check_output(tmp_path)


def test_an_exported_library_finds_the_blas_beside_the_file_or_by_the_declaration(
    executable: byoc_core.Executable, library: Library, tmp_path: Path
) -> None:
    path = tmp_path / "model.so"
    executable.export_library(path)
    names = read_dynamic_names(path.read_bytes())
    assert names is not None
    assert "libscipy_openblas.so" in names.needed
    assert library.folder.encode() not in path.read_bytes()
    byoc = (
        "import numpy as np, byoc_core\n"
        "inputs = np.load('inputs.npz')\n"
        "out = np.empty((7, 5), 'float32')\n"
        "byoc_core.load_module('model.so').get_function('main')(*(inputs[name] for name in inputs.files), out)\n"
        "np.save('out.npy', out)\n"
    )
    assert run_in(tmp_path, byoc) == ""
    check_output(tmp_path)
    other = (
        "import ctypes\n"
        "try: print(hasattr(ctypes.CDLL('./model.so'), '__tvm_ffi_main'))\n"
        "except OSError as error: print(error)\n"
    )
    assert run_in(tmp_path, other).startswith("libscipy_openblas.so: cannot open shared object file")
    (tmp_path / "libscipy_openblas.so").symlink_to(library.path)
    assert run_in(tmp_path, other) == "True\n"
