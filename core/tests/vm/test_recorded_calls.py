"""Recorded calls: machines with ``record`` compute the same, and tell what ran, in order and with parts."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import symbol
from byoc_core.errors import ExecutionError
from byoc_core.runtime.extension import extension
from byoc_core.runtime.module import NDArray, PackedFunction, RuntimeModule, TensorSpec
from byoc_core.runtime.parts import Event, events_of, is_recording, mark_part, ops_text
from byoc_core.vm import Builtin, Call, CallKind, DynamicTensor, Goto, If, PlannedTensor, Program, Ret, VirtualMachine
from byoc_core.vm import VMFunction as Function
from hypothesis import given
from hypothesis import strategies as st

from core.tests.fresh_process import answer_of
from core.tests.vm.native_functions import native_function
from core.tests.vm.programs import Executable

pytestmark = pytest.mark.interpreter

EXTERN, BUILTIN, PACKED, FUNCTION = CallKind.EXTERN, CallKind.BUILTIN, CallKind.PACKED, CallKind.FUNCTION
n, k = symbol("n"), symbol("k")
X, Y = TensorSpec("x", "float32", (n,)), TensorSpec("y", "float32", (n,))
FLAG = TensorSpec("flag", "bool", ())
Runs = list[tuple[str, list[Event]]]


class Module(RuntimeModule):
    """Functions by name; counts the requests for parts."""

    type_key = "fake"

    def __init__(self, *functions: PackedFunction) -> None:
        self._functions = {function.name: function for function in functions}
        self.requests = 0

    @property
    def function_names(self) -> tuple[str, ...]:
        return tuple(self._functions)

    def find_function(self, name: str) -> PackedFunction:
        return self._functions[name]

    def report_parts(self) -> None:
        self.requests += 1


def double(x: NDArray, out: NDArray) -> None:
    mark_part("begin")
    np.multiply(x, 2, out=out)
    mark_part("product", ops_text([("multiply", "lv0"), ("nn.relu", 'a name, with "signs" and \u00e9')]))


def fail(x: NDArray, out: NDArray) -> None:
    raise ValueError("no luck")


def machine(
    code: tuple[Any, ...],
    *functions: PackedFunction,
    native: bool = True,
    tensors: int = 1,
    params: tuple[TensorSpec, ...] = (X,),
) -> tuple[VirtualMachine, VirtualMachine, Runs]:
    """Return a recording machine, an ordinary machine of the same program, and the list of records."""
    planned = tuple(PlannedTensor(index, 0, "float32", (n,)) for index in range(tensors))
    main = Function("main", params, (Y,), (), (4 * n,) * tensors, planned, (), code)
    executable = Executable(Program((main,), tuple(f.name for f in functions)), [Module(*functions)])
    runs: Runs = []
    recording = VirtualMachine(
        executable, native=native, record=lambda name, record: runs.append((name, events_of(record)))
    )
    return recording, VirtualMachine(executable, native=native), runs


def calls_of(runs: Runs) -> list[tuple[str, int]]:
    """Return function and number of each instruction, in order."""
    return [(name, event[0]) for name, events in runs for event in events if event[1] is None]


def check_times(runs: Runs) -> None:
    """Check the order of all events, and the place of parts within their instructions."""
    latest = 0
    for _, events in runs:
        for position, (instruction, part, ops, start, stop) in enumerate(events):
            assert start <= stop
            assert (part is None) == (ops is None)
            if part is None:
                assert latest <= start
                latest, begin, end = stop, start, stop
                previous = start
            else:
                assert events[position - 1][0] == instruction
                assert begin <= previous <= start or start == previous
                assert start == previous
                assert stop <= end
                previous = stop


KINDS = [
    pytest.param(native_function, True, id="native"),
    pytest.param(PackedFunction, True, id="python"),
    pytest.param(PackedFunction, False, id="without-list"),
]


@pytest.mark.parametrize(("make", "native"), KINDS)
def test_instructions_and_parts_are_recorded_in_order(make: Callable[..., PackedFunction], native: bool) -> None:
    code = (Call(EXTERN, 0, (0,), (2,)), Call(BUILTIN, Builtin.COPY, (2,), (1,)), Ret((1,)))
    recording, ordinary, runs = machine(code, make("double", double), native=native)
    for size in (3, 3, 0, 5):
        runs.clear()
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(recording["main"](x), ordinary["main"](x))
        assert calls_of(runs) == [("main", 0), ("main", 1)]
        check_times(runs)
        parts = [(part, ops) for _, events in runs for _, part, ops, _, _ in events if part is not None]
        expected = 'multiply lv0\nnn.relu a name, with "signs" and \u00e9'
        assert parts == [("begin", ""), ("product", expected)]
    assert is_recording()


@pytest.mark.parametrize(("make", "native"), KINDS)
def test_a_failing_call_has_no_record_and_the_same_error(make: Callable[..., PackedFunction], native: bool) -> None:
    code = (Call(EXTERN, 0, (0,), (2,)), Call(EXTERN, 1, (2,), (1,)), Ret((1,)))
    recording, ordinary, runs = machine(code, make("double", double), make("fail", fail), native=native)
    texts = []
    for vm in (ordinary, recording, recording):
        with pytest.raises(ExecutionError) as caught:
            vm["main"](np.ones(3, np.float32))
        texts.append(str(caught.value))
    assert len(set(texts)) == 1
    assert ("main", 1) not in calls_of(runs)


@given(st.lists(st.booleans(), min_size=1, max_size=6))
def test_branches_record_what_ran(flags: list[bool]) -> None:
    code = (
        If(1, 3),
        Call(EXTERN, 0, (0,), (3,)),
        Call(EXTERN, 0, (3,), (2,)),
        Call(BUILTIN, Builtin.COPY, (0,), (2,)),
        Ret((2,)),
    )
    recording, ordinary, runs = machine(code, native_function("double", double), params=(X, FLAG))
    x = np.ones(2, np.float32)
    for flag in flags:
        runs.clear()
        np.testing.assert_array_equal(recording["main"](x, np.array(flag)), ordinary["main"](x, np.array(flag)))
        assert calls_of(runs) == [("main", index) for index in ((1, 2, 3) if flag else (3,))]
        check_times(runs)


def test_loops_record_each_round() -> None:
    one = np.ones((), np.int64)
    params = (TensorSpec("trips", "int64", ()), TensorSpec("go", "bool", ()), TensorSpec("x", "float32", (2,)))
    counter, test = PlannedTensor(0, 0, "int64", ()), PlannedTensor(1, 0, "bool", ())
    code = (
        Call(BUILTIN, Builtin.ZERO, (), (4,)),
        Call(BUILTIN, Builtin.COPY, (2,), (3,)),
        Call(BUILTIN, Builtin.LOOP_TEST, (4, 0, 1), (5,)),
        If(5, 7),
        Call(EXTERN, 0, (2,), (3,)),
        Call(BUILTIN, Builtin.INCREMENT, (), (4,)),
        Goto(2),
        Ret((3,)),
    )
    main = Function("main", params, (TensorSpec("y", "float32", (2,)),), (), (8, 1), (counter, test), (), code)
    executable = Executable(Program((main,), ("double",)), [Module(native_function("double", double))])
    runs: Runs = []
    vm = VirtualMachine(executable, record=lambda name, record: runs.append((name, events_of(record))))
    for trips in (0, 1, 7):
        runs.clear()
        vm["main"](trips * one, np.array(True), np.ones(2, np.float32))
        assert calls_of(runs).count(("main", 4)) == trips
        check_times(runs)


def test_calls_of_functions_and_dynamic_results_are_recorded() -> None:
    x, y = TensorSpec("x", "float32", (n,)), TensorSpec("y", "float32", (k,))

    def positive(array: NDArray) -> NDArray:
        kept = array[array > 0].copy()
        mark_part("select")
        return kept

    inner = Function(
        "inner", (x,), (TensorSpec("y", "float32", (n,)),), (), (), (), (), (Call(EXTERN, 0, (0,), (1,)), Ret((1,)))
    )
    main = Function(
        "main",
        (x,),
        (y,),
        (),
        (4 * n,),
        (PlannedTensor(0, 0, "float32", (n,)),),
        (DynamicTensor("float32", (k,), ("k",)),),
        (Call(FUNCTION, 0, (0,), (2,)), Call(PACKED, 1, (2,), (3,)), Ret((3,))),
    )
    program = Program((inner, main), ("double", "positive"))
    executable = Executable(program, [Module(native_function("double", double))])
    runs: Runs = []
    vm = VirtualMachine(
        executable,
        externs={"positive": positive},
        record=lambda name, record: runs.append((name, events_of(record))),
    )
    result = vm["main"](np.array([1, -1, 2], np.float32))
    np.testing.assert_array_equal(result, [2, 4])
    assert calls_of(runs) == [("inner", 0), ("main", 0), ("main", 1)]
    assert [event[1] for _, events in runs for event in events if event[1]] == ["begin", "product", "select"]


def test_marks_of_other_threads_and_outside_of_calls_have_no_effect() -> None:
    def in_thread(x: NDArray, out: NDArray) -> None:
        thread = threading.Thread(target=mark_part, args=("elsewhere",))
        thread.start()
        thread.join()
        out[...] = x

    mark_part("outside")
    recording, ordinary, runs = machine(
        (Call(EXTERN, 0, (0,), (1,)), Ret((1,))), native_function("f", in_thread), tensors=0
    )
    recording["main"](np.ones(2, np.float32))
    ordinary["main"](np.ones(2, np.float32))
    mark_part("outside")
    assert [event[1] for _, events in runs for event in events] == [None]


def test_threads_have_separate_records() -> None:
    recording, _, runs = machine((Call(EXTERN, 0, (0,), (1,)), Ret((1,))), native_function("double", double), tensors=0)
    threads = [
        threading.Thread(target=lambda: [recording["main"](np.ones(64, np.float32)) for _ in range(50)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs) == 400
    assert all([event[1] for event in events] == [None, "begin", "product"] for _, events in runs)


def test_bound_calls_are_recorded_and_only_recording_machines_ask_for_parts() -> None:
    module = Module(native_function("double", double))
    x = TensorSpec("x", "float32", (2,))
    main = Function(
        "main", (x,), (TensorSpec("y", "float32", (2,)),), (), (), (), (), (Call(EXTERN, 0, (0,), (1,)), Ret((1,)))
    )
    executable = Executable(Program((main,), ("double",)), [module])
    VirtualMachine(executable)
    assert module.requests == 0
    runs: list[object] = []
    vm = VirtualMachine(executable, record=lambda _name, record: runs.append(record))
    assert module.requests == 1
    call = vm.bind("main", {"x": np.ones(2, np.float32)})
    call()
    call()
    assert len(runs) == 2
    del vm, call
    gc.collect()
    assert len(events_of(runs[0])) == 3  # a record outlives the machine


def test_an_exception_of_the_receiver_ends_the_call() -> None:
    x = TensorSpec("x", "float32", (2,))
    main = Function(
        "main", (x,), (TensorSpec("y", "float32", (2,)),), (), (), (), (), (Call(EXTERN, 0, (0,), (1,)), Ret((1,)))
    )
    executable = Executable(Program((main,), ("double",)), [Module(native_function("double", double))])

    def refuse(name: str, record: object) -> None:
        raise LookupError(name)

    vm = VirtualMachine(executable, record=refuse)
    with pytest.raises(LookupError, match="main"):
        vm["main"](np.ones(2, np.float32))


WITHOUT_EXTENSION = """
import json
import numpy as np
from byoc_core.runtime.extension import extension
from core.tests.vm.test_recorded_calls import *
assert extension() is None
code = (Call(EXTERN, 0, (0,), (2,)), Call(BUILTIN, Builtin.COPY, (2,), (1,)), Ret((1,)))
recording, ordinary, runs = machine(code, native_function("double", double))
recording["main"](np.ones(3, np.float32))
check_times(runs)
print(json.dumps([calls_of(runs), [event[1] for _, events in runs for event in events]]))
"""


def test_python_records_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_NATIVE", "0")
    assert answer_of(WITHOUT_EXTENSION) == [[["main", 0], ["main", 1]], [None, "begin", "product", None]]


@pytest.mark.skipif(extension() is None, reason="the C extension is missing")
def test_records_are_refused_if_they_are_none() -> None:
    native = extension()
    assert native is not None
    for value in ((), "record", None, 3):
        with pytest.raises(ValueError, match="PyCapsule"):
            native.events_of(value)
