"""Exported libraries under programs without byoc: the TVM FFI package, TVM, and C."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.errors import ArtifactError, ByocError
from byoc_core.partitioning import PartitionOptions
from byoc_core.runtime.csource import CSourceModule

pytestmark = [pytest.mark.interpreter, pytest.mark.libraries]

NDArray = npt.NDArray[Any]

LOADERS = {
    "tvm_ffi": "from tvm_ffi import load_module",
    "tvm": "from tvm.runtime import load_module",
}
# Whether a package is there, without importing it: the process that loads the library is another one.
loaders = [
    pytest.param(text, id=name, marks=pytest.mark.skipif(find_spec(name) is None, reason=f"could not import {name!r}"))
    for name, text in LOADERS.items()
]

CALLS = """
import json, sys
import numpy as np
from tvm_ffi import from_dlpack

LOAD
library, inputs, outputs, hide = sys.argv[1:5]
if hide == "hide":
    sys.modules["byoc_core"] = None
arrays = [np.load(path) for path in json.loads(inputs)]
results = [np.zeros(shape, dtype) for shape, dtype in json.loads(outputs)]
module = load_module(library)
module["main"](*map(from_dlpack, [*arrays, *results]))
first = [result.copy() for result in results]
module.main(*arrays, *results)
assert all((a == b).all() for a, b in zip(first, results))
np.savez(library + ".npz", *results)
errors = []
others = [*arrays, *results[:-1]]
for wrong in (arrays, [*others, results[-1].astype("int8")], [*others, np.zeros(77, "float32")]):
    try:
        module["main"](*map(from_dlpack, wrong))
    except Exception as error:
        errors.append([type(error).__name__, str(error).splitlines()[0]])
print(json.dumps([errors, sorted(name for name in sys.modules if name == "byoc_core.vm")]))
"""

MODELS = {
    "matmul, softmax, symbolic batch": """
    def main(x: R.Tensor(("n", 10), "float32"), y: R.Tensor((10, 6), "float32")):
        a = R.add(x, x)
        b = R.matmul(a, y)
        c = R.nn.softmax(b, axis=-1)
        return c
""",
    "two results, views": """
    def main(x: R.Tensor((4, 6), "float32"), y: R.Tensor((2, 6), "float32")):
        a = R.concat((x, y), axis=0)
        b = R.exp(a)
        c = R.reshape(b, shape=(3, 12))
        d = R.sum(c, axis=[1], keepdims=False)
        return c, d
""",
}
INPUTS = {
    "matmul, softmax, symbolic batch": [(5, 10), (10, 6)],
    "two results, views": [(4, 6), (2, 6)],
}


def model(name: str) -> byoc_core.IRModule:
    return byoc_core.parse(f"@R.ir_module\nclass Module:\n    @R.function{MODELS[name]}")


def run_elsewhere(
    executable: byoc_core.Executable, arrays: list[NDArray], load: str, folder: Path, *, hide: bool
) -> tuple[list[list[str]], list[str]]:
    """Run the library in a separate process and compare with the machine; return errors and imported modules."""
    path = folder / "model.so"
    executable.export_library(path)
    expected = byoc_core.VirtualMachine(executable)["main"](*arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    files = [str(folder / f"{index}.npy") for index in range(len(arrays))]
    for file, array in zip(files, arrays, strict=True):
        np.save(file, array)
    shapes = json.dumps([(array.shape, array.dtype.name) for array in expected])
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            CALLS.replace("LOAD", load),
            path,
            json.dumps(files),
            shapes,
            "hide" if hide else "show",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    results = np.load(f"{path}.npz")
    for index, array in enumerate(expected):
        np.testing.assert_array_equal(results[f"arr_{index}"], array)
    errors, imported = json.loads(done.stdout.splitlines()[-1])
    return errors, imported


@pytest.mark.parametrize("load", loaders)
@pytest.mark.parametrize("name", MODELS)
def test_machine_code_runs_without_byoc(name: str, load: str, tmp_path: Path) -> None:
    executable = byoc_core.build(model(name), backends=["ccompiler"])
    assert [module.type_key for module in executable.modules] == ["csource"], "everything was offloaded"
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) for shape in INPUTS[name]]
    errors, imported = run_elsewhere(executable, arrays, load, tmp_path, hide=True)
    assert imported == []
    last = executable.functions["main"].outputs[-1]
    count = len(arrays) + len(executable.functions["main"].outputs)
    assert errors == [
        ["TypeError", f"function `main`: takes {count} tensors (inputs, then outputs); got {len(arrays)}"],
        [
            "TypeError",
            f"function `main`, argument `{last.name}`: wrong element type; got int8 (lanes 1), expected float32",
        ],
        [
            "ValueError",
            f"function `main`, argument `{last.name}`: wrong size of axis 0; got 77, expected 3"
            if len(last.shape) == 1
            else f"function `main`, argument `{last.name}`: wrong rank; got 1, expected 2",
        ],
    ]


@pytest.mark.parametrize("load", loaders)
def test_a_host_remainder_runs_in_the_process_s_python(load: str, tmp_path: Path) -> None:
    module = byoc_core.parse("""
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 6), "float32")):
        a = R.exp(x)
        b = R.nn.relu(a)
        return b
""")
    executable = byoc_core.build(
        module, backends=["ccompiler"], partition_options=PartitionOptions(force={"b": "host"})
    )
    kinds = {native.type_key for native in executable.modules}
    assert kinds == {"csource", "graph"}, "each has a part"
    x = np.random.default_rng(0).standard_normal((4, 6), np.float32)
    errors, imported = run_elsewhere(executable, [x], load, tmp_path, hide=False)
    assert imported == ["byoc_core.vm"]
    assert errors[0] == ["TypeError", "function `main`: takes 2 tensors (inputs, then outputs); got 1"]
    assert [kind for kind, _ in errors[1:]] == ["ValueError", "ValueError"]


@pytest.mark.skipif(find_spec("tvm_ffi") is None, reason="could not import 'tvm_ffi'")
def test_main_runs_its_parallel_loops_on_openmp(tmp_path: Path) -> None:
    script = """
import json, os, sys
import numpy as np
from tvm_ffi import load_module

x, y = np.ones(1_000_000, "float32"), np.zeros(1_000_000, "float32")
module = load_module(sys.argv[1])
before = len(os.listdir("/proc/self/task"))
module["main"](x, y)
print(json.dumps([len(os.listdir("/proc/self/task")) - before, float(np.ptp(y))]))
"""
    module = byoc_core.parse("""
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1000000,), "float32")):
        a = R.exp(x)
        return a
""")
    byoc_core.build(module, backends=["ccompiler"]).export_library(tmp_path / "model.so")
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "model.so"],
        env={**os.environ, "OMP_NUM_THREADS": "3"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [2, 0.0]


def test_sources_are_kept_and_can_be_built_by_hand(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "kept"
    options = {"ccompiler": {"keep_source": str(folder)}}
    executable = byoc_core.build(model("two results, views"), backends=["ccompiler"], options=options)
    (name,) = executable.modules[0].function_names
    assert (folder / f"{name}.c").read_text() == executable.get_source()
    subprocess.run(["sh", folder / f"{name}.sh"], check=True, cwd="/", timeout=120)
    assert hasattr(ctypes.CDLL(str(folder / f"{name}.so")), f"__tvm_ffi_{name}")
    plain = byoc_core.build(model("two results, views"), backends=["ccompiler"])
    assert plain.to_bytes() == executable.to_bytes(), "keeping changes nothing"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    options = {"ccompiler": {"keep_source": str(tmp_path / "file")}}
    with pytest.raises(ByocError, match=rf"folder `{tmp_path}/file`: cannot keep sources: .*File exists"):
        byoc_core.build(model("two results, views"), backends=["ccompiler"], options=options)


def test_code_for_another_machine_is_saved_and_inspected_but_not_run(tmp_path: Path) -> None:
    if find_spec("ziglang") is None:
        pytest.skip("could not import 'ziglang'")
    options = {"ccompiler": {"target": "aarch64-linux-gnu"}}
    executable = byoc_core.build(model("two results, views"), backends=["ccompiler"], options=options)
    executable.save(tmp_path / "model.byoc")
    assert byoc_core.artifact.inspect(tmp_path / "model.byoc").is_native
    loaded = byoc_core.load(tmp_path / "model.byoc", allow_native=True)
    (native,) = loaded.modules
    assert isinstance(native, CSourceModule)
    assert native.options.target == "aarch64-linux-gnu"
    assert (native.build().target.system, native.build().target.machine) == ("Linux", "aarch64")
    with pytest.raises(ArtifactError, match=r"the native code is for another kind of machine; got Linux on aarch64"):
        byoc_core.VirtualMachine(loaded)
    loaded.export_library(tmp_path / "model.so")
    data = (tmp_path / "model.so").read_bytes()
    assert (data[:5], data[18]) == (b"\x7fELF\x02", 183), "ELF of 64 bits for AArch64"
    with pytest.raises(ArtifactError, match=r"got Linux on aarch64"):
        byoc_core.load_module(tmp_path / "model.so").get_function("main")
