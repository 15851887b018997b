"""Programs and devices of the tests of arrays on devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.errors import CallError
from byoc_core.ir import IRModule
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.runtime.protected_device import ProtectedDevice

from core.tests.devices.device_states import on_npu
from core.tests.devices.toys import build_on, run_on, toy_of
from core.tests.lower.test_states import call, module, t

X = np.array([1.5, -2.0, 0.25, 3.0], np.float32)
PLAIN = parse(f"def main(x: {t(4)}):\n    a = R.negative(x)\n    b = R.exp(a)\n    return b")
IN_PLACE = module(f"x: {t(4)}, y: {t(4)}", f"z = {call('add_in_place', 'x', 'y')}\nreturn z", "()")


def npu(**options: Any) -> ProtectedDevice:
    return ProtectedDevice("npu", is_lazy=True, **options)


def machine_on(module: IRModule, device: ProtectedDevice, ops: Sequence[str] = ("negative", "exp")) -> VirtualMachine:
    return run_on(build_on(module, toy_of(device, ops)), device)


def copies(device: ProtectedDevice) -> tuple[int, int, int]:
    counts = device.counts
    return counts.copies_in, counts.copies_out, counts.copies_within


class Foreign:
    """A tensor of another package: nothing but the methods of DLPack."""

    def __init__(self, array: DeviceArray, device: tuple[int, int] | None = None) -> None:
        self._array = array
        self._device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device or self._array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> object:
        return self._array.__dlpack__(**options)


def refusal(use: Any) -> str:
    """Return the error of a call."""
    with pytest.raises((CallError, BufferError)) as caught:
        use()
    return str(caught.value)


def check_inputs_are_kept() -> None:
    """Check that a function overwriting an operand in place leaves an input on the device as it was."""
    """A function may write its result in place of a copy of the input, and gets a copy on the device."""
    device = npu()
    machine = on_npu(IN_PLACE, device)
    x, y = DeviceArray.copy_of(X, device), DeviceArray.copy_of(X, device)
    before = device.counts.copies_within
    z = machine.run("main", {"x": x, "y": y}, on_device=True)
    assert device.counts.copies_within == before + 1
    for found, want in ((x, X), (y, X), (z, X + X)):
        np.testing.assert_array_equal(found.numpy(), want)
