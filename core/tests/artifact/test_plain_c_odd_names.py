"""Names in exported C: keywords, macros, registers and clashes among inputs, outputs, sizes, functions and memories."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.artifact import Executable, load_module
from byoc_core.dims import symbol
from byoc_core.runtime.module import TensorSpec
from byoc_core.runtime.pools import Pool
from byoc_core.vm import Builtin, Call, Ret, VMFunction

from core.tests.artifact.plain_c_caller import (
    FLAGS,
    ExportedC,
    compile_c,
    needs_gcc,
    program,
    run_program,
    scaler,
    scaling,
)
from core.tests.artifact.test_library_program import builtin

pytestmark = needs_gcc

NAMES = (
    *("if", "class", "template", "new", "this", "bool", "true", "lambda", "None", "in", "np", "ctypes", "_run"),
    *("int64_t", "size_t", "uintptr_t", "float", "memmove", "NULL", "NAN", "errno", "stdin", "linux", "unix"),
    *("p0", "o0", "c0", "t0", "w0", "i0", "label_1", "in_x", "out_x", "memory_workspace"),
    *(
        "workspace",
        "pools",
        "inputs",
        "outputs",
        "status",
        "info",
        "info_1",
        "sizes",
        "nbytes",
        "name",
        "n",
        "m",
        "x_out",
    ),
    *("x", "x_array", "x_result", "x 1", "x_1", "é", "1", "*/", "/*", "a\nb", '"', "??/", "\\", "model_run", "_"),
)
SIZES = ("n", "N", "m", "x", "template", "int", "int64_t", "p0", "errno")


def copying(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], sizes: tuple[str, ...]) -> VMFunction:
    """Return a function with as many inputs as outputs; each output is the previous input, of some of the sizes."""
    dims = [symbol(sizes[k % len(sizes)]) for k in range(len(inputs))]
    params = tuple(TensorSpec(text, "float32", (dim,)) for text, dim in zip(inputs, dims, strict=True))
    results = tuple(TensorSpec(text, "float32", (dim,)) for text, dim in zip(outputs, dims, strict=True))
    copies: list[Call | Ret] = [builtin(Builtin.COPY, (k,), len(inputs) + k) for k in range(len(inputs))]
    code = (*copies, Ret(tuple(range(len(inputs), 2 * len(inputs)))))
    return VMFunction(name, params, results, (), (), (), (), code)


def odd() -> Executable:
    return program((copying("main", NAMES, NAMES[1:] + NAMES[:1], SIZES),))


def odd_inputs() -> dict[str, Any]:
    return {name: np.full(k % len(SIZES) + 1, k, "float32") for k, name in enumerate(NAMES)}


def check(folder: Path, *flags: str) -> None:
    """Build and run the test program of an export."""
    options = " ".join([*FLAGS, *flags])
    command = ["make", "-s", "check", "CC=gcc", f"CFLAGS={options}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": right") == len(NAMES)


def include_from_cpp(folder: Path) -> None:
    (folder / "caller.cpp").write_text('#include <cerrno>\n#include <cstdio>\n#include "model.h"\n')
    for standard in ("gnu++11", "c++20"):
        flags = [f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
        done = subprocess.run(["g++", *flags, "caller.cpp"], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


needs_cpp = pytest.mark.skipif(shutil.which("g++") is None, reason="`g++` is not on PATH")


@needs_cpp
def test_odd_names_of_inputs_outputs_and_sizes(tmp_path: Path) -> None:
    odd().export_c(tmp_path, test_inputs=odd_inputs())
    check(tmp_path)
    include_from_cpp(tmp_path)
    (tmp_path / "gnu.c").write_text('#include <errno.h>\n#include <math.h>\n#include <stdbool.h>\n#include "model.h"\n')
    subprocess.run(["gcc", "-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", "gnu.c"], cwd=tmp_path, check=True)


@needs_cpp
@pytest.mark.parametrize("pools", [[], [Pool("sram", 1 << 20), Pool("rounds")]])
def test_odd_names_of_arguments_in_the_memories(pools: list[Pool], tmp_path: Path) -> None:
    max_sizes = dict.fromkeys(SIZES, 100)
    odd().export_c(tmp_path, test_inputs=odd_inputs(), max_sizes=max_sizes, pools=pools, places_arguments=True)
    check(tmp_path)
    include_from_cpp(tmp_path)


def test_odd_names_in_a_shared_library(tmp_path: Path) -> None:
    odd().export_library(tmp_path / "model.so")
    inputs = odd_inputs()
    outputs = [np.zeros_like(array) for array in inputs.values()]
    load_module(tmp_path / "model.so").get_function("main")(*inputs.values(), *outputs)
    for array, output in zip(inputs.values(), outputs, strict=True):
        np.testing.assert_array_equal(array, output)


def test_odd_names_in_a_wheel(tmp_path: Path) -> None:
    wheel = odd().export_wheel(tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    np.savez(tmp_path / "inputs.npz", *odd_inputs().values())
    script = (
        "import sys, inspect; import numpy as np; import model; arrays = list(np.load('inputs.npz').values())\n"
        "results = model.run(*arrays)\n"
        "assert all((a == b).all() for a, b in zip(arrays, results, strict=True))\n"
        "print(len(results), len(inspect.signature(model.run).parameters))\n"
    )
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(NAMES))] * 2


FUNCTIONS = ("main", "f", "F", "sizes", "body", "run", "workspace_size", "workspace", "inputs", "info", "tensor", "num")


def test_functions_with_clashing_names(tmp_path: Path) -> None:
    functions = [scaling(name) for name in (*FUNCTIONS, "a-b", "a_b", "input_info", "run_sizes_", "é", "if")]
    exported = ExportedC(program(tuple(functions), scaler("run", 2)), tmp_path, options={"max_sizes": {"n": 4}})
    declared = [line for line in exported.header.splitlines() if line.startswith("int32_t model_run")]
    assert len(set(declared)) == len(functions)
    (tmp_path / "empty.c").write_text('#include "model.h"\n\nint main(void) { return 0; }\n')
    run_program(compile_c(tmp_path, [*exported.sources, "empty.c"]))
    x = np.arange(4, dtype="float32")
    for name in FUNCTIONS[:3]:
        suffix = {"main": "", "f": "_f", "F": "_F_2"}[name]
        exported.suffixes = {**exported.suffixes, name: suffix}
        np.testing.assert_array_equal(exported.check(name, [x], [4])[0], 2 * x)


def test_generated_functions_named_like_members(tmp_path: Path) -> None:
    """Members `one_` and `x` beside generated functions `one` and `x`."""
    main = scaling()
    params, results = (TensorSpec("one_", "float32", main.params[0].shape),), main.results
    function = VMFunction("main", params, results, (), (), (), (), main.code)
    exported = ExportedC(program((function,), scaler("one", 2)), tmp_path)
    x = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(exported.check("main", [x], [4])[0], 2 * x)
