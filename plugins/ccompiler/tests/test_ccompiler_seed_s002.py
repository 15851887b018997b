"""Scenarios S002.1 to S002.4 of the developer guide."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.authoring.csource import CSourceCodegen, FunctionScope
from byoc_core.ir import Binding, Function, FunctionBuilder, IRModule, Var, tensor
from byoc_core.native.toolchain import include_directory
from byoc_core.ops import default_ops

from plugins.ccompiler.tests.bench import Bench

pytestmark = pytest.mark.interpreter


def _gcc_0(name: str = "gcc_0") -> Function:
    builder: Any = FunctionBuilder(name, ops=default_ops())
    inputs = [builder.param(f"i{k}", tensor((10, 10))) for k in range(4)]
    added = builder.emit("add", inputs[0], inputs[1])
    subtracted = builder.emit("subtract", added, inputs[2])
    function: Function = builder.finish(builder.emit("multiply", subtracted, inputs[3]))
    return function


def _inputs() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((10, 10)).astype("float32") for _ in range(4)]


def test_s002_1_tutorial_mode_shows_the_document_s_structure() -> None:
    bench = Bench(tutorial=True)
    bench.functions.append(_gcc_0())
    source = bench.module.get_source()
    assert len(re.findall(r"^static void gcc_0_\d\(", source, re.MULTILINE)) == 3
    assert re.findall(r"malloc\(.*?\)", source) == ["malloc(4 * 100)"] * 2
    calls = re.findall(r"^  (gcc_0_\d\(.*?\);)$", source, re.MULTILINE)
    assert calls == ["gcc_0_0(i0, i1, buf_0);", "gcc_0_1(buf_0, i2, buf_1);", "gcc_0_2(buf_1, i3, out);"]
    i0, i1, i2, i3 = _inputs()
    out = np.zeros((10, 10), "float32")
    bench.module.get_function("gcc_0")(i0, i1, i2, i3, out)
    np.testing.assert_array_equal(out, (i0 + i1 - i2) * i3)


def test_s002_1_three_layers_can_be_called(tmp_path: Path) -> None:
    bench = Bench(tutorial=True)
    bench.functions.append(_gcc_0())
    path = tmp_path / "library.so"
    path.write_bytes(bench.module.build().data)
    library = ctypes.CDLL(str(path))
    arrays = [*_inputs(), np.zeros((10, 10), "float32")]
    pointer = ctypes.POINTER(ctypes.c_float)
    assert library["gcc_0_"](*(array.ctypes.data_as(pointer) for array in arrays)) == 0
    np.testing.assert_array_equal(arrays[4], (arrays[0] + arrays[1] - arrays[2]) * arrays[3])
    assert hasattr(library, "gcc_0_wrapper_")
    tvm_ffi = pytest.importorskip("tvm_ffi")
    arrays[4][:] = 0
    function = tvm_ffi.load_module(str(path))["gcc_0"]
    function(*map(tvm_ffi.from_dlpack, arrays))
    np.testing.assert_array_equal(arrays[4], (arrays[0] + arrays[1] - arrays[2]) * arrays[3])
    with pytest.raises(
        TypeError, match=r"argument `i1`: wrong element type; got float64 \(lanes 1\), expected float32"
    ):
        function(*map(tvm_ffi.from_dlpack, [arrays[0], arrays[1].astype("float64"), *arrays[2:]]))


def test_s002_1_the_wrapper_returns_a_status() -> None:
    bench = Bench()
    bench.functions.append(_gcc_0())
    source = bench.module.get_source()
    assert "int32_t gcc_0_wrapper_(const DLTensor *i0" in source
    assert "BYOC_EXPORT int32_t __tvm_ffi_gcc_0(" in source


def test_s002_1_normal_mode_is_one_loop_without_a_buffer() -> None:
    bench = Bench()
    bench.functions.append(_gcc_0())
    source = bench.module.get_source()
    assert source.count("for (") == 1
    assert "malloc(" not in source
    i0, i1, i2, i3 = _inputs()
    (out,) = bench.run(bench.functions[0], i0, i1, i2, i3)
    np.testing.assert_array_equal(out, (i0 + i1 - i2) * i3)


@pytest.mark.parametrize("tutorial", [True, False])
def test_s002_1_the_text_compiles_by_hand_without_a_warning(tmp_path: Path, tutorial: bool) -> None:
    from byoc_core.native.toolchain import find_toolchain

    bench = Bench(tutorial=tutorial)
    bench.functions.append(_gcc_0())
    (tmp_path / "gcc_0.c").write_text(bench.module.get_source())
    command = [*find_toolchain().command, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{include_directory()}"]
    command += ["-fPIC", "-shared", "-o", "gcc_0.so", "gcc_0.c", str(include_directory() / "byoc_ffi.c"), "-lm"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert hasattr(ctypes.CDLL(str(tmp_path / "gcc_0.so")), "__tvm_ffi_gcc_0")


class _Own(CSourceCodegen):
    """Code written by a reader of the guide: only variables and calls."""

    def visit_var(self, scope: FunctionScope, var: Var) -> str:
        return scope.parameter(var)

    def visit_call(self, scope: FunctionScope, binding: Binding, inputs: Sequence[str]) -> None:
        operator = {"add": "+", "subtract": "-", "multiply": "*"}[binding.op.name]
        kernel = scope.declare_kernel(
            "static void {name}(const float *a, const float *b, float *out) {\n"
            f"  for (int i = 0; i < 100; ++i) out[i] = a[i] {operator} b[i];\n}}"
        )
        scope.call(kernel, *inputs, scope.buffer(binding.result))


def test_s002_2_a_subclass_of_two_methods_produces_working_c() -> None:
    i0, i1, i2, i3 = _inputs()
    for source in (_gcc_0(), IRModule({name: _gcc_0(name) for name in ("gcc_0", "gcc_1")})):
        module = _Own().generate(source)
        for name in module.function_names:
            out = np.zeros((10, 10), "float32")
            module.get_function(name)(i0, i1, i2, i3, out)
            np.testing.assert_array_equal(out, (i0 + i1 - i2) * i3)
    assert module.function_names == ("gcc_0", "gcc_1")


def test_s002_3_tutorial_mode_of_every_dtype_and_rank() -> None:
    bench = Bench(tutorial=True)
    rng = np.random.default_rng(0)
    cases = []
    for dtype in ("float32", "float64", "int32", "int8", "bool"):
        for shape in ((), (3,), (2, 3), (2, 1, 2, 3, 2)):
            builder = bench.builder()
            x, y = builder.param("x", tensor(shape, dtype)), builder.param("y", tensor(shape, dtype))
            total = builder.emit("add", builder.emit("multiply", y, y), x)
            function = bench.add(builder, total, builder.emit("maximum", x, total), x)
            arrays = [np.asarray(rng.integers(0, 2 if dtype == "bool" else 100, shape)).astype(dtype) for _ in "xy"]
            cases.append((function, arrays))
    for function, arrays in cases:
        for actual, expected in zip(bench.run(function, *arrays), bench.reference(function, *arrays), strict=True):
            np.testing.assert_array_equal(actual, expected)


def test_s002_4_the_tag_works_because_the_plugin_is_installed() -> None:
    module = IRModule({"main": _gcc_0("main")})
    executable = byoc_core.build(module, backends=["ccompiler"], fallback="error")
    (native,) = executable.modules
    assert native.type_key == "csource"
    i0, i1, i2, i3 = _inputs()
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](i0, i1, i2, i3), (i0 + i1 - i2) * i3)


def test_s002_4_without_it_the_error_says_what_to_install() -> None:
    script = (
        "from importlib import metadata\n"
        "real = metadata.distributions\n"
        "def without(**options):\n"
        "    return [found for found in real(**options) if found.metadata['Name'] != 'byoc-ccompiler']\n"
        "metadata.distributions = without\n"
        "import byoc_core\n"
        "from byoc_core.ir import IRModule\n"
        "try:\n"
        "    byoc_core.build(IRModule(), backends=['ccompiler'])\n"
        "except byoc_core.errors.BackendNotFoundError as error:\n"
        "    print(error)\n"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert re.fullmatch(
        r".*backend `ccompiler` is not installed; installed: .*host.*; pip install byoc-ccompiler\n",
        finished.stdout,
    ), finished.stdout
