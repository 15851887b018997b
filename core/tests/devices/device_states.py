"""Programs and devices of the tests of states on devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from byoc_core import VirtualMachine
from byoc_core.artifact import Executable
from byoc_core.ir import IRModule
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.lower import lower
from byoc_core.runtime.devices import DeviceTensor, MemoryDomain
from byoc_core.runtime.module import CallTraits, NDArray, PackedFunction
from byoc_core.runtime.protected_device import DeviceStream, ProtectedDevice
from byoc_core.vm import verify as verify_program

from core.tests.devices.toys import run_on
from core.tests.lower.test_states import TRAITS, call, module, t
from core.tests.lower.view_modules import TraitModule

X = np.array([1.5, -2.0, 0.25, 3.0], np.float32)


class OnDevices(TraitModule):
    """The functions of a trait module, each in the memory of the host or of a device.

    Args:
        places: the memory of the functions on devices, by name.
        failing: functions raising an error when the work runs.
    """

    def __init__(self, places: Mapping[str, MemoryDomain], failing: Sequence[str] = ()) -> None:
        super().__init__(TRAITS)
        self.places = dict(places)
        self.failing = failing

    def call_traits(self, name: str) -> CallTraits:
        return replace(super().call_traits(name), domain=self.places.get(name))

    def find_function(self, name: str) -> PackedFunction:
        function = super().find_function(name)
        if name not in self.places:
            return function

        def run(*arrays: NDArray) -> None:
            if name in self.failing:
                raise RuntimeError(f"{name} fails on the device")
            function.impl(*arrays)

        def enqueue(stream: DeviceStream, *tensors: DeviceTensor) -> None:
            stream.launch(run, tensors)

        return PackedFunction(name, enqueue)


def placed(source: IRModule, places: Mapping[str, MemoryDomain], failing: Sequence[str] = ()) -> IRModule:
    return source.with_attrs(**{EXTERNAL_MODULES: (OnDevices(places, failing),)})


def executable_of(source: IRModule) -> Executable:
    program = lower(source)
    verify_program(program)
    return Executable(program, source.attrs[EXTERNAL_MODULES], source.constants)


def on_npu(source: IRModule, device: ProtectedDevice, names: Sequence[str] = tuple(TRAITS)) -> VirtualMachine:
    return run_on(executable_of(placed(source, dict.fromkeys(names, device.domain))), device)


COUNTER = module(f"x: {t(4)}, h: {t(4)}", f"y = {call('add_in_place', 'h', 'x')}\nreturn y", '(("h", "y"),)')
CACHE = module(
    f"r: {t('n', 4)}, m: {t('p', 4)}",
    f"a = {call('next', 'r', shape=('n', 4))}\n"
    "m1 = R.concat(m, a, axis=0)\n"
    f"y = {call('next', 'm1', shape=('n+p', 4))}\n"
    "return m1, y",
    '(("m", "m1", 0),)',
)


def npu(**options: Any) -> ProtectedDevice:
    return ProtectedDevice("npu", is_lazy=True, **options)
