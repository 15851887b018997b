"""Native calls in one go: behaviour of the C extension beyond the tests of the machine with both kinds of calls."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import parse_dim
from byoc_core.errors import CallError, ExecutionError
from byoc_core.runtime.extension import extension, extension_status
from byoc_core.runtime.module import CallTraits, NDArray, PackedFunction, RuntimeModule, TensorSpec
from byoc_core.vm import (
    Builtin,
    Call,
    CallKind,
    DynamicTensor,
    Goto,
    If,
    PlannedTensor,
    Program,
    Ret,
    VirtualMachine,
    VMFunction,
)
from byoc_core.vm.program import View, nbytes_of
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.vm.native_functions import native_function
from core.tests.vm.programs import Executable

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(extension() is None, reason=extension_status()[1] or "it is there"),
]

EXTERN, PACKED, BUILTIN = CallKind.EXTERN, CallKind.PACKED, CallKind.BUILTIN
n, k = parse_dim("n"), parse_dim("k")
X = TensorSpec("x", "float32", (n,))
Y = TensorSpec("y", "float32", (n,))


class Module(RuntimeModule):
    type_key = "fake"

    def __init__(self, **functions: PackedFunction) -> None:
        self._functions = functions

    @property
    def function_names(self) -> tuple[str, ...]:
        return tuple(self._functions)

    def find_function(self, name: str) -> PackedFunction:
        return self._functions[name]


def add(x: NDArray, y: NDArray, out: NDArray) -> None:
    np.add(x, y, out=out)


def fail(*arrays: NDArray) -> None:
    raise ValueError("no luck")


def of_one_function(
    code: Sequence[Any],
    *functions: PackedFunction,
    externs: Mapping[str, Callable[..., object]] | None = None,
    results: Sequence[TensorSpec] = (Y,),
    tensors: Sequence[TensorSpec] = (),
    dynamics: Sequence[DynamicTensor] = (),
    native: bool = True,
) -> VirtualMachine:
    """Return a machine with a single function of `x`; the symbols are the functions', then the externs'."""
    main = VMFunction(
        "main",
        (X,),
        tuple(results),
        (),
        tuple(nbytes_of(spec.shape, spec.dtype) for spec in tensors),
        tuple(PlannedTensor(index, 0, spec.dtype, spec.shape) for index, spec in enumerate(tensors)),
        tuple(dynamics),
        tuple(code),
    )
    given = externs or {}
    program = Program((main,), (*(function.name for function in functions), *given))
    executable = Executable(program, [Module(**{function.name: function for function in functions})])
    return VirtualMachine(executable, externs=given, native=native)


QUADRUPLE = (Call(EXTERN, 0, (0, 0), (2,)), Call(EXTERN, 0, (2, 2), (1,)), Ret((1,)))


def ones(size: int) -> NDArray:
    return np.arange(size, dtype=np.float32) + 1


def test_python_is_not_called_between_native_calls() -> None:
    def refuse(*arrays: NDArray) -> None:
        raise AssertionError("called by Python")

    function = native_function("add", add)
    function.impl = refuse
    vm = of_one_function(QUADRUPLE, function, tensors=(X,))
    for size in (3, 3, 5, 0, 3):
        np.testing.assert_array_equal(vm["main"](ones(size)), 4 * ones(size))
    with pytest.raises(ExecutionError, match="called by Python"):
        of_one_function(QUADRUPLE, function, tensors=(X,), native=False)["main"](ones(3))


def test_a_failure_names_function_instruction_symbol_and_runtime() -> None:
    code = (Call(EXTERN, 0, (0, 0), (2,)), Call(EXTERN, 1, (2,), (1,)), Ret((1,)))
    vm = of_one_function(code, native_function("add", add), native_function("fail", fail), tensors=(X,))
    text = (
        "function `main`, instruction 1 (call_dps_packed `fail` of runtime `fake`): failed with ExecutionError: "
        "status 7, ValueError: no luck"
    )
    y = np.empty(3, np.float32)
    bound = vm.bind("main", {"x": ones(3)}, {"y": y})
    for call in (
        lambda: vm["main"](ones(3)),
        lambda: vm["main"](ones(3)),
        lambda: vm.run("main", {"x": ones(3)}, {"y": y}),
        bound,
        bound,
    ):
        with pytest.raises(ExecutionError) as caught:
            call()
        assert str(caught.value) == text
        assert isinstance(caught.value.__cause__, ExecutionError)


def test_calls_go_on_after_a_failure() -> None:
    def positive(x: NDArray, out: NDArray) -> None:
        if (x < 0).any():
            raise ValueError("negative")
        np.sqrt(x, out=out)

    vm = of_one_function((Call(EXTERN, 0, (0,), (1,)), Ret((1,))), native_function("positive", positive))
    for _ in range(3):
        with pytest.raises(ExecutionError, match="negative"):
            vm["main"](-ones(2))
        np.testing.assert_array_equal(vm["main"](ones(2)), np.sqrt(ones(2)))


def test_python_steps_between_native_calls() -> None:
    code = (
        Call(EXTERN, 0, (0, 0), (2,)),
        Call(EXTERN, 1, (2,), (3,)),
        Call(EXTERN, 0, (3, 3), (1,)),
        Ret((1,)),
    )
    seen: list[int] = []

    def negate(x: NDArray, out: NDArray) -> None:
        seen.append(len(x))
        np.negative(x, out=out)

    vm = of_one_function(code, native_function("add", add), externs={"negate": negate}, tensors=(X, X))
    for size in (4, 4, 7, 0):
        np.testing.assert_array_equal(vm["main"](ones(size)), -4 * ones(size))
    assert seen == [4, 4, 7, 0]


def test_sizes_that_only_running_tells_stay_with_python() -> None:
    """Doubles natively, drops values over 4 in Python, and copies the rest into a buffer made on the way."""
    found = DynamicTensor("float32", (k,), ("k",))
    code = (
        Call(EXTERN, 0, (0, 0), (2,)),
        Call(PACKED, 1, (2,), (3,)),
        Call(BUILTIN, Builtin.ALLOCATE, (), (4,)),
        Call(BUILTIN, Builtin.COPY, (3,), (4,)),
        Ret((4,)),
    )
    vm = of_one_function(
        code,
        native_function("add", add),
        externs={"small": lambda x: x[x <= 4]},
        results=(TensorSpec("y", "float32", (k,)),),
        tensors=(X,),
        dynamics=(found, DynamicTensor("float32", (k,))),
    )
    for _ in range(2):
        np.testing.assert_array_equal(vm["main"](ones(5)), [2, 4])
    with pytest.raises(CallError) as caught:
        vm.bind("main", {"x": ones(5)})
    assert str(caught.value) == "function `main`: cannot be bound: the size of result `y` is known only after a run"


def test_jumps_are_native() -> None:
    """`y` is `x`, doubled while a test holds, at most three times: a loop invisible to Python."""
    scalar, flag = TensorSpec("i", "int64", ()), TensorSpec("b", "bool", ())
    x, y, doubled, i, most, keep, go = range(7)
    code = (
        Call(BUILTIN, Builtin.COPY, (x,), (y,)),
        Call(BUILTIN, Builtin.ZERO, (), (i,)),
        Call(EXTERN, 2, (x,), (most, keep)),
        Call(BUILTIN, Builtin.LOOP_TEST, (i, most, keep), (go,)),
        If(go, 9),
        Call(EXTERN, 0, (y, y), (doubled,)),
        Call(EXTERN, 1, (doubled,), (y, keep)),
        Call(BUILTIN, Builtin.INCREMENT, (), (i,)),
        Goto(3),
        Ret((y,)),
    )

    def test(value: NDArray, out: NDArray, keep: NDArray) -> None:
        out[...] = value
        keep[...] = value.max(initial=0) < 20

    def begin(value: NDArray, most: NDArray, keep: NDArray) -> None:
        most[...], keep[...] = 3, True

    functions = [native_function("add", add), native_function("test", test), native_function("begin", begin)]
    for function in functions:
        function.impl = fail
    vm = of_one_function(code, *functions, tensors=(X, scalar, scalar, flag, flag))
    for value, times in ((1, 8), (3, 8), (5, 4), (15, 2), (15, 2)):
        np.testing.assert_array_equal(vm["main"](np.full(2, value, np.float32)), np.full(2, value * times, np.float32))


@settings(deadline=None)
@given(st.data())
def test_any_mix_of_native_and_python_calls_gives_the_same(data: st.DataObject) -> None:
    """Straight-line programs; every call reads two earlier values and writes a separate tensor."""
    operations = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}
    length = data.draw(st.integers(1, 8))
    names = [f"{data.draw(st.sampled_from(sorted(operations)))}_{index}" for index in range(length)]
    is_native = data.draw(st.lists(st.booleans(), min_size=length, max_size=length))

    def operation(name: str) -> Callable[..., Any]:
        ufunc = operations[name.partition("_")[0]]
        return lambda left, right, out: ufunc(left, right, out=out)

    # Registers: x, y, then a tensor for each call but the last, which writes y.
    reads = [data.draw(st.tuples(*[st.sampled_from([0, *range(2, 2 + index)])] * 2)) for index in range(length)]
    writes = [*range(2, 1 + length), 1]
    functions = [
        native_function(name, operation(name)) for name, native in zip(names, is_native, strict=True) if native
    ]
    externs = {name: operation(name) for name, native in zip(names, is_native, strict=True) if not native}
    order = [*(function.name for function in functions), *externs]
    code = [
        Call(EXTERN, order.index(name), read, (write,)) for name, read, write in zip(names, reads, writes, strict=True)
    ]
    vm = of_one_function([*code, Ret((1,))], *functions, externs=externs, tensors=[X] * (length - 1))
    for size in data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)):
        x = ones(size)
        values: dict[int, NDArray] = {0: x}
        for name, (left, right), write in zip(names, reads, writes, strict=True):
            values[write] = np.empty_like(x)
            operation(name)(values[left], values[right], values[write])
        np.testing.assert_array_equal(vm["main"](x), values[1])


class Permissive(Module):
    def call_traits(self, name: str) -> CallTraits:
        return CallTraits(strided=True)


def test_views_are_set_with_what_they_are_views_of() -> None:
    """Columns of an input are doubled into columns of the result and of a tensor, added later row by row."""
    pair = TensorSpec("x", "float32", (n, 2))
    column = (n,)
    main = VMFunction(
        "main",
        (pair,),
        (TensorSpec("y", "float32", (n, 2)),),
        (),
        (8 * n,),
        (PlannedTensor(0, 0, "float32", (n, 2)),),
        (),
        (
            Call(EXTERN, 0, (3, 3), (5,)),  # left column of x, doubled, into the tensor's right one
            Call(EXTERN, 0, (4, 4), (6,)),  # the other way round
            Call(EXTERN, 0, (5, 3), (7,)),
            Call(BUILTIN, Builtin.COPY, (6,), (8,)),
            Ret((1,)),
        ),
        (
            View(0, 0, "float32", column, (2,)),
            View(0, 4, "float32", column, (2,)),
            View(2, 4, "float32", column, (2,)),
            View(2, 0, "float32", column, (2,)),
            View(1, 0, "float32", column, (2,)),
            View(1, 4, "float32", column, (2,)),
        ),
    )
    program = Program((main,), ("add",))
    function = native_function("add", add)
    for native in (True, False):
        function.impl = fail if native else add
        vm = VirtualMachine(Executable(program, [Permissive(add=function)]), native=native)
        for size in (3, 3, 1, 0, 4):
            x = ones(2 * size).reshape(size, 2)
            expected = np.stack([3 * x[:, 0], 2 * x[:, 1]], axis=1)
            np.testing.assert_array_equal(vm["main"](x), expected)
            y = np.empty_like(x)
            bound = vm.bind("main", {"x": x}, {"y": y})
            x += 1
            bound()
            np.testing.assert_array_equal(y, np.stack([3 * x[:, 0], 2 * x[:, 1]], axis=1))


def test_threads_have_frames_of_their_own() -> None:
    at_once = threading.Barrier(4, timeout=60)

    def slow(x: NDArray, y: NDArray, out: NDArray) -> None:
        at_once.wait()
        np.add(x, y, out=out)

    vm = of_one_function(QUADRUPLE, native_function("add", slow), tensors=(X,))
    results: dict[int, NDArray] = {}

    def call(number: int) -> None:
        results[number] = vm["main"](np.full(3, number, np.float32))  # type: ignore[assignment]

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: array.tolist() for number, array in results.items()} == {i: [4.0 * i] * 3 for i in range(4)}


def test_threads_with_different_sizes() -> None:
    vm = of_one_function(QUADRUPLE, native_function("add", add), tensors=(X,))
    wrong: list[int] = []

    def call(size: int) -> None:
        for _ in range(200):
            result = vm["main"](ones(size))
            if not np.array_equal(result, 4 * ones(size)):
                wrong.append(size)

    threads = [threading.Thread(target=call, args=(size,)) for size in (1, 2, 3, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_machine_is_collected() -> None:
    function = native_function("add", add)
    vm = of_one_function(QUADRUPLE, function, tensors=(X,))
    vm["main"](ones(3))
    bound = vm.bind("main", {"x": ones(3)})
    bound()
    gone = weakref.ref(vm["main"]._linked)
    del vm, bound
    gc.collect()
    assert gone() is None


def test_results_are_fresh_and_a_bound_call_keeps_its_own() -> None:
    vm = of_one_function(QUADRUPLE, native_function("add", add), tensors=(X,))
    first, second = vm["main"](ones(3)), vm["main"](ones(3))
    assert not np.shares_memory(first, second)
    x = ones(3)
    bound = vm.bind("main", {"x": x})
    y = bound()
    x[:] = 10
    assert bound() is y
    np.testing.assert_array_equal(y, np.full(3, 40))


def test_inputs_that_are_not_as_they_were_are_checked_and_converted() -> None:
    vm = of_one_function(QUADRUPLE, native_function("add", add), tensors=(X,))
    np.testing.assert_array_equal(vm["main"](ones(4)), 4 * ones(4))
    np.testing.assert_array_equal(vm["main"](ones(8)[::2]), 4 * ones(8)[::2])
    with pytest.raises(CallError, match="wrong dtype"):
        vm["main"](ones(4).astype(np.float64))
    with pytest.raises(CallError, match="wrong number of inputs"):
        vm["main"]()


def test_an_output_over_the_input_is_right() -> None:
    vm = of_one_function(QUADRUPLE, native_function("add", add), tensors=(X,))
    x = ones(6)
    for _ in range(2):
        vm.run("main", {"x": x[:4]}, {"y": x[1:5]})
    np.testing.assert_array_equal(x, [1, 4, 16, 32, 48, 6])


COPIED = "cannot be bound: each call would copy the array; expected a C-contiguous and aligned array"


@pytest.mark.parametrize(
    ("inputs", "out", "text"),
    [
        ({"x": ones(8)[::2]}, {}, f", input 0 `x`: {COPIED}"),
        ({"x": ones(2)}, {"y": ones(4)[::2]}, f", output 0 `y`: {COPIED}"),
        (
            {"x": ones(2)},
            {"y": ones(3)},
            ", output 0 `y`: axis 0 has the wrong size; got [3], expected [n] with n = 2",
        ),
        ({"x": ones(2)}, {"z": ones(2)}, ": has no output `z`; expected y"),
        ({}, None, ": input `x` is missing; expected x"),
    ],
)
@pytest.mark.parametrize("native", [True, False])
def test_what_cannot_be_bound(
    native: bool, inputs: Mapping[str, NDArray], out: Mapping[str, NDArray], text: str
) -> None:
    vm = of_one_function(QUADRUPLE, native_function("add", add), tensors=(X,), native=native)
    with pytest.raises(CallError) as caught:
        vm.bind("main", inputs, out)
    assert str(caught.value) == f"function `main`{text}"


@pytest.mark.parametrize("native", [True, False])
def test_a_bound_output_shares_no_memory_with_an_input(native: bool) -> None:
    vm = of_one_function(QUADRUPLE, native_function("add", add), tensors=(X,), native=native)
    x = ones(3)
    with pytest.raises(CallError) as caught:
        vm.bind("main", {"x": x}, {"y": x})
    assert str(caught.value) == "function `main`, output 0 `y`: cannot be bound: the buffer shares memory with an input"


@pytest.mark.parametrize("native", [True, False])
def test_a_bound_call_takes_no_arguments(native: bool) -> None:
    vm = of_one_function(QUADRUPLE, native_function("add", add), tensors=(X,), native=native)
    bound = vm.bind("main", {"x": ones(3)})
    with pytest.raises(TypeError):
        bound(ones(3))  # type: ignore[call-arg]
