"""Values kept from call to call: the C runtime gives the bits of Python's machine, and the same errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core import VirtualMachine
from byoc_core.artifact import Executable
from byoc_core.ir import StateVariable, declare_states
from byoc_core.native.toolchain import Toolchain
from byoc_core.vm import CallKind, Ret
from byoc_core.vm.encoding import encode
from byoc_core.vm.program import StateSlot
from hypothesis import given
from hypothesis import strategies as st

from core.tests.artifact.fuzzing.members import packed, taken_apart
from rt.tests.runner import NativeError, NativeLibrary, NativeState, Status
from rt.tests.saved import assert_same_bits, load_saved
from rt.tests.test_machine_programs import draw
from rt.tests.written_programs import advance, call, constant_of, executable_of, function_of, spec

NDArray = npt.NDArray[Any]

DECODER = """
@R.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor(("batch", "n", 4), "float32"),
        rows: R.Tensor(("n", 2, 4), "float32"),
        past: R.Tensor(("p", 2, 4), "float32"),
        total: R.Tensor(("batch",), "float32"),
        count: R.Tensor((), "int64"),
    ):
        R.func_attr({
            "input_names": ("x", "rows", "past", "total", "count"),
            "output_names": ("y", "present", "mean", "total_out", "count_out"),
            "states": (("past", "present", 0), ("total", "total_out"), ("count", "count_out")),
        })
        present = R.concat(past, rows, axis=0)
        lv0 = R.sum(present, axis=(0, 1))
        y = R.add(x, lv0)
        lv1 = R.sum(x, axis=(1, 2))
        total_out = R.add(total, lv1)
        mean = R.multiply(total_out, R.const(0.5, "float32"))
        count_out = R.add(count, R.const(1, "int64"))
        return y, present, mean, total_out, count_out
"""


def decoder(backends: Sequence[str] = ()) -> Executable:
    return byoc_core.build(byoc_core.parse(DECODER), backends=list(backends))


def inputs(rng: np.random.Generator, batch: int, rows: int) -> list[NDArray]:
    shapes = ((batch, rows, 4), (rows, 2, 4))
    return [rng.integers(-8, 9, shape).astype(np.float32) for shape in shapes]


def loaded(executable: Executable, native: NativeLibrary, folder: Path) -> NativeState:
    return load_saved(executable, native, folder)["main"].new_state()


def run_machine(machine: VirtualMachine, values: Sequence[NDArray], state: Any = None) -> tuple[NDArray, ...]:
    names = [spec.name for spec in machine["main"].params]
    found = machine.run("main", dict(zip(names, values, strict=True)), state=state)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize(
    "backends",
    [
        [],
        pytest.param(["ccompiler"], marks=pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")),
    ],
)
def test_calls_give_the_bits_of_the_machine(native: NativeLibrary, tmp_path: Path, backends: Sequence[str]) -> None:
    executable = decoder(backends)
    machine, state = VirtualMachine(executable), loaded(executable, native, tmp_path)
    function = state.function
    assert [info.name for info in function.inputs] == ["x", "rows"]
    assert [info.name for info in function.outputs] == ["y", "mean"]
    assert [(info.name, info.dims) for info in function.states] == [
        ("past", ("p", "2", "4")),
        ("total", ("batch",)),
        ("count", ()),
    ]
    rng = np.random.default_rng(1)
    length = 0
    for rows in (5, 1, 1, 0, 40, 1):
        values = inputs(rng, 3, rows)
        expected = run_machine(machine, values)
        if rows % 2:
            assert_same_bits(state(*values), expected)
        else:
            outputs = [np.empty_like(array) for array in expected]
            state.run_into(values, outputs)
            assert_same_bits(outputs, expected)
        length += rows
        assert state.length == length == machine.state("main").length
    kept = machine.state("main")
    assert_same_bits([state.value(i) for i in range(3)], [kept[name] for name in kept.names])


def test_an_initial_value_is_the_constant(native: NativeLibrary, tmp_path: Path) -> None:
    module = byoc_core.parse(
        "@R.function\ndef main(x: R.Tensor((3,)), h: R.Tensor((3,))):\n"
        '    R.func_attr({"input_names": ("x", "h"), "output_names": ("z", "g")})\n'
        "    g = R.add(x, h)\n    z = R.negative(g)\n    return z, g\n"
    )
    start = module.constants.add(np.array([1.5, -2.0, 4.0], np.float32))
    states = [StateVariable("h", "g", initial=start.digest)]
    executable = byoc_core.build(module.with_function(declare_states(module["main"], states)), backends=[])
    machine, state = VirtualMachine(executable), loaded(executable, native, tmp_path)
    for number in range(3):
        values = [np.full(3, number, np.float32)]
        assert_same_bits(state(*values), run_machine(machine, values))
    state.reset()
    assert_same_bits(state(np.zeros(3, np.float32)), [np.array([-1.5, 2.0, -4.0], np.float32)])


@given(st.data())
def test_any_sequence_of_uses_gives_the_bits_of_the_machine(
    native: NativeLibrary, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Calls, forks, resets and restorations in any order, on several states of one program."""
    executable = decoder()
    machine = VirtualMachine(executable)
    function = load_saved(executable, native, tmp_path_factory.mktemp("uses"))["main"]
    capacity = data.draw(st.integers(0, 20))
    pairs = [(machine.new_state("main", capacity=capacity), function.new_state(capacity=capacity))]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    batches = [2]
    for _ in range(data.draw(st.integers(1, 12))):
        index = data.draw(st.integers(0, len(pairs) - 1))
        kept, state = pairs[index]
        match data.draw(st.sampled_from(("call", "call", "call", "fork", "reset", "restore"))):
            case "call":
                values = inputs(rng, batches[index], data.draw(st.integers(0, 25)))
                assert_same_bits(state(*values), run_machine(machine, values, kept))
            case "fork":
                pairs.append((kept.fork(), state.fork()))
                batches.append(batches[index])
            case "reset":
                kept.reset()
                state.reset()
                batches[index] = data.draw(st.integers(1, 3))
            case "restore":
                if kept.nbytes:
                    other = data.draw(st.integers(0, len(pairs) - 1))
                    path = tmp_path_factory.mktemp("saved") / "kept.npz"
                    kept.save(path)
                    pairs[other][0].load(path)
                    pairs[other][1].restore(*(state.value(i) for i in range(3)))
                    batches[other] = batches[index]
        assert state.length == kept.length
    for kept, state in pairs:
        if kept.nbytes:
            assert_same_bits([state.value(i) for i in range(3)], [kept[name] for name in kept.names])


def test_states_with_strides_and_other_memory_are_copied_by_a_restoration(
    native: NativeLibrary, tmp_path: Path
) -> None:
    state = loaded(decoder(), native, tmp_path)
    past = np.arange(48, dtype=np.float32).reshape(4, 2, 6)[:, :, ::2]
    values = [np.concatenate([past, past[:, :, :1]], axis=2), np.ones(2, np.float32), np.array(7)]
    state.restore(np.asfortranarray(values[0]), *values[1:])
    assert state.length == 4
    assert_same_bits([state.value(i) for i in range(3)], values)
    values[0][...] = 0  # the state has copies
    assert state.value(0).any()


def check(state_or_call: Any, text: str, status: Status = Status.CALL) -> None:
    with pytest.raises(NativeError) as caught:
        state_or_call()
    assert text in str(caught.value)
    assert caught.value.status == status


def test_wrong_uses_are_refused_and_change_nothing(native: NativeLibrary, tmp_path: Path) -> None:
    program = load_saved(decoder(), native, tmp_path)
    function = program["main"]
    rng = np.random.default_rng(3)
    good = inputs(rng, 2, 3)
    check(lambda: function(*good), "function `main`: keeps states from call to call. Make a state by byoc_rt_new_state")
    check(lambda: function.new_state(capacity=5, limit=4), "capacity and limit are no numbers of rows; got 5 and 4")
    check(lambda: function.new_state(capacity=-1), "got -1 and 0")
    state = function.new_state(limit=8)
    check(lambda: state.value(0), "state of function `main`: has no values before the first call")
    check(lambda: state(good[0]), "wrong number of inputs; got 1, expected 2")
    check(lambda: state(good[0], good[1][:2]), "axis 0 has the wrong size")
    assert state.length == 0
    state(*good)
    wrong = "input 0 `x`: axis 0 has the wrong size; got [3, 1, 4], expected [batch, n, 4] with batch = 2"
    check(lambda: state(*inputs(rng, 3, 1)), wrong)
    check(lambda: state(*inputs(rng, 2, 6)), "`past`: goes over the limit of rows; got 9, expected at most 8")
    check(lambda: state.value(3), "has no value 3; expected less than 3")
    past, total, count = (state.value(i) for i in range(3))
    check(lambda: state.restore(past, total), "wrong number of values; got 2, expected 3")
    check(lambda: state.restore(past, total, count.astype(np.int32)), "state 2 `count`: wrong dtype")
    check(lambda: state.restore(past[0], total, count), "state 0 `past`: wrong rank")
    check(lambda: state.restore(past[:, :1], total, count), "axis 1 has the wrong size")
    check(lambda: state.restore(np.concatenate([past] * 3), total, count), "goes over the limit of rows; got 9")
    assert_same_bits([state.value(i) for i in range(3)], (past, total, count))
    outputs = [np.empty((2, 5, 4), np.float32), np.empty(2, np.float32)]
    check(lambda: state.run_into(inputs(rng, 2, 5), outputs[:1]), "wrong number of outputs")
    check(lambda: state.run_into(inputs(rng, 2, 4), outputs), "output 0 `y`: axis 1 has the wrong size")
    assert state.length == 3
    state.run_into(inputs(rng, 2, 5), outputs)
    assert state.length == 8


def test_null_pointers_are_errors(native: NativeLibrary, tmp_path: Path) -> None:
    calls = {
        "state_length": -1,
        "state_function": None,
        "reset_state": Status.CALL,
    }
    for name, expected in calls.items():
        assert getattr(native, f"c_{name}")(None) == expected
        assert native.c_last_error() == b"state: is a null pointer"
    assert not native.c_state_value(None, 0)
    native.c_free_state(None)


def test_a_function_without_states_has_no_state(native: NativeLibrary, tmp_path: Path) -> None:
    module = byoc_core.parse("def main(x: R.Tensor((3,))):\n    y = R.abs(x)\n    return y")
    function = load_saved(byoc_core.build(module, backends=[]), native, tmp_path)["main"]
    assert function.states == ()
    check(function.new_state, "function `main`: keeps no states. Call byoc_rt_run.")


@pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")
def test_a_failed_call_spoils_the_state_until_it_is_reset(native: NativeLibrary, tmp_path: Path) -> None:
    function = function_of(
        [spec("x", 2, 4), spec("old", 2, 4)],
        [spec("new", 2, 4), spec("y", 2, 4)],
        [advance(1, 2), advance(0, 3), Ret((2, 3))],
        states=[StateSlot(1, 0)],
    )
    state = loaded(executable_of(function), native, tmp_path)
    good, bad = abs(draw(2, 4)), -abs(draw(2, 4)) - 1
    state(good)
    np.testing.assert_array_equal(state.value(0), np.ones((2, 4)))
    check(lambda: state(bad), "row 0 is negative", Status.EXECUTION)
    for use in (lambda: state(good), lambda: state.value(0), state.fork):
        check(use, "state of function `main`: is spoiled: an earlier call did not end")
    state.restore(np.full((2, 4), 5, np.float32))
    state(good)
    np.testing.assert_array_equal(state.value(0), np.full((2, 4), 6))
    check(lambda: state(bad), "row 0 is negative", Status.EXECUTION)
    state.reset()
    state(good)
    np.testing.assert_array_equal(state.value(0), np.ones((2, 4)))


def test_a_state_serves_one_call_at_a_time(native: NativeLibrary, tmp_path: Path) -> None:
    """Threads on one state: each call ran alone, or was refused; states of their own are independent."""
    executable = decoder()
    program = load_saved(executable, native, tmp_path)
    shared = program["main"].new_state()
    shared(*inputs(np.random.default_rng(0), 1, 1))
    done, refused, other = [0] * 4, [0] * 4, []

    def work(thread: int) -> None:
        own = program["main"].new_state()
        rng = np.random.default_rng(thread)
        for _ in range(200):
            values = inputs(rng, 1, 1)
            own(*values)
            try:
                shared(*values)
                done[thread] += 1
            except NativeError as error:
                refused[thread] += "is in use by another call" in str(error)
        other.append(own.length)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert other == [200] * 4
    assert sum(done) + sum(refused) == 800
    assert shared.length == 1 + sum(done)
    assert shared.value(2) == 1 + sum(done)


ROWS = """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), past: R.Tensor(("p", 4), "float32")):
        R.func_attr({"input_names": ("x", "past"), "output_names": ("y", "all"), "states": (("past", "all", 0),)})
        all_ = R.concat(past, x, axis=0)
        y = R.abs(x)
        return y, all_
"""


def changed_rows(native: NativeLibrary, change: Any) -> NativeState:
    """Return a state of a function with other shapes of the parameter and the result."""
    executable = byoc_core.build(byoc_core.parse(ROWS), backends=[])
    program = executable.program
    (main,) = program.functions
    changed = replace(program, functions=(change(main),))
    members = {**taken_apart(executable.to_bytes()), "program": encode(changed)}
    return native.load_bytes(packed(members))["main"].new_state()


def with_shapes(main: Any, before: Sequence[Any], after: Sequence[Any]) -> Any:
    params = (main.params[0], spec("past", *before))
    return replace(main, params=params, results=(main.results[0], spec("all", *after)))


def test_rows_lie_behind_axes_of_size_1(native: NativeLibrary) -> None:
    """Rows behind another axis are not contiguous: a larger buffer would get wrong rows."""

    def change(main: Any) -> Any:
        slot = replace(main.states[0], axis=1)
        return replace(with_shapes(main, (4, "p"), (4, "p+n")), states=(slot,))

    check(lambda: changed_rows(native, change), "behind an axis of a size other than 1", Status.ARTIFACT)


def test_a_moving_length_is_on_no_axis_that_does_not_move(native: NativeLibrary) -> None:
    text = "function `main`, state 0: has a moving length on an axis that does not move"
    check(lambda: changed_rows(native, lambda main: with_shapes(main, ("p", "p"), ("p+n", "p"))), text, Status.ARTIFACT)

    def with_other(shape: Sequence[Any], axis: int | None) -> Callable[[Any], Any]:
        def change(main: Any) -> Any:
            params, results = (*main.params, spec("k", *shape)), (*main.results, spec("l", *shape))
            return replace(main, params=params, results=results, states=(StateSlot(2, 2, axis=axis), *main.states))

        return change

    for shape, axis in ((("p",), None), (("p*2+n",), None), (("q", "p"), 0)):
        check(lambda s=shape, a=axis: changed_rows(native, with_other(s, a)), text, Status.ARTIFACT)


def written(after: Sequence[Any], *others: Any) -> Executable:
    """Return a function of written code, whose new rows replace the old rows."""
    return executable_of(
        function_of(
            [spec("x", "n", 4), spec("past", "p", 4)],
            [spec("y", "n", 4), spec("all", *after)],
            [advance(0, 2), advance(0, 3), Ret((2, 3))],
            states=[StateSlot(1, 1, axis=0)],
        ),
        *others,
    )


def loaded_bytes(executable: Executable, native: NativeLibrary) -> NativeState:
    """Load an executable that Python's machine would refuse."""
    members = taken_apart(written(("p+n", 4)).to_bytes())
    return native.load_bytes(packed({**members, "program": encode(executable.program)}))["main"].new_state()


@pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")
def test_the_inputs_determine_the_size_of_a_new_value(native: NativeLibrary) -> None:
    text = "the inputs do not determine the size of the result"
    check(lambda: loaded_bytes(written(("q", 4)), native), text, Status.ARTIFACT)


@pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")
def test_a_new_value_with_fewer_rows_is_refused_by_the_call(native: NativeLibrary) -> None:
    state = loaded_bytes(written(("n", 4)), native)
    state(draw(3, 4))
    check(lambda: state(draw(2, 4)), "the new value has fewer rows than the old value")
    assert state.length == 3


@pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")
def test_no_function_calls_a_function_with_states(native: NativeLibrary) -> None:
    caller = function_of(
        [spec("x", "n", 4), spec("past", "p", 4)],
        [spec("y", "n", 4), spec("all", "p+n", 4)],
        [call(CallKind.FUNCTION, 0, (0, 1), (2, 3)), Ret((2, 3))],
        name="caller",
    )
    check(lambda: loaded_bytes(written(("p+n", 4), caller), native), "calls a function with states", Status.ARTIFACT)


ANY_CONSTANT = (constant_of(np.zeros(2, np.float32)),)
UNLAWFUL = [
    ("missing", 0, StateSlot(5, 1), "a parameter or result is missing, or belongs to two states"),
    ("twice", 1, StateSlot(2, 3), "a parameter or result is missing, or belongs to two states"),
    ("other sizes", 0, StateSlot(0, 1), "the result does not fit the parameter"),
    ("growth without an axis", 0, StateSlot(2, 1), "the result does not fit the parameter"),
    ("no axis", 2, StateSlot(4, 4, axis=0), "has no such axis"),
    ("fixed axis", 0, StateSlot(2, 1, axis=1), "has a moving length that is no symbol"),
    ("constant", 1, StateSlot(3, 3, initial=99), "cites a missing constant"),
    ("moving constant", 1, StateSlot(3, 3, initial=0, axis=0), "has a moving length and an initial constant"),
    ("other constant", 1, StateSlot(3, 3, initial=0), "the initial constant has another type"),
]


@pytest.mark.parametrize(
    ("number", "slot", "text"), [case[1:] for case in UNLAWFUL], ids=[case[0] for case in UNLAWFUL]
)
def test_unlawful_states_are_refused(native: NativeLibrary, number: int, slot: StateSlot, text: str) -> None:
    executable = decoder()
    members = taken_apart(executable.to_bytes())
    program = replace(executable.program, constants=(*executable.program.constants, *ANY_CONSTANT))
    (main,) = program.functions
    assert [(state.param, state.result, state.axis) for state in main.states] == [(2, 1, 0), (3, 3, None), (4, 4, None)]
    states = [slot if index == number else state for index, state in enumerate(main.states)]
    changed = replace(program, functions=(replace(main, states=tuple(states)),))
    with pytest.raises(NativeError) as caught:
        native.load_bytes(packed({**members, "program": encode(changed)}))
    assert text in str(caught.value)
    assert f"function `main`, state {number}" in str(caught.value)
    assert caught.value.status == Status.ARTIFACT
