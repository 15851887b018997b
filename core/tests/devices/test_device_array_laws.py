"""Random programs with arrays anywhere equal the interpreter with the fewest copies; planted faults are found."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.errors import ExecutionError
from byoc_core.ir import IRModule
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.transform import evaluate_function
from byoc_core.vm import device_arguments, device_values
from byoc_core.vm.device_arguments import PlacedArguments
from hypothesis import given, note, settings
from hypothesis import strategies as st

from core.tests.devices.device_arrays import (
    Foreign,
    X,
    check_inputs_are_kept,
    copies,
    machine_on,
    npu,
)
from core.tests.devices.test_device_property import HOSTED, check_freed, devices_of, machine_of, straight_line
from core.tests.devices.toys import DeviceToy, build_on
from core.tests.lower.test_control_flow_property import Maker
from core.tests.lower.test_states import t

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")


def on_some_device(array: Any, number: int, devices: Sequence[ProtectedDevice], machine: VirtualMachine) -> Any:
    """Return an array on one of the machine's devices, on the host (0), or as a tensor of another package."""
    used = [device for device in devices if device in machine.devices.values()]
    if not number or not used:
        return array
    found = DeviceArray.copy_of(np.asarray(array), used[number % len(used)])
    return Foreign(found) if number >= 4 else found


def as_host(value: Any) -> Any:
    return value.numpy() if isinstance(value, DeviceArray) else value


def calls_agree(
    module: IRModule,
    pairs: Sequence[tuple[ProtectedDevice, DeviceToy]],
    inputs: Sequence[Any],
    places: Sequence[int],
) -> bool:
    """Return whether calls with arrays anywhere give the values of the interpreter, and leave the inputs unchanged."""
    devices = [device for device, _ in pairs]
    machine = machine_of(build_on(module, *(toy for _, toy in pairs)), devices)
    expected = evaluate_function(module, "main", inputs)
    names = [spec.name for spec in machine["main"].params]
    given_inputs = [on_some_device(*pair, devices, machine) for pair in zip(inputs, places, strict=False)]
    for on_device in (True, False, True):
        found = machine.run("main", dict(zip(names, given_inputs, strict=True)), on_device=on_device)
        found = found if isinstance(found, tuple) else (found,)
        if not on_device and any(isinstance(value, DeviceArray) for value in found):
            return False
        if not all(np.array_equal(as_host(have), want) for have, want in zip(found, expected, strict=True)):
            return False
    kept = zip(given_inputs, inputs, strict=True)
    return all(np.array_equal(as_host(v._array if isinstance(v, Foreign) else v), want) for v, want in kept)


SQUARE = [np.arange(12, dtype=np.float32).reshape(3, 4) - 5, np.ones((3, 4), np.float32)]
PLACES = st.lists(st.integers(0, 5), min_size=4, max_size=4)


@given(st.data(), PLACES)
@settings(deadline=None)
def test_arrays_lie_anywhere(data: st.DataObject, places: list[int]) -> None:
    module = straight_line(data.draw)
    note(str(module))
    pairs = devices_of(data.draw, HOSTED)
    assert calls_agree(module, pairs, SQUARE, places)
    check_freed([device for device, _ in pairs])


@given(st.data(), PLACES)
@settings(deadline=None)
def test_arrays_lie_anywhere_around_branches_and_loops(data: st.DataObject, places: list[int]) -> None:
    module = Maker(data.draw).module()
    note(str(module))
    pairs = devices_of(data.draw, ("negative", "abs", "nn.relu", "add", "subtract", "maximum", "sum", "less"))
    table = np.random.default_rng(1).integers(-3, 4, (3, 3)).astype(np.float32)
    inputs = [np.array(data.draw(st.booleans())), np.int64(2), np.array([1.5, -2.0, 0.25], np.float32), table]
    assert calls_agree(module, pairs, inputs, places)
    check_freed([device for device, _ in pairs])


def test_a_chain_of_calls_copies_nothing_between_the_calls() -> None:
    """A value fed from call to call on one device crosses to the device once and back once."""
    for length in (1, 2, 5):
        device = npu()
        body = "".join(f"    v{i + 1} = R.add(v{i}, v{i})\n" for i in range(length))
        machine = machine_on(parse(f"def main(v0: {t(4)}):\n{body}    return v{length}"), device, ["add"])
        value: Any = X
        for _ in range(6):
            value = machine.run("main", {"v0": value}, on_device=True)
        np.testing.assert_array_equal(value.numpy(), X * 2 ** (6 * length))
        assert copies(device) == (1, 1, 0)


# -- faults ---------------------------------------------------------------------------------------------------


def check_calls(body: str) -> None:
    """Check calls of a function with arrays on the device and on the host in turn."""
    module = parse(f"def main(x: {t(4)}):\n    {body.replace('; ', chr(10) + '    ')}")
    device = npu()
    machine = machine_on(module, device)
    x = DeviceArray.copy_of(X, device)
    for value in (x, X + 1, x, X - 1):
        found = machine.run("main", {"x": value}, on_device=True)
        expected = evaluate_function(module, "main", [as_host(value)])
        for have, want in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            np.testing.assert_array_equal(as_host(have), want)
    np.testing.assert_array_equal(x.numpy(), X)


def place_without_inputs(places: Any, registers: Any, arrays: Any, placed: PlacedArguments, views_of: Any) -> None:
    """Forget the registers with an array of the caller before each result."""
    for index, array in arrays.items():
        contents = dict(placed.contents)
        placed.contents.clear()
        PLACE_RESULTS(places, registers, {index: array}, placed, views_of)
        placed.contents.update(contents)


INPUT_USE, REPLACE = device_arguments._RegisterUses.input_use, device_arguments._replace
PLACE_RESULTS = device_arguments.place_results

FAULTS: dict[str, tuple[object, str, object, str]] = {
    "arrays of the caller stay in the registers": (
        PlacedArguments,
        "restore",
        lambda self, registers: None,
        "a = R.negative(x); return a",
    ),
    "two results lie in one register": (
        device_values,
        "place_results",
        place_without_inputs,
        "a = R.negative(x); b = R.reshape(a, shape=(2, 2)); return a, b",
    ),
    "readers of an input on the host are overlooked": (
        device_arguments._RegisterUses,
        "input_use",
        lambda self, param, domain: replace(INPUT_USE(self, param, domain), has_other_readers=False),
        "a = R.negative(x); b = R.floor(x); return a, b",
    ),
    "views of a replaced register are overlooked": (
        device_arguments,
        "_replace",
        lambda registers, placed, number, tensor, views_of: REPLACE(registers, placed, number, tensor, {}),
        "a = R.negative(x); b = R.reshape(a, shape=(2, 2)); h = R.floor(b); c = R.exp(b); return a, h, c",
    ),
    "a copy is left out though the register is overwritten in place": (
        device_arguments._RegisterUses,
        "_replaceable",
        lambda self, target, index: target,
        "",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, broken, body = FAULTS[name]

    def check() -> None:
        check_calls(body) if body else check_inputs_are_kept()

    check()
    monkeypatch.setattr(owner, attribute, broken)
    with pytest.raises((AssertionError, ExecutionError)):
        check()
