"""Work of a machine before the first call, and work left to calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.artifact import Executable
from byoc_core.errors import CallError, ExecutionError
from byoc_core.lower import lower
from byoc_core.runtime.extension import extension
from byoc_core.runtime.module import NDArray, PackedFunction, RuntimeModule, TensorSpec
from byoc_core.runtime.serial import SerialModule
from byoc_core.runtime.threads import num_threads
from byoc_core.vm import Call, CallKind, PlannedTensor, Program, Ret, VMFunction
from byoc_core.vm.call_list import CallList
from byoc_core.vm.frame import Frame

from core.tests.vm.native_functions import native_function

pytestmark = pytest.mark.interpreter

TEXT = """
@R.ir_module
class Module:
    @R.function
    def inner(x: R.Tensor({shape}, "float32")):
        a = R.call_dps_packed("double", (x,), out_types=[R.Tensor({shape}, "float32")])
        b = R.call_dps_packed("double", (a,), out_types=[R.Tensor({shape}, "float32")])
        return b

    @R.function
    def main(x: R.Tensor({shape}, "float32")):
        a = {first}
        b = R.call_dps_packed("double", (a,), out_types=[R.Tensor({shape}, "float32")])
        return b
"""
CALL = 'R.call_dps_packed("double", (x,), out_types=[R.Tensor({shape}, "float32")])'
INNER = 'R.call(x, callee="inner")'
WAYS = [False, pytest.param(True, marks=pytest.mark.skipif(extension() is None, reason="no C extension"))]


def double(x: NDArray, out: NDArray) -> None:
    np.add(x, x, out=out)


def assert_all(result: object, value: float) -> None:
    np.testing.assert_array_equal(np.asarray(result), np.full(5, value, np.float32))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions with a frame, in order of creation."""
    names: list[str] = []

    def noting(method: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        def call(self: Any, *arguments: object) -> Any:
            names.append(name(self))
            return method(self, *arguments)

        return call

    monkeypatch.setattr(Frame, "resize", noting(Frame.resize, lambda frame: frame._linked.function.name))
    monkeypatch.setattr(CallList, "new_frame", noting(CallList.new_frame, lambda calls: calls._function.name))
    return names


def machine(shape: str, first: str = CALL, *, native: bool) -> VirtualMachine:
    program = lower(parse(TEXT.format(shape=shape, first=first.format(shape=shape))))
    function = native_function("double", double) if native else PackedFunction("double", double)
    return VirtualMachine(Executable(program, ()), externs={"double": function}, native=native)


@pytest.mark.parametrize("native", WAYS)
def test_known_sizes_leave_nothing_to_the_first_call(made: list[str], native: bool) -> None:
    vm = machine("(5,)", native=native)
    assert sorted(made) == ["inner", "main"]
    for size in (1.0, 2.0):
        assert_all(vm["main"](np.full(5, size, np.float32)), 4 * size)
        assert_all(vm.run("main", {"x": np.full(5, size, np.float32)}), 4 * size)
    assert sorted(made) == ["inner", "main"]


@pytest.mark.parametrize("native", WAYS)
def test_sizes_that_a_call_tells_are_waited_for(made: list[str], native: bool) -> None:
    vm = machine("('n',)", native=native)
    assert made == []
    assert_all(vm["main"](np.ones(5, np.float32)), 4)
    assert made == ["main"]


class Doubling(RuntimeModule):
    """A module of the function `double` recording the number of threads at preparation, and the calls."""

    type_key = "doubling"
    function_names = ("double",)

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.prepared: list[int] = []
        self.called: list[int] = []

    def find_function(self, name: str) -> PackedFunction:
        return PackedFunction(name, self._double)

    def _double(self, x: NDArray, out: NDArray) -> None:
        self.called.append(num_threads())
        double(x, out)

    def prepare(self) -> None:
        if self.fault:
            raise self.fault
        self.prepared.append(num_threads())


@pytest.mark.parametrize("is_serial", [False, True])
def test_modules_are_prepared_for_the_threads_of_a_machine(is_serial: bool) -> None:
    program, doubling = lower(parse(TEXT.format(shape="(5,)", first=CALL.format(shape="(5,)")))), Doubling()
    executable = Executable(program, (SerialModule(doubling) if is_serial else doubling,))
    for number in (1, 2, None):
        vm = VirtualMachine(executable, num_threads=number)
        assert not doubling.called
        assert_all(vm["main"](np.ones(5, np.float32)), 4)
        assert set(doubling.called) == set(doubling.prepared)
        assert len(doubling.prepared) == 1
        assert doubling.prepared[0] == (number or doubling.prepared[0])
        doubling.prepared.clear()
        doubling.called.clear()


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (ExecutionError("device", "is gone"), "device: is gone"),
        (ValueError("no luck"), "module of runtime `doubling`: cannot be prepared for calls: ValueError: no luck"),
    ],
)
def test_a_module_that_cannot_be_prepared_makes_no_machine(fault: Exception, text: str) -> None:
    program = lower(parse(TEXT.format(shape="(5,)", first=CALL.format(shape="(5,)"))))
    number = num_threads()
    with pytest.raises(ExecutionError) as caught:
        VirtualMachine(Executable(program, (Doubling(fault),)), num_threads=3)
    assert str(caught.value) == text
    assert num_threads() == number  # the call around it has ended


@pytest.mark.parametrize("native", WAYS)
def test_functions_that_others_call_are_not_prepared(made: list[str], native: bool) -> None:
    vm = machine("(5,)", INNER, native=native)
    assert set(made) == {"main"}
    assert_all(vm["main"](np.ones(5, np.float32)), 8)
    assert set(made) == {"main", "inner"}


@pytest.mark.parametrize("native", WAYS)
def test_calls_at_once_have_frames_of_their_own(made: list[str], native: bool) -> None:
    met = threading.Barrier(2)

    def meet(x: NDArray, out: NDArray) -> None:
        met.wait()
        double(x, out)

    program = lower(parse(TEXT.format(shape="(5,)", first=CALL.format(shape="(5,)"))))
    function = native_function("double", meet) if native else PackedFunction("double", meet)
    vm = VirtualMachine(Executable(program, ()), externs={"double": function}, native=native)
    results: dict[int, Any] = {}

    def call(number: int) -> None:
        results[number] = vm["main"](np.full(5, number, np.float32))

    threads = [threading.Thread(target=call, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.count("main") == 2
    assert [results[number].tolist() for number in (1, 2)] == [[4.0] * 5, [8.0] * 5]


@pytest.mark.parametrize("native", WAYS)
def test_a_first_call_refuses_what_a_later_one_does(native: bool) -> None:
    vm = machine("(5,)", native=native)
    texts = []
    for array in (np.ones(4, np.float32), np.ones(5, np.float64)):
        for _ in range(2):
            with pytest.raises(CallError) as caught:
                vm["main"](array)
            texts.append(str(caught.value))
            vm["main"](np.ones(5, np.float32))
    assert texts[0] == texts[1] == "function `main`, input 0 `x`: axis 0 has the wrong size; got [4], expected [5]"
    assert texts[2] == texts[3]


@pytest.mark.parametrize("native", WAYS)
def test_an_arena_that_does_not_fit_is_told_by_the_call(native: bool) -> None:
    x, y = (TensorSpec(name, "float32", (2,)) for name in "xy")
    huge = PlannedTensor(0, 0, "uint8", (2**61,))
    code = (Call(CallKind.EXTERN, 0, (0,), (1,)), Ret((1,)))
    program = Program((VMFunction("main", (x,), (y,), (), (2**61,), (huge,), (), code),), ("double",))
    function = native_function("double", double) if native else PackedFunction("double", double)
    vm = VirtualMachine(Executable(program, ()), externs={"double": function}, native=native)
    with pytest.raises(ExecutionError) as caught:
        vm["main"](np.ones(2, np.float32))
    assert str(caught.value) == f"function `main`: {2**61} bytes for intermediates cannot be allocated"
