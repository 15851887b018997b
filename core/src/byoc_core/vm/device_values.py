"""Inputs and results of calls on devices: arrays of devices accepted, allocated, and placed among the registers."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc_core.errors import CallError
from byoc_core.runtime.arguments import as_input, check_dtype_and_rank
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.runtime.devices import Device, label_of
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.arena import ArenaLayout
from byoc_core.vm.device_arguments import (
    ArgumentUses,
    PlacedArguments,
    find_argument_uses,
    place_inputs,
    place_results,
)
from byoc_core.vm.device_run import MachineDevices
from byoc_core.vm.program import HOST, Program, VMFunction
from byoc_core.vm.views import ConcreteView

if TYPE_CHECKING:
    from byoc_core.vm.frame import Frame

__all__ = ["DeviceValues", "ResultTypes"]

ResultTypes = tuple[tuple[tuple[int, ...], np.dtype[Any]] | None, ...]
"""Shape and dtype of each result; ``None`` for a dynamic result."""


class DeviceValues:
    """The arguments of a function on devices.

    Args:
        program: the whole program.
        function: the function of the program.
        devices: the devices of the machine; ``None`` if all memory of the function is the host's.
    """

    def __init__(self, program: Program, function: VMFunction, devices: MachineDevices | None) -> None:
        self._program = program
        self._function = function
        self._devices = devices
        self._where = f"function `{function.name}`"
        self._num_arguments = len(function.params) + len(function.results)
        self._states = tuple(n for n in range(self._num_arguments) if function.domain_of(n) != HOST)

    @cached_property
    def _uses(self) -> ArgumentUses:
        return find_argument_uses(self._program, self._function)

    def accept_input(self, value: object, spec: TensorSpec, where: str) -> Any:
        """Return an input as an array: of a device of the function if the input lies there, else of the host.

        Raises:
            CallError: the input has another dtype or rank, or lies on another device.
        """
        if isinstance(value, np.ndarray):
            return as_input(value, spec, where)
        if isinstance(value, DeviceArray):
            self._check_device(value, where)
            array = value
        else:
            adopted = None if self._devices is None else self._devices.adopt(value, where)
            if adopted is None:
                return as_input(value, spec, where)
            array = adopted
        check_dtype_and_rank(array, spec, where)
        return as_input(array.numpy(), spec, where) if array.device.domain.host_accessible else array

    def accept_output(self, array: DeviceArray, spec: TensorSpec, where: str) -> DeviceArray:
        """Return an array on a device of the function, to be filled with a result.

        Raises:
            CallError: the array has another dtype or rank, or lies on another device.
        """
        self._check_device(array, where)
        check_dtype_and_rank(array, spec, where)
        return array

    def new_results(self, types: ResultTypes, skipped: Collection[int]) -> dict[int, DeviceArray]:
        """Return an array for each other result made by a device, in the memory of the device, by index of the result.

        Args:
            types: shape and dtype of each result.
            skipped: the results to leave out, by index.

        Raises:
            ExecutionError: a device has no such memory left.
        """
        found: dict[int, DeviceArray] = {}
        if self._devices is not None:
            for index, (spec, type_) in enumerate(zip(self._function.results, types, strict=True)):
                domain = self._uses.result_domain(index)
                if domain != HOST and type_ is not None and index not in skipped:
                    where = f"{self._where}, result `{spec.name}`"
                    found[index] = DeviceArray.empty(self._devices[domain], spec.dtype, type_[0], where)
        return found

    def is_made_on(self, index: int, device: Device) -> bool:
        """Return whether a device makes a result: a device array is then filled without a copy by the host."""
        domain = HOST if self._devices is None else self._uses.result_domain(index)
        return self._devices is not None and domain != HOST and self._devices[domain] is device

    def place_arguments(self, frame: Frame, layout: ArenaLayout, types: ResultTypes) -> PlacedArguments | None:
        """Let functions of devices read and write the device arrays among the arguments; ``None`` without such arrays.

        States of devices are placed first. A result read in the memory of the host too gets an array there.

        Args:
            frame: the frame of the call, with the arguments in registers.
            layout: the arena of the call.
            types: shape and dtype of each result.
        """
        registers, num_params = frame.registers, len(self._function.params)
        for number in self._states:
            registers[number] = frame.run_of_devices.content_of(number, registers[number])
        arrays = {n: v for n, v in enumerate(registers[: self._num_arguments]) if isinstance(v, DeviceArray)}
        if not arrays or self._devices is None:
            return None
        views: dict[int, list[ConcreteView]] = {}
        for view in layout.views:
            views.setdefault(view.base, []).append(view)
        inputs = {number: array for number, array in arrays.items() if number < num_params}
        domains = {number: self._devices.domain_of(array.device) or HOST for number, array in inputs.items()}
        placed = place_inputs(self._uses, registers, inputs, domains, views)
        results = {number - num_params: array for number, array in arrays.items() if number >= num_params}
        place_results(self._uses, registers, results, placed, views)
        for index, array in results.items():
            has_readers = self._uses.results[index].has_readers
            type_ = types[index]
            registers[num_params + index] = np.empty(*type_) if has_readers and type_ is not None else array.tensor
        frame.run_of_devices.replacements = placed.replacements
        return placed

    def _check_device(self, array: DeviceArray, where: str) -> None:
        if self._devices is None or self._devices.domain_of(array.device) is None:
            labels = ["the host's memory", *map(label_of, self._devices or ())]
            raise CallError(
                where,
                "lies on a device without functions of this call",
                got=label_of(array.device),
                expected=" or ".join(labels),
                hint="numpy() copies the elements to the host.",
            )
