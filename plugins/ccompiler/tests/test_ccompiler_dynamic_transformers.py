"""Encoders, and decoders with a cache, of dynamic sizes: ccompiler takes every op, and libraries need no Python.

Exporters write shapes around the layers: consecutive numbers, tables sliced up to a size, constants broadcast to a
size. No operand of these ops has the size; another tensor of the region does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core import script as R
from byoc_core.errors import ByocError, ExecutionError
from byoc_core.frontend.onnx import from_onnx

from benchmarks.zoo import bert, gpt2, llama
from benchmarks.zoo.graph_builder import STYLES

NDArray = npt.NDArray[Any]

CALLER = """
import ctypes, json, sys
import numpy as np

sys.modules["byoc_core"] = None  # nothing of it may be imported


class Tensor(ctypes.Structure):  # DLTensor
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]


class Any(ctypes.Structure):  # TVMFFIAny
    _fields_ = [("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("tensor", ctypes.c_void_p)]


def tensor(array):
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    code = {"i": 0, "u": 1, "f": 2, "b": 6}[array.dtype.kind]
    made = Tensor(array.ctypes.data, (1, 0), array.ndim, code, array.itemsize * 8, 1, shape, None, 0)
    made.kept = shape
    return made


library, inputs, outputs = sys.argv[1:]
arrays = list(np.load(inputs).values())
results = [np.zeros(shape, dtype) for shape, dtype in json.loads(outputs)]
tensors = [tensor(array) for array in [*arrays, *results]]
arguments = (Any * len(tensors))(*(Any(7, 0, ctypes.addressof(each)) for each in tensors))
main = ctypes.CDLL(library).__tvm_ffi_main
main.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
assert main(None, arguments, len(tensors), ctypes.byref(Any())) == 0
np.savez(library + ".npz", *results)
"""

Draw = Callable[[Mapping[str, int], int], dict[str, NDArray]]
NETWORKS: dict[str, tuple[Any, Any, Any, dict[str, int]]] = {
    "encoder": (bert.build_bert, bert.draw_bert_inputs, bert.SIZES["tiny"], {"batch": 2, "sequence": 9}),
    "gpt2": (gpt2.build_gpt2, gpt2.draw_gpt2_inputs, gpt2.SIZES["tiny"], {"batch": 2, "past": 5, "sequence": 3}),
    "llama": (llama.build_llama, llama.draw_llama_inputs, llama.SIZES["tiny"], {"batch": 2, "past": 5, "sequence": 3}),
}


def call_by_ctypes(executable: byoc_core.Executable, arrays: list[NDArray], like: list[NDArray], folder: Path) -> Any:
    """Return the results of the exported library in a process unable to import byoc."""
    library = folder / "model.so"
    executable.export_library(library)
    np.savez(folder / "inputs.npz", *arrays)
    shapes = json.dumps([(array.shape, array.dtype.name) for array in like])
    done = subprocess.run(
        [sys.executable, "-c", CALLER, library, folder / "inputs.npz", shapes],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return list(np.load(f"{library}.npz").values())


@pytest.mark.parametrize(
    ("name", "style"),
    [("encoder", "exported13"), ("gpt2", "exported13"), ("gpt2", "modern"), ("llama", "exported17")],
)
def test_a_transformer_of_dynamic_sizes_is_machine_code_alone(name: str, style: str, tmp_path: Path) -> None:
    build, draw, config, sizes = NETWORKS[name]
    module = from_onnx(build(config, STYLES[style]))
    executable = byoc_core.build(module, ["ccompiler"], options={"ccompiler": {"opt_level": 0}})
    rows = executable.report_data["ops"]
    assert [row["name"] for row in rows if row["outcome"] == "host"] == []
    assert [actual.type_key for actual in executable.modules] == ["csource"]
    inputs = draw(config, sizes, 3)
    arrays = [inputs[spec.name] for spec in executable.functions["main"].inputs]
    actual = byoc_core.VirtualMachine(executable)["main"](*arrays)
    expected = byoc_core.VirtualMachine(byoc_core.build(module, []))["main"](*arrays)
    for result, right in zip(actual, expected, strict=True):
        # As far apart as two float32 evaluations of a network of some hundred roundings in a row.
        scale = float(np.abs(right).max(initial=1.0))
        np.testing.assert_allclose(result, right, rtol=0, atol=512 * 2.0**-24 * scale)
    for result, same in zip(call_by_ctypes(executable, arrays, list(actual), tmp_path), actual, strict=True):
        np.testing.assert_array_equal(result, same)


SHAPES = R.parse("""
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", "m"), "float32")):
    i = R.arange(start=0, stop="n", step=1, dtype="int64")
    s = R.shape_to_tensor(sizes=("n", "m", "n*m"))
    b = R.broadcast_to(R.const(2.5, "float32"), shape=("n", "m"))
    t = R.strided_slice(x, axes=(1,), begin=(0,), end=("m",), strides=(1,), mode="strict")
    u = R.add(t, y)
    v = R.multiply(u, b)
    return i, s, v
""")


def test_ops_of_sizes_get_their_sizes_from_other_tensors(tmp_path: Path) -> None:
    executable = byoc_core.build(SHAPES, ["ccompiler"])
    assert {row["outcome"] for row in executable.report_data["ops"]} == {"ccompiler"}
    for n, m in ((3, 4), (5, 2), (1, 0), (0, 1)):
        x = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
        y = np.ones((n, m), np.float32)
        expected = [np.arange(n), np.array([n, m, n * m]), (x[:, :m] + y) * np.float32(2.5)]
        actual = byoc_core.VirtualMachine(executable)["main"](x, y)
        for result, right in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(result, right)
        for result, right in zip(call_by_ctypes(executable, [x, y], list(expected), tmp_path), expected, strict=True):
            np.testing.assert_array_equal(result, right)


def test_a_strict_slice_beyond_its_axis_is_an_error_of_the_call() -> None:
    """The host refuses it too; the memory behind the table belongs to nobody."""
    machines = [byoc_core.VirtualMachine(byoc_core.build(SHAPES, backends)) for backends in (["ccompiler"], [])]
    x, y = np.zeros((2, 4), np.float32), np.zeros((2, 5), np.float32)
    for machine in machines:
        with pytest.raises(ExecutionError, match="strided_slice"):
            machine["main"](x, y)


JOINED = R.parse("""
def main(x: R.Tensor(("n", "m"), "float32"), y: R.Tensor(("k", "m"), "float32")):
    a = R.concat((x, y), axis=1)
    b = R.exp(a)
    p, q = R.split(x, sections=("k", "n - k"), axis=0)
    c = R.add(p, y)
    d = R.multiply(q, q)
    return b, c, d
""")


def test_sizes_that_only_a_call_shows_are_checked_by_the_call() -> None:
    """Maps of a pyramid have sizes with perhaps different roundings; copies check before writing."""
    executable = byoc_core.build(JOINED, ["ccompiler"])
    assert {row["outcome"] for row in executable.report_data["ops"]} <= {"ccompiler", "(view)"}
    machines = [byoc_core.VirtualMachine(built) for built in (executable, byoc_core.build(JOINED, []))]
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 4), np.float32), rng.standard_normal((3, 4), np.float32)
    for actual, right in zip(*(machine["main"](x, y) for machine in machines), strict=True):
        np.testing.assert_allclose(actual, right, rtol=4 * 2.0**-24)
    for machine in machines:
        with pytest.raises(ByocError):
            machine["main"](x, rng.standard_normal((2, 4), np.float32))
