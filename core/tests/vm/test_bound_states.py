"""Functions with states bound to fixed buffers: random uses equal plain calls, and refused arguments."""

from __future__ import annotations

import sys
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.errors import CallError
from byoc_core.runtime.protected_device import ProtectedDevice
from hypothesis import given
from hypothesis import strategies as st

from core.tests.devices.toys import DeviceToy, build_on
from core.tests.vm.test_states import build, rows

HEAD = """
@R.function
def main({params}):
    R.func_attr({{"input_names": {inputs}, "output_names": {outputs}, "states": {states}}})
"""
MASKED = (
    HEAD.format(
        params='x: R.Tensor(("n", 3)), mask: R.Tensor(("p + n",), "bool"), log: R.Tensor(("p", 3))',
        inputs=("x", "mask", "log"),
        outputs=("seen", "new_log"),
        states='(("log", "new_log", 0),)',
    )
    + """    new_log = R.concat(log, x, axis=0)
    wide = R.expand_dims(mask, axis=(1,))
    zeros = R.subtract(new_log, new_log)
    kept = R.where(wide, new_log, zeros)
    seen = R.sum(kept, axis=(0,))
    return seen, new_log
"""
)
BATCHED = (
    HEAD.format(
        params='x: R.Tensor(("b", 3)), flag: R.Tensor(("b", 3), "bool"), total: R.Tensor(("b", 3))',
        inputs=("x", "flag", "total"),
        outputs=("y", "new_total"),
        states='(("total", "new_total"),)',
    )
    + """    new_total = R.add(total, x)
    y = R.where(flag, new_total, x)
    return y, new_total
"""
)


ON_DEVICE = (
    HEAD.format(
        params="x: R.Tensor((4,)), total: R.Tensor((4,))",
        inputs=("x", "total"),
        outputs=("y", "new_total"),
        states='(("total", "new_total"),)',
    )
    + "    new_total = R.add(total, x)\n    y = R.exp(new_total)\n    return y, new_total\n"
)


@given(st.data(), st.booleans())
def test_random_uses_of_bound_functions_equal_plain_calls(data: st.DataObject, native: bool) -> None:
    machine, plain = (VirtualMachine(build(), native=native) for _ in range(2))
    states = [(None, plain.state()), *((machine.new_state(), plain.new_state()) for _ in range(2))]
    buffers = [rows(count) for count in (1, 3)]
    calls = [(x, state, twin, machine.bind("main", {"x": x}, state=state)) for x in buffers for state, twin in states]
    for step in range(data.draw(st.integers(1, 10))):
        x, state, twin, call = data.draw(st.sampled_from(calls))
        own = machine.state() if state is None else state
        if data.draw(st.integers(0, 4)) == 0:
            own.reset()
            twin.reset()
        x[...] = rows(len(x), step)
        np.testing.assert_array_equal(call(), plain.run("main", {"x": x}, state=twin))
        for name in own.names:
            np.testing.assert_array_equal(own[name], twin[name])


def test_each_call_returns_the_same_arrays() -> None:
    machine = VirtualMachine(build())
    seen = np.empty(3, np.float32)
    bound, fresh = machine.bind("main", {"x": rows(2)}, {"seen": seen}), machine.bind("main", {"x": rows(1)})
    assert bound() is seen
    assert fresh() is fresh()
    assert machine.state().length == 4


def test_a_state_of_another_size_than_the_arrays_is_an_error_and_stays() -> None:
    machine = VirtualMachine(byoc_core.build(parse(BATCHED), []))
    x, flags = np.ones((2, 3), np.float32), np.ones((2, 3), bool)
    call = machine.bind("main", {"x": x, "flag": flags})
    np.testing.assert_array_equal(call(), x)
    np.testing.assert_array_equal(call(), 2 * x)
    flags.view(np.uint8)[0] = (0, 2, 0)  # any other byte than 0 is true
    np.testing.assert_array_equal(call(), [[1, 3, 1], [3, 3, 3]])
    machine.state().reset()
    wide = {"x": np.ones((5, 3), np.float32), "flag": np.ones((5, 3), bool)}
    machine.run("main", wide)
    with pytest.raises(CallError, match="is bound to arrays of another size `b` than the state's; got 2, expected 5"):
        call()
    np.testing.assert_array_equal(machine.run("main", wide), 2 * wide["x"])
    machine.state().reset()
    np.testing.assert_array_equal(call(), [[1, 1, 1], [1, 1, 1]])


def test_refusals() -> None:
    machine = VirtualMachine(build())
    other = VirtualMachine(byoc_core.build(parse(BATCHED), []))
    cases: list[tuple[Any, str]] = [
        (lambda: machine.bind("main", {}), "input `x` is missing"),
        (lambda: machine.bind("main", {"x": rows(4)[::2]}), "each call would copy the array"),
        (lambda: machine.bind("main", {"x": rows(1)}, {"total": rows(1)}), "has no output `total`"),
        (lambda: machine.bind("main", {"x": rows(1)}, state=other.new_state()), "is the state of another function"),
        (
            lambda: VirtualMachine(byoc_core.build(parse(MASKED), [])).bind("main", {"x": rows(1), "mask": [True]}),
            "cannot be bound: the size of input `mask` moves with the length of a state",
        ),
        (
            lambda: VirtualMachine(
                byoc_core.build(parse("def main(x: R.Tensor((2,))):\n    y = R.exp(x)\n    return y"), [])
            ).bind("main", {"x": np.ones(2, np.float32)}, state=machine.state()),
            "has no states",
        ),
    ]
    for call, message in cases:
        with pytest.raises(CallError, match=message):
            call()


def test_a_failed_call_spoils_the_state_as_a_plain_call_does() -> None:
    text = build().program
    assert text.externs
    machine = VirtualMachine(build(), externs=dict.fromkeys(text.externs, _fail))
    call = machine.bind("main", {"x": rows(1)})
    with pytest.raises(byoc_core.errors.ExecutionError):
        call()
    with pytest.raises(CallError, match="is spoiled"):
        call()


def _fail(*arrays: object) -> None:
    raise ValueError("refuses")


@pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")
def test_a_state_on_a_device_is_bound() -> None:
    device = ProtectedDevice("npu", is_lazy=True)
    executable = build_on(parse(ON_DEVICE), DeviceToy(ops=("add", "exp")))
    assert [summary.domain for summary in executable.states["main"]] == ["npu"]
    machine = VirtualMachine(executable, devices={"npu": device})
    x = np.ones(4, np.float32)
    call = machine.bind("main", {"x": x})
    for step in range(3):
        x[...] = step
        np.testing.assert_array_equal(call(), np.exp(np.full(4, sum(range(step + 1)), np.float32)))
    np.testing.assert_array_equal(machine.state()["total"], np.full(4, 3, np.float32))
