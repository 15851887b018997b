"""Random programs of several entries with states on devices: the laws of partition, and the interpreter's bits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.ir import IRModule, StateVariable, declare_states, merge_modules, verify
from byoc_core.partitioning import partition
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.transform import evaluate_function
from byoc_core.vm.device_run import DeviceRun
from byoc_core.vm.state import State
from hypothesis import given, note, settings
from hypothesis import strategies as st

from core.tests.devices.test_device_property import check_freed, devices_of, machine_of
from core.tests.devices.toys import DeviceToy, build_on
from core.tests.partitioning.laws import check_laws

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")

OPS = ("negative", "abs", "nn.relu", "add", "maximum", "multiply")
BINARY = ("add", "maximum", "multiply")
SHARED = 'R.const([0.5, -1.0, 2.0, 1.0], "float32")'
"""A constant of all entries."""


@dataclass(frozen=True)
class Entry:
    """An entry: a function ``main`` of ``x``, with an accumulated state, and perhaps rows kept from call to call."""

    name: str
    module: IRModule
    has_rows: bool

    def first_values(self) -> list[NDArray]:
        return [np.zeros(4, np.float32), *([np.zeros((0, 4), np.float32)] if self.has_rows else [])]


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    """Return one to three entries; each value has a name of its own."""
    return [_entry(draw, name) for name in "abc"[: draw(st.integers(1, 3))]]


def _entry(draw: Callable[[st.SearchStrategy[Any]], Any], e: str) -> Entry:
    values, lines = [f"{e}x", f"{e}h", SHARED], []
    for number in range(draw(st.integers(1, 6))):
        op = draw(st.sampled_from(OPS))
        operands = [draw(st.sampled_from(values[:2] + values[3:]))]
        operands += [draw(st.sampled_from(values))] if op in BINARY else []
        lines.append(f"{e}{number} = R.{op}({', '.join(operands)})")
        values.append(f"{e}{number}")
    lines.append(f"{e}h1 = R.maximum({draw(st.sampled_from(values[3:]))}, {e}h)")
    params, results = [f'{e}x: R.Tensor((4,), "float32")'], [values[-1]]
    states, outputs = [f'{e}h: R.Tensor((4,), "float32")'], [f"{e}h1"]
    variables = [StateVariable(f"{e}h", f"{e}h1")]
    if has_rows := draw(st.booleans()):
        lines += [
            f"{e}new = R.negative({e}r)",
            f"{e}m1 = R.concat({e}m, {e}new, axis=0)",
            f"{e}y = R.add({e}m1, {values[-1]})",
        ]
        params.append(f'{e}r: R.Tensor(("n{e}", 4), "float32")')
        states.append(f'{e}m: R.Tensor(("p{e}", 4), "float32")')
        outputs.append(f"{e}m1")
        results.append(f"{e}y")
        variables.append(StateVariable(f"{e}m", f"{e}m1", axis=0))
    body = "\n".join(f"    {line}" for line in lines)
    text = f"def main({', '.join(params + states)}):\n{body}\n    return {', '.join(results + outputs)}\n"
    return Entry(e, _with_states(text, results + outputs, variables), has_rows)


def _with_states(text: str, outputs: Sequence[str], variables: Sequence[StateVariable]) -> IRModule:
    module = parse(text)
    function = module["main"].with_attrs(output_names=tuple(outputs))
    return module.with_functions({"main": declare_states(function, variables)})


def check(
    found: Sequence[Entry], pairs: Sequence[tuple[ProtectedDevice, DeviceToy]], steps: Sequence[tuple[int, int, bool]]
) -> None:
    """Check the laws, and calls of the entries in turn, each on states of its own.

    Args:
        found: the entries.
        pairs: devices with backends.
        steps: of each call the entry, the number of rows, and whether a copy of the state goes on.
    """
    merged = verify(merge_modules({entry.name: entry.module for entry in found}))
    toys = [toy for _, toy in pairs]
    check_laws(merged, partition(merged, toys))
    executable = build_on(merged, *toys)
    machine = machine_of(executable, [device for device, _ in pairs])
    states = {entry.name: machine.new_state(entry.name) for entry in found}
    values = {entry.name: entry.first_values() for entry in found}
    rng = np.random.default_rng(0)
    for index, num_rows, forks in steps:
        entry = found[index % len(found)]
        e = entry.name
        inputs = {f"{e}x": rng.integers(-3, 4, 4).astype(np.float32)}
        if entry.has_rows:
            inputs[f"{e}r"] = rng.integers(-3, 4, (num_rows, 4)).astype(np.float32)
        expected = [*map(np.asarray, evaluate_function(entry.module, "main", [*inputs.values(), *values[e]]))]
        count = len(values[e])
        _check_equal(_results(machine, e, inputs, states[e]), expected[:-count])
        values[e] = expected[-count:]
        if forks:
            states[e] = states[e].fork()
    for entry in found:
        if states[entry.name].length or any(index % len(found) == found.index(entry) for index, _, _ in steps):
            _check_equal([states[entry.name][name] for name in states[entry.name].names], values[entry.name])


def _results(machine: VirtualMachine, name: str, inputs: dict[str, NDArray], state: State) -> list[NDArray]:
    results = machine.run(name, inputs, state=state)
    return list(results) if isinstance(results, tuple) else [results]


def _check_equal(found: Sequence[NDArray], expected: Sequence[NDArray]) -> None:
    assert len(found) == len(expected)
    for have, want in zip(found, expected, strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_array_equal(have, want)


STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), min_size=1, max_size=6)


@given(st.data(), entries(), STEPS)
@settings(deadline=None)
def test_random_programs_of_several_entries(
    data: st.DataObject, found: list[Entry], steps: list[tuple[int, int, bool]]
) -> None:
    note("\n".join(str(entry.module) for entry in found))
    pairs = devices_of(data.draw, OPS)
    check(found, pairs, steps)
    check_freed([device for device, _ in pairs])


def test_lost_copies_of_states_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above notices old values that never become new values."""
    text = "def main(ax: R.Tensor((4,)), ah: R.Tensor((4,))):\n    ah1 = R.maximum(ax, ah)\n    return ax, ah1\n"
    entry = Entry("a", _with_states(text, ("y", "ah1"), [StateVariable("ah", "ah1")]), has_rows=False)
    device = ProtectedDevice("npu", is_lazy=True)
    pairs = [(device, DeviceToy("npu", ("maximum",), device.domain))]
    steps = [(0, 0, False), (0, 0, False), (0, 0, False)]
    check([entry], pairs, steps)
    monkeypatch.setattr(DeviceRun, "copy_within", lambda *_: None)
    with pytest.raises(AssertionError):
        check([entry], pairs, steps)
