"""Programs written by hand: views, functions calling functions, dynamic registers, failures, many threads."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core import VirtualMachine
from byoc_core.artifact import Executable
from byoc_core.errors import ByocError
from byoc_core.native.toolchain import Toolchain
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import Signature
from byoc_core.vm import (
    Builtin,
    CallKind,
    DynamicTensor,
    Goto,
    If,
    Instruction,
    PlannedTensor,
    Program,
    Ret,
    VMFunction,
    verify,
)

from rt.tests.runner import NativeError, NativeLibrary, Status
from rt.tests.saved import assert_same_bits, check_calls, load_saved, results_of
from rt.tests.written_programs import N, advance, builtin, call, executable_of, function_of, spec, view

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

F32 = "float32"


def draw(*shape: int, seed: int = 0) -> Any:
    return np.abs(np.random.default_rng(seed).standard_normal(shape, np.float32))


def joined(*, is_strided: bool = True) -> Executable:
    """Return ``y = [x+1, x+2]``: both halves of the columns are views of the result."""
    function = function_of(
        [spec("x", "n", 4)],
        [spec("y", "n", 8)],
        [advance(0, 2), advance(2, 3), Ret((1,))],
        views=[view(1, 0, N, 4, strides=(8, 1)), view(1, 16, N, 4, strides=(8, 1))],
    )
    return executable_of(function, is_strided=is_strided)


def test_views_of_results_have_strides(native: NativeLibrary, tmp_path: Path) -> None:
    check_calls(joined(), native, tmp_path, "main", [[draw(n, 4)] for n in (3, 0, 1, 1, 7)])


def test_strides_need_permission(native: NativeLibrary, tmp_path: Path) -> None:
    program = load_saved(joined(is_strided=False), native, tmp_path)
    with pytest.raises(NativeError, match=r"register w0: has strides, but is used by a callee without strides"):
        program["main"](draw(3, 4))
    program["main"](draw(1, 4))  # a single row is compact


def test_views_of_all_kinds_of_memory(native: NativeLibrary, tmp_path: Path) -> None:
    """Views of a parameter, a constant and a planned tensor: reshaped, a part, transposed, repeated."""
    table = draw(3, 4, seed=1)
    function = function_of(
        [spec("x", "2*n", 4)],
        [spec("y", "n", 8), spec("z", 2, 4), spec("u", 4, 3), spec("r", 5, 4)],
        [
            advance(7, 1),  # x as [n, 8]
            advance(8, 2),  # the last rows of the constant
            advance(5, 6),
            advance(9, 3),  # the planned tensor, transposed
            builtin(Builtin.COPY, [10], [4]),  # a row of the constant, five times
            Ret((1, 2, 3, 4)),
        ],
        constants=[0],
        storages=[64],
        tensors=[PlannedTensor(0, 0, F32, (3, 4))],
        views=[
            view(0, 0, N, 8),
            view(5, 16, 2, 4),
            view(6, 0, 4, 3, strides=(1, 4)),
            view(5, 16, 5, 4, strides=(0, 1)),
        ],
    )
    executable = executable_of(function, arrays=[table])
    verify(executable.program)
    check_calls(executable, native, tmp_path, "main", [[draw(2 * n, 4)] for n in (2, 0, 5)])


def nested() -> tuple[VMFunction, ...]:
    """Return functions: ``main`` calls ``inner``, once into a buffer, once for a dynamic register."""
    inner = function_of([spec("x", "n", "m")], [spec("y", "n", "m")], [advance(0, 1), Ret((1,))], name="inner")
    # A learnt size: the callee returns a dynamic register, here a copy of the argument.
    learnt = function_of(
        [spec("x", "n", 4)],
        [spec("y", "k", 4)],
        [builtin(Builtin.CLONE, [0], [2]), Ret((2,))],
        name="learnt",
        dynamics=[DynamicTensor(F32, (spec("", "k").shape[0], 4), ("k",))],
    )
    main = function_of(
        [spec("x", "n", 4)],
        [spec("y", "n", 4), spec("z", "j", 4)],
        [
            call(CallKind.FUNCTION, 1, [0], [3]),  # t0 = x + 1
            call(CallKind.FUNCTION, 1, [3], [4]),  # v0 = x + 2
            call(CallKind.FUNCTION, 2, [4], [5]),  # v1 = x + 2, of learnt size j
            call(CallKind.FUNCTION, 2, [3], [1]),  # y = x + 1: a result of unknown size into a buffer
            Ret((1, 5)),
        ],
        storages=[16 * N],
        tensors=[PlannedTensor(0, 0, F32, (N, 4))],
        dynamics=[DynamicTensor(F32, (N, 4)), DynamicTensor(F32, (spec("", "j").shape[0], 4), ("j",))],
    )
    return main, inner, learnt


def test_functions_call_functions(native: NativeLibrary, tmp_path: Path) -> None:
    executable = executable_of(*nested())
    verify(executable.program)
    check_calls(executable, native, tmp_path, "main", [[draw(n, 4)] for n in (3, 0, 3, 9)])


def test_a_function_calling_itself_ends(native: NativeLibrary, tmp_path: Path) -> None:
    function = function_of([spec("x", "n", 4)], [spec("y", "n", 4)], [call(CallKind.FUNCTION, 0, [0], [1]), Ret((1,))])
    program = load_saved(executable_of(function), native, tmp_path)
    with pytest.raises(NativeError, match="functions are nested too deep") as caught:
        program["main"](draw(2, 4))
    assert caught.value.status is Status.EXECUTION


def counting() -> Executable:
    """Return a function applying ``advance`` ``trips`` times, by a loop over two dynamic registers."""
    # Registers: 0 x, 1 trips, 2 going, 3 y, 4 t0 iteration, 5 t1 test, 6 v0, 7 v1.
    function = function_of(
        [spec("x", "n", 4), spec("trips", dtype="int64"), spec("going", dtype="bool")],
        [spec("y", "n", 4)],
        [
            builtin(Builtin.ZERO, [], [4]),
            builtin(Builtin.CLONE, [0], [6]),
            builtin(Builtin.LOOP_TEST, [4, 1, 2], [5]),
            If(5, 9),
            builtin(Builtin.ALLOCATE, [], [7]),
            advance(6, 7),
            builtin(Builtin.CLONE, [7], [6]),
            builtin(Builtin.INCREMENT, [], [4]),
            Goto(2),
            builtin(Builtin.COPY, [6], [3]),
            Ret((3,)),
        ],
        storages=[8, 1],
        tensors=[PlannedTensor(0, 0, "int64", ()), PlannedTensor(1, 0, "bool", ())],
        dynamics=[DynamicTensor(F32, (N, 4)), DynamicTensor(F32, (N, 4))],
    )
    return executable_of(function)


def test_loops_over_dynamic_registers(native: NativeLibrary, tmp_path: Path) -> None:
    executable = counting()
    verify(executable.program)
    going = np.array(True)
    calls = [[draw(n, 4), np.array(trips), going] for n in (2, 0) for trips in (0, 1, 5)]
    check_calls(executable, native, tmp_path, "main", [*calls, [draw(2, 4), np.array(4), np.array(False)]])


def test_a_long_loop_ends(native: NativeLibrary, tmp_path: Path) -> None:
    """A loop longer than the executor's pauses of a tenth of a second."""
    program = load_saved(counting(), native, tmp_path)
    (found,) = program["main"](np.zeros((1, 4), np.float32), np.array(300_000), np.array(True))
    np.testing.assert_array_equal(found, np.full((1, 4), 300_000, np.float32))


def test_bools_of_any_byte_are_true(native: NativeLibrary, tmp_path: Path) -> None:
    going = np.array([2, 255, 0], np.uint8).view(np.bool_)
    function = function_of([spec("x", 3, dtype="bool")], [spec("y", 3, dtype="bool")], [
        builtin(Builtin.COPY, [0], [1]), Ret((1,))
    ])  # fmt: skip
    executable = executable_of(function)
    (expected,) = results_of(VirtualMachine(executable), "main", [going])
    (found,) = load_saved(executable, native, tmp_path)["main"](going)
    assert found.tobytes() == expected.tobytes() == b"\1\1\0"
    assert going.tobytes() == b"\2\xff\0"


def test_a_failing_callee_is_named(native: NativeLibrary, tmp_path: Path) -> None:
    executable = executable_of(*nested())
    inputs = draw(3, 4)
    inputs[1, 0] = -1
    with pytest.raises(ByocError) as expected:
        VirtualMachine(executable)["main"](inputs)
    assert "function `inner`, instruction 0" in str(expected.value)
    program = load_saved(executable, native, tmp_path)
    for _ in range(2):  # a failed call leaves nothing behind
        with pytest.raises(NativeError) as caught:
            program["main"](inputs)
        assert caught.value.status is Status.EXECUTION
        assert str(caught.value) == (
            "function `inner`, instruction 0 (call_dps_packed `advance` of runtime `csource`): failed: "
            "function `advance`: row 1 is negative"
        )
    assert_same_bits(program["main"](np.abs(inputs)), results_of(VirtualMachine(executable), "main", [np.abs(inputs)]))


def test_copies_need_equal_shapes(native: NativeLibrary, tmp_path: Path) -> None:
    """Between planned memory, and between dynamic registers."""
    rows = spec("", "m").shape[0]
    function = function_of(
        [spec("x", "n", 4), spec("y", "m", 4)],
        [spec("z", "m", 4)],
        [builtin(Builtin.COPY, [0], [2]), Ret((2,))],
    )
    dynamic = function_of(
        [spec("x", "n", 4), spec("y", "m", 4)],
        [spec("z", "m", 4)],
        [
            builtin(Builtin.ALLOCATE, [], [3]),
            builtin(Builtin.COPY, [0], [3]),
            builtin(Builtin.COPY, [3], [2]),
            Ret((2,)),
        ],
        dynamics=[DynamicTensor(F32, (rows, 4))],
    )
    for index, code in enumerate((function, dynamic)):
        native_function = load_saved(executable_of(code), native, tmp_path)["main"]
        assert_same_bits(native_function(draw(3, 4), draw(3, 4)), [draw(3, 4)])
        with pytest.raises(NativeError) as caught:
            native_function(draw(3, 4), draw(2, 4))
        assert str(caught.value) == (
            f"function `main`, instruction {index} (call_builtin `copy`): failed: "
            "copy: the shapes differ; got [3, 4], expected [2, 4]"
        )
        assert caught.value.status is Status.EXECUTION


def test_missing_memory_is_reported(native: NativeLibrary, tmp_path: Path) -> None:
    huge = 1 << 50
    copy: list[Instruction] = [builtin(Builtin.COPY, [0], [1]), Ret((1,))]
    for n, storages, problem in (
        (4, [], "function `main`: 18014398509481984 bytes cannot be allocated"),
        (1 << 20, [], "function `main`: a tensor of shape [1048576, 1125899906842624] does not fit into memory"),
        (4, [huge * N], "function `main`: 4503599627370496 bytes for intermediates cannot be allocated"),
        (1 << 12, [huge * N], "function `main`: the intermediates do not fit into memory"),
    ):
        results = [spec("y", "n")] if storages else [spec("y", "n", huge)]
        code: list[Instruction] = copy if storages else [Ret((1,))]
        function = function_of([spec("x", "n")], results, code, storages=storages)
        native_function = load_saved(executable_of(function), native, tmp_path)["main"]
        with pytest.raises(NativeError) as caught:
            native_function(np.ones(n, np.float32))
        assert str(caught.value).startswith(problem), str(caught.value)
        assert caught.value.status is Status.MEMORY


def unfit_arguments() -> Sequence[tuple[Any, ...]]:
    """Return wrong arguments of a function of ``x: float32[n, 4]`` and ``y: float32[2*n, 4]``."""
    x, y = draw(2, 4), draw(4, 4)
    return (
        (x.astype(np.float64), y),
        (x, y.astype(np.float16)),
        (x[0], y),
        (x, y[..., None]),
        (draw(2, 5), y),
        (x, draw(5, 4)),
        (x, draw(6, 4)),
        (draw(0, 4), y),
    )


@pytest.mark.parametrize("arguments", unfit_arguments())
def test_unfit_arguments_are_reported_as_by_python(
    native: NativeLibrary, tmp_path: Path, arguments: tuple[Any, ...]
) -> None:
    function = function_of([spec("x", "n", 4), spec("y", "2*n", 4)], [spec("z", "n", 4)], [advance(0, 2), Ret((2,))])
    executable = executable_of(function)
    with pytest.raises(ByocError) as expected:
        VirtualMachine(executable)["main"](*arguments)
    program = load_saved(executable, native, tmp_path)
    with pytest.raises(NativeError) as caught:
        program["main"](*arguments)
    assert str(caught.value) == str(expected.value)
    assert caught.value.status is Status.CALL
    program["main"](draw(2, 4), draw(4, 4))


def test_wrong_counts_are_reported(native: NativeLibrary, tmp_path: Path) -> None:
    function = load_saved(joined(), native, tmp_path)["main"]
    for inputs in ([], [draw(2, 4)] * 2):
        with pytest.raises(NativeError, match=f"wrong number of inputs; got {len(inputs)}, expected 1"):
            function(*inputs)
    with pytest.raises(NativeError, match="wrong number of outputs; got 0, expected 1"):
        function.run_into([draw(2, 4)], [])


def test_a_missing_function_cannot_be_called(native: NativeLibrary) -> None:
    with pytest.raises(NativeError, match="function: is a null pointer"):
        native.check(native.c_run(None, None, 0, None, 0))
    with pytest.raises(NativeError, match="function: is a null pointer"):
        native.check(native.c_run_into(None, None, 0, None, 0))


def test_outputs_share_no_memory(native: NativeLibrary, tmp_path: Path) -> None:
    function = function_of(
        [spec("x", "n", 4)], [spec("y", "n", 4), spec("z", "n", 4)], [advance(0, 1), advance(1, 2), Ret((1, 2))]
    )
    native_function = load_saved(executable_of(function), native, tmp_path)["main"]
    memory = draw(12, 4)
    x, y, z = memory[:4], memory[4:8], memory[8:]
    expected = x + np.float32(1), x + np.float32(1) + np.float32(1)
    native_function.run_into([x], [y, z])
    assert_same_bits((y, z), expected)
    for outputs, other in (
        ([memory[3:7], z], "input 0 `x`"),
        ([y, memory[5:9]], "output 0 `y`"),
        ([y, x], "input 0 `x`"),
    ):
        with pytest.raises(NativeError, match=f"shares memory with {other}") as caught:
            native_function.run_into([x], outputs)
        assert caught.value.status is Status.CALL
    backwards = memory[3::-1]  # strides below zero: the memory of x
    with pytest.raises(NativeError, match="shares memory with input 0 `x`"):
        native_function.run_into([backwards], [memory[:4], z])


@pytest.mark.parametrize("num_threads", [0, 1, 2])
def test_threads_see_nothing_of_each_other(native: NativeLibrary, tmp_path: Path, num_threads: int) -> None:
    executable = executable_of(*nested())
    executable.save(tmp_path / "model.byoc")
    function = native.load(tmp_path / "model.byoc", num_threads=num_threads)["main"]
    failures: list[object] = []
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        barrier.wait()
        try:
            for round_ in range(50):
                x = np.full((1 + (number + round_) % 5, 4), number, np.float32)
                if round_ % 10 == 9:
                    x[0, 0] = -1 - number
                    with pytest.raises(NativeError, match="row 0 is negative"):
                        function(x)
                    continue
                y, z = function(x)
                np.testing.assert_array_equal(y, x + 1)
                np.testing.assert_array_equal(z, x + 2)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_number_of_threads_is_checked(native: NativeLibrary, tmp_path: Path) -> None:
    joined().save(tmp_path / "model.byoc")
    for number in (-1, 1025):
        with pytest.raises(
            NativeError, match=f"option `num_threads`: value not permitted; got {number}, expected 0 to"
        ):
            native.load(tmp_path / "model.byoc", num_threads=number)


TEAM = """\
#include <dlfcn.h>
#include "byoc_ffi.h"
#include "byoc_parallel.h"
/* y = the number of threads of OpenMP for this thread. */
BYOC_EXPORT int32_t __tvm_ffi_team(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)handle, (void)num_args, (void)result;
  void *library = dlopen("libgomp.so.1", RTLD_NOW);
  int (*max_threads)(void) = library ? (int (*)(void))dlsym(library, "omp_get_max_threads") : 0;
  *(int64_t *)byoc_data((const DLTensor *)args[0].v_ptr) = max_threads ? max_threads() : -1;
  return 0;
}
"""


def test_calls_have_the_number_of_threads(native: NativeLibrary, tmp_path: Path) -> None:
    try:
        openmp = ctypes.CDLL("libgomp.so.1")
    except OSError:
        pytest.skip("no libgomp")
    signature = Signature((), (spec("y", dtype="int64"),))
    function = function_of([], [spec("y", dtype="int64")], [call(CallKind.EXTERN, 0, [], [0]), Ret((0,))])
    for text, is_parallel in ((TEAM, True), (TEAM.replace('#include "byoc_parallel.h"', ""), False)):
        module = CSourceModule(text, {"team": signature})
        Executable(Program((function,), ("team",)), [module], is_own=True).save(tmp_path / "team.byoc")
        before = openmp.omp_get_max_threads()
        for number in (0, 3, 1, 7):
            (found,) = native.load(tmp_path / "team.byoc", num_threads=number)["main"]()
            assert found == (number if number and is_parallel else before)
            assert openmp.omp_get_max_threads() == before
