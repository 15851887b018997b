"""Calls made by the C extension from start to end: changing sizes, and steps of Python between native steps."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import parse_dim
from byoc_core.errors import CallError, ExecutionError
from byoc_core.runtime.extension import extension, extension_status
from byoc_core.runtime.module import NDArray, PackedFunction, TensorSpec
from byoc_core.vm import Builtin, Call, ConstantRef, PlannedTensor, Program, Ret, VirtualMachine, VMFunction
from byoc_core.vm.linked_function import LinkedFunction
from byoc_core.vm.program import View

from core.tests.vm.native_functions import native_function
from core.tests.vm.programs import Executable
from core.tests.vm.test_call_list import BUILTIN, EXTERN, QUADRUPLE, Permissive, X, Y, add, of_one_function
from core.tests.vm.test_call_list import ones as counted

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(extension() is None, reason=extension_status()[1] or "it is there"),
]
BOTH_WAYS = pytest.mark.parametrize("native", [True, False])
DOUBLE_AND_NEGATE = (Call(EXTERN, 0, (0, 0), (2,)), Call(EXTERN, 1, (2,), (1,)), Ret((1,)))


def negate(x: NDArray, out: NDArray) -> None:
    np.negative(x, out=out)


def tensor(name: str, *shape: int | str) -> TensorSpec:
    return TensorSpec(name, "float32", tuple(parse_dim(str(dim)) for dim in shape))


@pytest.fixture
def slow_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions run by Python, in order."""
    names: list[str] = []
    run = LinkedFunction._run_in_frame

    def note(self: LinkedFunction, *arguments: Any) -> list[NDArray]:
        names.append(self.function.name)
        return run(self, *arguments)

    monkeypatch.setattr(LinkedFunction, "_run_in_frame", note)
    return names


def mixed(step: Callable[..., object], *, native: bool = True) -> VirtualMachine:
    """Return a machine doubling natively, then calling a Python function on the doubled value."""
    return of_one_function(
        DOUBLE_AND_NEGATE, native_function("add", add), externs={"step": step}, tensors=(X,), native=native
    )


def of_sizes(params: Sequence[TensorSpec], *, native: bool) -> VirtualMachine:
    """Return a machine adding the first parameter to itself, by way of an intermediate."""
    first = params[0]
    nbytes = parse_dim("4") if not first.shape else 4 * np.prod(np.array(first.shape, dtype=object))
    count = len(params)
    code = (
        Call(EXTERN, 0, (0, 0), (count + 1,)),
        Call(BUILTIN, Builtin.COPY, (count + 1,), (count,)),
        Ret((count,)),
    )
    result = TensorSpec("y", "float32", first.shape)
    planned = PlannedTensor(0, 0, "float32", first.shape)
    main = VMFunction("main", tuple(params), (result,), (), (nbytes,), (planned,), (), code)
    executable = Executable(Program((main,), ("add",)), [Permissive(add=native_function("add", add))])
    return VirtualMachine(executable, native=native)


def test_changing_sizes_are_left_to_the_extension(slow_calls: list[str]) -> None:
    vm = of_one_function(QUADRUPLE, native_function("add", add), tensors=(X,))
    y = np.empty(4, np.float32)
    for size in (3, 5, 3, 0, 1000, 4):
        np.testing.assert_array_equal(vm["main"](counted(size)), 4 * counted(size))
    assert vm.run("main", {"x": counted(4)}, {"y": y}) is y
    np.testing.assert_array_equal(y, 4 * counted(4))
    assert slow_calls == []


@pytest.mark.parametrize(
    ("params", "right", "wrong", "text"),
    [
        (
            [tensor("x", "n", "n")],
            [(2, 2), (3, 3), (0, 0)],
            [(2, 3)],
            "input 0 `x`: axis 1 has the wrong size; got [2, 3], expected [n, n] with n = 2",
        ),
        (
            [tensor("x", "2*n+1")],
            [(1,), (7,)],
            [(4,)],
            "input 0 `x`: axis 0 has the wrong size; got [4], expected [2*n+1]",
        ),
        (
            [tensor("x", "n+3")],
            [(3,), (7,)],
            [(2,)],
            "input 0 `x`: axis 0 has the wrong size; got [2], expected [n+3]",
        ),
        (
            [tensor("x", "n//2", "n")],
            [(2, 4), (2, 5), (0, 1)],
            [(3, 5)],
            "input 0 `x`: axis 0 has the wrong size; got [3, 5], expected [n//2, n] with n = 5",
        ),
    ],
)
@BOTH_WAYS
def test_sizes_are_read_and_checked(
    native: bool, params: list[TensorSpec], right: list[tuple[int, ...]], wrong: list[tuple[int, ...]], text: str
) -> None:
    vm = of_sizes(params, native=native)
    for _ in range(2):
        for shape in right:
            x = np.ones(shape, np.float32)
            np.testing.assert_array_equal(vm["main"](x), 2 * x)
        for shape in wrong:
            with pytest.raises(CallError) as caught:
                vm["main"](np.ones(shape, np.float32))
            assert str(caught.value) == f"function `main`, {text}"


@BOTH_WAYS
def test_a_symbol_that_no_axis_tells_by_itself(native: bool, slow_calls: list[str]) -> None:
    """``m`` is the rest of a sum after ``n``, ``k`` stays unknown."""
    params = [tensor("x", "n+m"), tensor("z", "n"), tensor("w", "k*m")]
    vm = of_sizes(params, native=native)
    for n, m, w in ((2, 3, 6), (1, 0, 0), (2, 3, 6)):
        x, z, rest = (np.ones(size, np.float32) for size in (n + m, n, w))
        np.testing.assert_array_equal(vm["main"](x, z, rest), 2 * x)
        np.testing.assert_array_equal(vm.bind("main", {"x": x, "z": z, "w": rest})(), 2 * x)
    assert set(slow_calls) == {"main"}


@BOTH_WAYS
def test_steps_of_python_see_what_they_would(native: bool, slow_calls: list[str]) -> None:
    """Of an input, a constant, a result, views: dtype, shape, strides, writability."""
    seen: list[Any] = []

    def look(*arrays: NDArray) -> None:
        seen.append([(a.dtype, a.shape, a.strides, a.flags.writeable, a.flags.c_contiguous) for a in arrays])
        assert all(type(array) is np.ndarray and array.flags.aligned for array in arrays)
        for array in arrays[-2:]:
            array[...] = 1

    x, y, constant, planned, x_column, constant_row, left, right = range(8)
    main = VMFunction(
        "main",
        (tensor("x", "n", 2),),
        (tensor("y", "n", 2),),
        (0,),
        (parse_dim("8*n"),),
        (PlannedTensor(0, 0, "float32", (parse_dim("n"), 2)),),
        (),
        (
            Call(EXTERN, 0, (x, x), (planned,)),
            Call(EXTERN, 1, (x, constant, x_column, constant_row, right), (left, y)),
            Call(EXTERN, 0, (planned, planned), (y,)),
            Ret((y,)),
        ),
        (
            View(x, 4, "float32", (parse_dim("n"),), (2,)),
            View(constant, 12, "float32", (3,)),
            View(planned, 0, "float32", (parse_dim("n"),), (2,)),
            View(planned, 4, "float32", (parse_dim("n"),), (2,)),
        ),
    )
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    program = Program((main,), ("add", "look"), (ConstantRef("0" * 64, "float32", (2, 3)),))
    module = Permissive(add=native_function("add", add), look=PackedFunction("look", look))
    vm = VirtualMachine(Executable(program, [module], {"0" * 64: values}), native=native)
    f32 = np.dtype(np.float32)
    for size in (3, 3, 1, 4):
        given = np.arange(2 * size, dtype=np.float32).reshape(size, 2)
        given.flags.writeable = size != 4
        expected = np.stack([np.full(size, 2), 4 * given[:, 1]], axis=1)
        x_like, column = ((size, 2), (8, 4)), ((size,), (8,))
        is_compact = size == 1  # numpy's word for a column of one element
        for call in (partial(vm["main"], given), vm.bind("main", {"x": given})):
            np.testing.assert_array_equal(call(), expected)
            assert seen.pop() == [
                (f32, *x_like, size != 4, True),
                (f32, (2, 3), (12, 4), False, True),
                (f32, *column, size != 4, is_compact),
                (f32, (3,), (4,), False, True),
                (f32, *column, True, is_compact),
                (f32, *column, True, is_compact),
                (f32, *x_like, True, True),
            ]
    assert (slow_calls == []) == native


@BOTH_WAYS
def test_native_calls_write_into_parts_of_a_result(native: bool, slow_calls: list[str]) -> None:
    size = (parse_dim("n"),)
    code = (Call(EXTERN, 0, (0, 0), (2,)), Call(EXTERN, 0, (2, 0), (3,)), Ret((1,)))
    views = View(1, 0, "float32", size), View(1, parse_dim("4*n"), "float32", size)
    main = VMFunction("main", (tensor("x", "n"),), (tensor("y", "2*n"),), (), (), (), (), code, views)
    vm = VirtualMachine(
        Executable(Program((main,), ("add",)), [Permissive(add=native_function("add", add))]), native=native
    )
    for count in (3, 1, 0, 3):
        x = counted(count)
        for call in (partial(vm["main"], x), vm.bind("main", {"x": x})):
            np.testing.assert_array_equal(call(), np.concatenate([2 * x, 3 * x]))
    assert (slow_calls == []) == native


@BOTH_WAYS
def test_a_step_of_python_fails_with_its_place(native: bool) -> None:
    def step(x: NDArray, out: NDArray) -> None:
        if x[0] < 0:
            raise ValueError("no luck")
        negate(x, out)

    vm = mixed(step, native=native)
    bound = vm.bind("main", {"x": -counted(3)})
    for _ in range(2):
        np.testing.assert_array_equal(vm["main"](counted(3)), -2 * counted(3))
        for call in (lambda: vm["main"](-counted(3)), bound):
            with pytest.raises(ExecutionError) as caught:
                call()
            assert str(caught.value) == (
                "function `main`, instruction 1 (call_dps_packed `step`): failed with ValueError: no luck"
            )
            cause = caught.value.__cause__
            assert isinstance(cause, ValueError)
            assert cause.__traceback__ is not None


@BOTH_WAYS
def test_an_interruption_in_a_step_of_python_stays_one(native: bool) -> None:
    def step(x: NDArray, out: NDArray) -> None:
        raise KeyboardInterrupt

    vm = mixed(step, native=native)
    for call in (lambda: vm["main"](counted(3)), vm.bind("main", {"x": counted(3)})):
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                call()


@BOTH_WAYS
def test_a_step_of_python_may_call_the_machine_and_keep_its_arrays(native: bool) -> None:
    kept: list[NDArray] = []

    def step(x: NDArray, out: NDArray) -> None:
        kept.append(x)
        if len(x) < 200:
            np.testing.assert_array_equal(vm["main"](counted(len(x) * 50)), -2 * counted(len(x) * 50))
        negate(x, out)

    vm = mixed(step, native=native)
    for size in (4, 4, 5):
        np.testing.assert_array_equal(vm["main"](counted(size)), -2 * counted(size))
    assert [array.size for array in kept] == [4, 200, 4, 200, 5, 250]
    for array in kept:
        array.copy()  # the memory is still there


@BOTH_WAYS
def test_a_bound_call_inside_its_own_step_fails(native: bool) -> None:
    seen: list[str] = []

    def step(x: NDArray, out: NDArray) -> None:
        with pytest.raises(RuntimeError) as caught:
            bound()
        seen.append(str(caught.value))
        negate(x, out)

    bound = mixed(step, native=native).bind("main", {"x": counted(3)})
    np.testing.assert_array_equal(bound(), -2 * counted(3))
    assert seen == ["a bound function cannot be called inside itself in one thread"]


def test_arguments_are_let_go_of_after_a_call() -> None:
    vm = mixed(negate)
    x = counted(3)
    y = vm["main"](x)
    assert isinstance(y, np.ndarray)
    gone = [weakref.ref(x), weakref.ref(y)]
    del x, y
    assert [reference() for reference in gone] == [None, None]


def test_a_machine_with_steps_of_python_is_collected() -> None:
    def use() -> weakref.ref[LinkedFunction]:
        def step(x: NDArray, out: NDArray) -> None:
            assert vm.functions == ("main",)
            negate(x, out)

        vm = mixed(step)
        vm["main"](counted(3))
        bound = vm.bind("main", {"x": counted(3)})
        bound()
        return weakref.ref(vm["main"]._linked)

    gone = use()
    gc.collect()
    assert gone() is None


def test_threads_with_different_sizes_and_steps_of_python() -> None:
    vm = mixed(negate)
    wrong: list[int] = []

    def call(size: int) -> None:
        for number in range(200):
            x = counted(size + number % 3)
            if not np.array_equal(vm["main"](x), -2 * x):
                wrong.append(size)

    threads = [threading.Thread(target=call, args=(size,)) for size in (1, 20, 300, 4000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@BOTH_WAYS
def test_an_arena_of_a_size_that_is_too_large_is_told_and_forgotten(native: bool) -> None:
    x, y = TensorSpec("x", "float32", (parse_dim("n"),)), Y
    huge = parse_dim("n * 2305843009213693952 // 4")
    main = VMFunction(
        "main",
        (x,),
        (y,),
        (),
        (huge,),
        (PlannedTensor(0, 0, "uint8", (huge,)),),
        (),
        (Call(EXTERN, 0, (0, 0), (1,)), Ret((1,))),
    )
    vm = VirtualMachine(
        Executable(Program((main,), ("add",)), [Permissive(add=native_function("add", add))]), native=native
    )
    for _ in range(2):
        np.testing.assert_array_equal(vm["main"](counted(0)), counted(0))
        with pytest.raises(ExecutionError) as caught:
            vm["main"](counted(3))
        assert str(caught.value) == (f"function `main`: {3 * 2**61 // 4} bytes for intermediates cannot be allocated")


@BOTH_WAYS
def test_a_storage_of_a_negative_size_is_told(native: bool) -> None:
    """Otherwise later storages would lie before the arena."""
    planned = PlannedTensor(1, 0, "float32", X.shape)
    storages = parse_dim("n-1000"), parse_dim("4*n")
    code = (Call(EXTERN, 0, (0, 0), (2,)), Call(EXTERN, 0, (2, 2), (1,)), Ret((1,)))
    main = VMFunction("main", (X,), (Y,), (), storages, (planned,), (), code)
    vm = VirtualMachine(
        Executable(Program((main,), ("add",)), [Permissive(add=native_function("add", add))]), native=native
    )
    for call in (partial(vm["main"], counted(3)), lambda: vm.bind("main", {"x": counted(3)})):
        with pytest.raises(CallError) as caught:
            call()
        assert str(caught.value) == "function `main`: size n-1000 is negative; got -997"
    np.testing.assert_array_equal(vm["main"](counted(1000)), 4 * counted(1000))


@BOTH_WAYS
def test_nothing_is_no_output(native: bool) -> None:
    vm = of_one_function(QUADRUPLE, native_function("add", add), tensors=(X,), native=native)
    with pytest.raises(CallError) as caught:
        vm.run("main", {"x": counted(3)}, {"y": None})
    assert str(caught.value) == (
        "function `main`, output 0 `y`: is not an array; "
        "got NoneType, expected a numpy array or an object with __dlpack__"
    )


def test_outputs_may_be_given_in_part() -> None:
    code = (Call(EXTERN, 0, (0, 0), (1,)), Call(EXTERN, 0, (1, 1), (2,)), Ret((1, 2)))
    results = (TensorSpec("y", "float32", X.shape), TensorSpec("z", "float32", X.shape))
    vm = of_one_function(code, native_function("add", add), results=results)
    given: Mapping[str, NDArray] = {"z": np.empty(3, np.float32)}
    y, z = vm.run("main", {"x": counted(3)}, given)
    assert z is given["z"]
    np.testing.assert_array_equal(y, 2 * counted(3))
    np.testing.assert_array_equal(z, 4 * counted(3))
