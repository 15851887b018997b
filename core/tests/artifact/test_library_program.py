"""The functions of an exported library, called without byoc: results and errors of machine code alone."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.artifact import Executable, load_module
from byoc_core.artifact.native_program import NativeProgram
from byoc_core.digest import digest_of
from byoc_core.dims import Dim, parse_dim, symbol
from byoc_core.errors import ExecutionError
from byoc_core.native.loader import NativeLibrary
from byoc_core.native.toolchain import find_toolchain, include_directory
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import NDArray, Signature, TensorSpec
from byoc_core.vm import (
    Builtin,
    Call,
    CallKind,
    ConstantRef,
    DynamicTensor,
    Goto,
    If,
    PlannedTensor,
    Program,
    Ret,
    VirtualMachine,
    VMFunction,
)
from byoc_core.vm.program import View

pytestmark = pytest.mark.libraries

N = symbol("n")
SHIFT = """\
#include "byoc_ffi.h"

BYOC_EXPORT const void *byoc_constants[1];

/* out = x + constant, which is in the table; fails on 13 elements */
BYOC_EXPORT int32_t __tvm_ffi_NAME(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)handle;
  (void)result;
  if (byoc_check_count("NAME", num_args, 2)) return -1;
  const DLTensor *x = byoc_tensor("NAME", "x", &args[0]);
  const DLTensor *out = byoc_tensor("NAME", "out", &args[1]);
  if (!x || !out || byoc_check_tensor("NAME", "x", x, kDLFloat, 32, 1)) return -1;
  if (byoc_check_size("NAME", "out", out, 0, x->shape[0])) return -1;
  if (x->shape[0] == 13) return byoc_fail("ValueError", "function `NAME`: does not like 13");
  const float by = *(const float *)byoc_constants[0];
  for (int64_t i = 0; i < x->shape[0]; ++i) ((float *)byoc_data(out))[i] = ((const float *)byoc_data(x))[i] + by;
  return 0;
}
"""
TRUE = np.array(True)
WEIGHT = np.arange(6, dtype="float32")


def shift(name: str, by: float) -> CSourceModule:
    constant = np.array([by], "float32")
    spec = TensorSpec("x", "float32", (N,))
    return CSourceModule(
        SHIFT.replace("NAME", name), {name: Signature((spec,), (spec,))}, constants=_by_digest(constant)
    )


def _by_digest(*arrays: NDArray) -> dict[str, NDArray]:
    return {digest_of(array): array for array in arrays}


def tensors(*shapes: tuple[Dim, ...], prefix: str = "x") -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(f"{prefix}{i}", "float32", shape) for i, shape in enumerate(shapes))


def extern(index: int, source: int, target: int) -> Call:
    return Call(CallKind.EXTERN, index, (source,), (target,))


def builtin(which: Builtin, args: Sequence[int], result: int) -> Call:
    return Call(CallKind.BUILTIN, which, tuple(args), (result,))


def loop() -> VMFunction:
    """Return y = x + 1, repeated `times` times."""
    return VMFunction(
        "loop",
        (TensorSpec("x", "float32", (N,)), TensorSpec("times", "int64", ())),
        (TensorSpec("y", "float32", (N,)),),
        (0,),
        (parse_dim("4*n"), 64, 64),
        (PlannedTensor(0, 0, "float32", (N,)), PlannedTensor(1, 0, "int64", ()), PlannedTensor(2, 0, "bool", ())),
        (),
        (
            builtin(Builtin.COPY, (0,), 2),
            builtin(Builtin.ZERO, (), 5),
            builtin(Builtin.LOOP_TEST, (5, 1, 3), 6),
            If(6, 8),
            extern(0, 2, 4),
            builtin(Builtin.COPY, (4,), 2),
            builtin(Builtin.INCREMENT, (), 5),
            Goto(2),
            Ret((2,)),
        ),
    )


def halves() -> VMFunction:
    """Return x + 1 for a half of x and x + 10 for the other, another input transposed, and six numbers."""
    double = parse_dim("2*n")
    half = parse_dim("4*n")
    return VMFunction(
        "halves",
        tensors((double,), (3, N)),
        tensors((double,), (N, 3), (6,), prefix="y"),
        (1,),
        (),
        (),
        (),
        (
            extern(0, 6, 8),
            extern(1, 7, 9),
            builtin(Builtin.COPY, (10,), 3),
            builtin(Builtin.COPY, (5,), 4),
            Ret((2, 3, 4)),
        ),
        (
            View(0, 0, "float32", (N,)),
            View(0, half, "float32", (N,)),
            View(2, 0, "float32", (N,)),
            View(2, half, "float32", (N,)),
            View(1, 0, "float32", (N, 3), (1, N)),
        ),
    )


def caller() -> VMFunction:
    """Return x + 2: the loop, called with a constant number of rounds."""
    return VMFunction(
        "caller",
        tensors((N,)),
        tensors((N,), prefix="y"),
        (2,),
        (),
        (),
        (),
        (Call(CallKind.FUNCTION, 0, (0, 2), (1,)), Ret((1,))),
    )


TWO = np.array(2, "int64")


@pytest.fixture
def native() -> Executable:
    arrays = (TRUE, WEIGHT, TWO)
    refs = tuple(ConstantRef(digest_of(array), array.dtype.name, array.shape) for array in arrays)
    program = Program((loop(), halves(), caller()), ("one", "ten"), refs)
    return Executable(program, [shift("one", 1), shift("ten", 10)], _by_digest(*arrays))


def exported(executable: Executable, path: Path) -> Callable[..., None]:
    """Return f(name, *arrays): a call of an exported library's function by symbol."""
    executable.export_library(path)
    library = NativeLibrary(ctypes.CDLL(str(path)), path.name)

    def call(name: str, *arrays: NDArray) -> None:
        specs = [(array.dtype.name, tuple(None for _ in array.shape)) for array in arrays]
        library.function(name, specs)(*arrays)

    return call


@pytest.mark.parametrize("size", [0, 1, 5, 12, 1000])
def test_loops_views_constants_and_calls_equal_the_machine(native: Executable, tmp_path: Path, size: int) -> None:
    call = exported(native, tmp_path / "model.so")
    machine = VirtualMachine(native)
    x = np.arange(2 * size, dtype="float32")
    z = np.arange(3 * size, dtype="float32").reshape(3, size)
    inputs: dict[str, tuple[NDArray, ...]] = {
        "loop": (x[:size], np.array(3)),
        "halves": (x, z),
        "caller": (x[:size],),
    }
    for name, arrays in inputs.items():
        wanted = machine[name](*arrays)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        results = [np.full_like(array, -7) for array in wanted]
        for _ in range(3):
            call(name, *arrays, *results)
        for result, array in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(result, array)


def test_sizes_that_change_from_call_to_call(native: Executable, tmp_path: Path) -> None:
    call = exported(native, tmp_path / "model.so")
    for size in (3, 500, 2, 100_000, 0, 7):
        x, y = np.arange(size, dtype="float32"), np.zeros(size, "float32")
        call("caller", x, y)
        np.testing.assert_array_equal(y, x + 2)


def test_threads_call_at_once(native: Executable, tmp_path: Path) -> None:
    call = exported(native, tmp_path / "model.so")
    wrong: list[int] = []

    def work(seed: int) -> None:
        for size in range(seed, 400, 7):
            x, y = np.full(size, seed, "float32"), np.zeros(size, "float32")
            call("caller", x, y)
            if not (y == seed + 2).all():
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(14, 22)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_errors_name_function_and_argument(native: Executable, tmp_path: Path) -> None:
    call = exported(native, tmp_path / "model.so")
    x, y, times = np.zeros(4, "float32"), np.zeros(4, "float32"), np.array(1)
    matrix = np.zeros((3, 2), "float32")
    numbers = np.zeros(6, "float32")
    cases: list[tuple[str, tuple[NDArray, ...], str]] = [
        ("loop", (x, y), "function `loop`: takes 3 tensors (inputs, then outputs); got 2"),
        (
            "loop",
            (x.astype("float64"), times, y),
            "function `loop`, argument `x`: wrong element type; got float64 (lanes 1), expected float32",
        ),
        ("loop", (x, times, y[:3]), "function `loop`, argument `y`: wrong size of axis 0; got 3, expected 4"),
        ("loop", (x, times, x), "function `loop`, argument `y`: shares memory with argument `x`"),
        ("loop", (x, np.zeros(1, "int64"), y), "function `loop`, argument `times`: wrong rank; got 1, expected 0"),
        (
            "halves",
            (x[:3], matrix, y, matrix.reshape(2, 3), numbers),
            "function `halves`, argument `x1`: wrong size of axis 1; got 2, expected 1",
        ),
        ("caller", (np.zeros(13, "float32"), np.zeros(13, "float32")), "function `one`: does not like 13"),
    ]
    for name, arrays, text in cases[:5] + cases[6:]:
        with pytest.raises(ExecutionError) as caught:
            call(name, *arrays)
        assert str(caught.value) == text
    with pytest.raises(
        ExecutionError, match=r"^function `halves`, argument `x0`: wrong size of axis 0; got 3, expected 2 \* s"
    ):
        call(*cases[5][:1], *cases[5][1])


def test_an_error_inside_leaves_the_library_usable(native: Executable, tmp_path: Path) -> None:
    call = exported(native, tmp_path / "model.so")
    for _ in range(3):
        with pytest.raises(ExecutionError):
            call("caller", np.zeros(13, "float32"), np.zeros(13, "float32"))
        x, y = np.ones(4, "float32"), np.zeros(4, "float32")
        call("caller", x, y)
        assert y.tolist() == [3] * 4


MAIN = """\
#include "byoc_ffi.h"
#include <dlfcn.h>
#include <stdio.h>

typedef int32_t (*function)(void *, const TVMFFIAny *, int32_t, TVMFFIAny *);

int main(int argc, char **argv) {
  (void)argc;
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) return printf("%s\\n", dlerror()), 1;
  float x[5] = {0, 1, 2, 3, 4}, y[5] = {0};
  int64_t shape[1] = {5};
  DLTensor tensors[2] = {{.data = x, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape},
                         {.data = y, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape}};
  TVMFFIAny args[2] = {{.type_index = kTVMFFIDLTensorPtr, .v_ptr = &tensors[0]},
                       {.type_index = kTVMFFIDLTensorPtr, .v_ptr = &tensors[1]}};
  TVMFFIAny result = {0};
  function call = (function)(uintptr_t)dlsym(library, argv[2]);
  const char *(*last_error)(void) = (const char *(*)(void))(uintptr_t)dlsym(library, "byoc_last_error");
  if (!call || !last_error) return printf("no function\\n"), 1;
  for (int round = 0; round < 2; ++round) {
    if (call(NULL, args, 2, &result)) return printf("%s\\n", last_error()), 3;
    for (int i = 0; i < 5; ++i) printf("%g ", y[i]);
  }
  printf("%d\\n", dlclose(library));
  return 0;
}
"""


def run_without_python(library: Path, symbol_name: str, folder: Path) -> tuple[int, str]:
    """Return status and output of a C program calling a function on x = 0 1 2 3 4, twice."""
    (folder / "main.c").write_text(MAIN)
    command = [*find_toolchain().command, "-std=c11", f"-I{include_directory()}", "main.c", "-o", "main", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(
        [folder / "main", library, symbol_name], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


needs_dlopen = pytest.mark.skipif(sys.platform == "win32", reason="the C program is one for POSIX")


@needs_dlopen
def test_a_c_program_runs_the_model_without_python(native: Executable, tmp_path: Path) -> None:
    native.export_library(tmp_path / "model.so")
    assert run_without_python(tmp_path / "model.so", "__tvm_ffi_caller", tmp_path) == (0, "2 3 4 5 6 2 3 4 5 6 0\n")


@needs_dlopen
def test_a_region_may_have_the_name_of_a_function(tmp_path: Path) -> None:
    main = VMFunction("main", tensors((N,)), tensors((N,), prefix="y"), (), (), (), (), (extern(0, 0, 1), Ret((1,))))
    both = Executable(Program((main,), ("main",)), [shift("main", 5)])
    both.export_library(tmp_path / "model.so")
    assert run_without_python(tmp_path / "model.so", "__tvm_ffi_main", tmp_path) == (0, "5 6 7 8 9 5 6 7 8 9 0\n")


def test_a_name_that_is_no_identifier_stays_inside(tmp_path: Path) -> None:
    main = VMFunction(
        "my-model", tensors((N,)), tensors((N,), prefix="y"), (), (), (), (), (extern(0, 0, 1), Ret((1,)))
    )
    Executable(Program((main,), ("one",)), [shift("one", 1)]).export_library(tmp_path / "model.so")
    assert not hasattr(ctypes.CDLL(str(tmp_path / "model.so")), "__tvm_ffi_my-model")
    x, y = np.zeros(3, "float32"), np.zeros(3, "float32")
    load_module(tmp_path / "model.so").get_function("my-model")(x, y)
    assert y.tolist() == [1, 1, 1]


def test_constants_lie_in_the_library_once(tmp_path: Path) -> None:
    big = np.random.default_rng(0).standard_normal(250_000).astype("float32")
    reference = ConstantRef(digest_of(big), "float32", big.shape)
    code = (builtin(Builtin.COPY, (1,), 0), Ret((0,)))
    main = VMFunction("main", (), tensors(big.shape, prefix="y"), (0,), (), (), (), code)
    path = tmp_path / "model.so"
    call = exported(Executable(Program((main,), (), (reference,)), [], _by_digest(big)), path)
    assert path.stat().st_size < 2 * big.nbytes
    y = np.zeros_like(big)
    call("main", y)
    np.testing.assert_array_equal(y, big)


PYTHON = """
import ctypes, sys
import numpy as np
from byoc_core.native.loader import NativeLibrary
assert "byoc_core.artifact" not in sys.modules
library = NativeLibrary(ctypes.CDLL(sys.argv[1]), "model")
function = library.function("main", [("float32", (None, 4)), ("float32", (None, 4))])
for size in (3, 0, 2):
    x, y = np.ones((size, 4), "float32"), np.zeros((size, 4), "float32")
    function(x, y)
    print(y.tolist())
for arrays in [(x, np.zeros((5, 4), "float32"))]:
    try:
        function(*arrays)
    except Exception as error:
        print(error)
"""
REASON = "function `main`: needs Python for `region0` of runtime `graph` (add), and "


def test_what_needs_python_runs_in_the_one_of_the_process(executable: Executable, tmp_path: Path) -> None:
    executable.export_library(tmp_path / "model.so")
    done = subprocess.run(
        [sys.executable, "-c", PYTHON, tmp_path / "model.so"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        str([[3.0, 4.0, 5.0, 6.0]] * 3),
        "[]",
        str([[3.0, 4.0, 5.0, 6.0]] * 2),
        "function `main`, output 0 `y`: axis 0 has the wrong size; got [5, 4], expected [n, 4] with n = 2",
    ]


@needs_dlopen
def test_without_python_it_says_what_needs_it(executable: Executable, tmp_path: Path) -> None:
    executable.export_library(tmp_path / "model.so")
    expected = (3, f"{REASON}this process has no Python\n")
    assert run_without_python(tmp_path / "model.so", "__tvm_ffi_main", tmp_path) == expected


def test_a_python_without_byoc_is_told_so(executable: Executable, tmp_path: Path) -> None:
    executable.export_library(tmp_path / "model.so")
    hidden = "import sys\nsys.modules['byoc_core.artifact.embedded'] = None\n"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            hidden + PYTHON.replace("for size", "if size := 0:\n  pass\nfor size"),
            tmp_path / "model.so",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    text = f"{REASON}this process's Python cannot import byoc_core.artifact.embedded (pip install byoc-core)"
    assert done.stderr.splitlines()[-1].endswith(text)


def reason(executable: Executable, name: str) -> str:
    native = NativeProgram(executable.program, executable.modules)
    (function,) = (function for function in executable.program.functions if function.name == name)
    assert not native.is_native(function)
    return native.reason(function)


def one_call(name: str, call: Call, *, results: tuple[TensorSpec, ...] | None = None, **groups: object) -> VMFunction:
    """Return a function of x (n) with a single instruction, writing register 1."""
    results = tensors((N,), prefix="y") if results is None else results
    fields: dict[str, Any] = {"constants": (), "storages": (), "tensors": (), "dynamics": (), **groups}
    return VMFunction(name, tensors((N,)), results, code=(call, Ret((call.results[0],))), **fields)


def test_every_reason_is_said() -> None:
    unknown = (TensorSpec("y0", "float32", (symbol("k"),)),)
    found = (DynamicTensor("float32", (symbol("k"),), ("k",)),)
    functions = (
        one_call("undefined", extern(0, 0, 1)),
        one_call("packed", Call(CallKind.PACKED, 1, (0,), (2,)), results=unknown, dynamics=found),
        one_call("calls", Call(CallKind.FUNCTION, 0, (0,), (1,))),
        one_call("calls_packed", Call(CallKind.FUNCTION, 1, (0,), (2,)), results=unknown, dynamics=found),
        one_call("unsolved", extern(1, 0, 1)),
    )
    n_times_n = TensorSpec("x0", "float32", (parse_dim("n*n"),))
    unsolved = replace(functions[4], params=(n_times_n,), results=(replace(n_times_n, name="y0"),))
    executable = Executable(Program((*functions[:4], unsolved), ("missing", "one")), [shift("one", 1)])
    assert {name: reason(executable, name) for name in executable.functions} == {
        "undefined": "needs Python for `missing`, not defined by any module",
        "packed": "needs Python for `one`, a function returning results",
        "calls": "needs Python for `missing`, not defined by any module",
        "calls_packed": "needs Python for the call of `packed`, `one`, a function returning results",
        "unsolved": "needs Python for sizes not determined by a linear equation with a single unknown",
    }


def test_a_function_calling_itself_is_left_to_python() -> None:
    function = one_call("again", Call(CallKind.FUNCTION, 0, (0,), (1,)))
    assert reason(Executable(Program((function,)), (), {}, {}), "again") == (
        "needs Python for `again`, a function calling itself"
    )


def test_what_a_function_does_not_permit_is_a_reason() -> None:
    main = one_call("main", extern(0, 2, 1), views=(View(0, 0, "float32", (N,), (0,)),))
    executable = Executable(Program((main,), ("one",)), [shift("one", 1)])
    text = "needs Python for a call without a valid link (`one` takes C-contiguous arrays only)"
    assert reason(executable, "main") == text


def test_many_reasons_are_cut_short() -> None:
    names = tuple(f"missing{index}" for index in range(7))
    code: tuple[Call | Ret, ...] = (*(extern(index, 0, 1) for index in range(7)), Ret((1,)))
    main = VMFunction("main", tensors((N,)), tensors((N,), prefix="y"), (), (), (), (), code)
    assert reason(Executable(Program((main,), names)), "main") == (
        "needs Python for `missing0`, not defined by any module, `missing1`, not defined by any module, "
        "`missing2`, not defined by any module, `missing3`, not defined by any module and 3 more"
    )
