"""Modules and machines with two devices of one memory domain, for tests."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np
from byoc_core import VirtualMachine
from byoc_core import script as R
from byoc_core.artifact import Executable
from byoc_core.ir import IRModule
from byoc_core.partitioning import PartitionOptions
from byoc_core.runtime.protected_device import ProtectedDevice

from core.tests.devices.toys import DeviceToy, build_on

__all__ = ["CALLING", "PIPE", "X", "check_freed", "machine_of", "named", "placed", "two_devices"]

X = np.array([[1.5, -2.0, 0.25], [3.0, -1.0, 8.0]], np.float32)
PIPE = R.parse(
    """
def main(x: R.Tensor((2, 3))):
    a = R.abs(x)
    b = R.exp(a)
    c = R.negative(b)
    d = R.add(c, a)
    return d
"""
)

CALLING = R.parse(
    """
def f(x: R.Tensor((2, 3))):
    e = R.exp(x)
    return e

def main(x: R.Tensor((2, 3))):
    b = f(x)
    c = R.exp(b)
    return c
"""
)


def two_devices(**choices: Any) -> list[ProtectedDevice]:
    return [ProtectedDevice("npu", index, **{"is_lazy": True, **choices}) for index in range(2)]


def named(executable: Executable, devices: Sequence[ProtectedDevice]) -> dict[str, ProtectedDevice]:
    """Return the device for each domain of a program, by the number of the device."""
    program = executable.program
    numbers = [program.device_number(domain) for domain in range(1, len(program.domains) + 1)]
    return {name: devices[number] for name, number in zip(program.domain_names, numbers, strict=True)}


def machine_of(executable: Executable, devices: Sequence[ProtectedDevice]) -> VirtualMachine:
    return VirtualMachine(executable, devices=named(executable, devices))


def placed(module: IRModule, toy: DeviceToy | None = None, **options: Any) -> Executable:
    return build_on(module, toy or DeviceToy(), partition_options=PartitionOptions(**options))


def check_freed(devices: Sequence[ProtectedDevice]) -> None:
    gc.collect()
    for device in devices:
        assert (device.counts.live_buffers, device.counts.live_bytes, device.counts.live_streams) == (0, 0, 0)
