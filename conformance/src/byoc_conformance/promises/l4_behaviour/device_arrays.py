"""Arrays left in the memory of a device: results read by the next call, and the exchange by DLPack."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
from byoc_core import VirtualMachine
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.runtime.devices import Device, label_of
from byoc_core.transform import evaluate_function

from byoc_conformance.counting_device import CountingDevice
from byoc_conformance.examples import Array, Example, compile_examples
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.device_states import state_pairs
from byoc_conformance.promises.l4_behaviour.devices import devices_of
from byoc_conformance.promises.l4_behaviour.running import agree
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_STEPS = 3


def _check_arrays(subject: Subject, case: str) -> None:
    device = devices_of(subject)[0]
    attempt = compile_examples(subject)
    num_checked = 0
    for example, param, result in state_pairs(subject):
        if len(attempt.regions[example.function]) == 1 and attempt.is_claimed(example.function):
            counting = CountingDevice(device)
            machine = VirtualMachine(attempt.only([example.function]).executable, devices=_devices(counting))
            num_checked += _check_example(subject, machine, counting, example, param, result)
            del machine
            gc.collect()
            if counting.work.live_buffers or counting.work.live_streams:
                raise FailedError(f"{example.name}: buffers or streams outlive the machine and all arrays")
    if not num_checked:
        raise NotCoveredError("no example on a device has an input and a result of one type")


def _devices(device: Device) -> dict[str, Device]:
    return {device.domain.name: device}


def _check_example(
    subject: Subject, machine: VirtualMachine, counting: CountingDevice, example: Example, param: int, result: int
) -> bool:
    """Feed a result into the next call; return ``False`` if the result is not made on the device."""
    names = example.module[example.function].input_names
    values: dict[str, Any] = dict(zip(names, example.new_inputs(), strict=True))
    for step in range(_STEPS):
        inputs = [_on_host(value) for value in values.values()]
        counted = counting.work.copies_in, counting.work.copies_out
        found = machine.run(example.function, values, on_device=True)
        changes = counting.work.copies_in - counted[0], counting.work.copies_out - counted[1]
        results = found if isinstance(found, tuple) else (found,)
        if not all(isinstance(value, DeviceArray) for value in results):
            return False
        on_host = sum(not isinstance(value, DeviceArray) for value in values.values())
        if changes[0] > on_host or changes[1]:
            raise FailedError(
                f"{example.name}: a call with {on_host} inputs on the host copied {changes[0]} values to the device, "
                f"and {changes[1]} from the device, with all results left there"
            )
        expected = evaluate_function(example.module, example.function, inputs)
        arrays = tuple(_on_host(value) for value in results)
        agree(subject, example, inputs, arrays, expected, f"with results left on the device, step {step}")
        values[names[param]] = results[result]
    return True


def _on_host(value: Any) -> Array:
    return value.numpy() if isinstance(value, DeviceArray) else value


def _dlpack_devices(subject: Subject) -> list[Device]:
    """Return the devices exchanging tensors by DLPack.

    Raises:
        NotCoveredError: there are none.
    """
    found = [device for device in devices_of(subject) if device.dlpack_device is not None]
    if not found:
        raise NotCoveredError("the devices of the backend have no DLPack device")
    return found


def _check_dlpack(subject: Subject, case: str) -> None:
    content = np.arange(12, dtype=np.float32).reshape(3, 4)
    for device in _dlpack_devices(subject):
        for is_adopted_first in (True, False):
            counting = CountingDevice(device)
            array = DeviceArray.copy_of(content, counting)
            adopted = DeviceArray.of_dlpack(array, counting)
            pair = [array, adopted] if is_adopted_first else [adopted, array]
            del array, adopted
            pair.pop()
            gc.collect()
            try:
                values = pair[0].numpy()
            except Exception as error:
                raise FailedError(
                    f"device `{label_of(device)}`: a tensor shared by DLPack is unusable after its other owner: {error}"
                ) from error
            if not np.array_equal(values, content):
                raise FailedError(f"device `{label_of(device)}`: a tensor has other elements through DLPack")
            pair.clear()
            gc.collect()
            if counting.work.live_buffers:
                raise FailedError(f"device `{label_of(device)}`: a tensor shared by DLPack is never freed")


def _check_overlaps(subject: Subject, case: str) -> None:
    for device in _dlpack_devices(subject):
        _check_overlapping_arrays(device)
        attempt = compile_examples(subject)
        for example, param, result in state_pairs(subject):
            if len(attempt.regions[example.function]) == 1 and attempt.is_claimed(example.function):
                machine = VirtualMachine(attempt.only([example.function]).executable, devices=_devices(device))
                if device in machine.devices.values():
                    _check_output_over_input(subject, machine, device, example, param, result)


def _check_overlapping_arrays(device: Device) -> None:
    full, other = (DeviceArray.empty(device, "float32", (4, 16), "tensor") for _ in range(2))
    last_rows = DeviceArray(device, full, full.tensor.part(128, (2, 16)))
    shared = DeviceArray.of_dlpack(full, device)
    shared_rows = DeviceArray.of_dlpack(last_rows, device)
    for left, right, overlaps in (
        (full, shared, True),
        (shared, DeviceArray.of_dlpack(full, device), True),
        (shared, shared_rows, True),
        (shared_rows, last_rows, True),
        (shared_rows, shared.first_rows(0, 2), False),
        (shared_rows, shared.first_rows(0, 3), True),
        (shared, other, False),
    ):
        if not left.overlaps(right) == right.overlaps(left) == overlaps:
            raise FailedError(
                f"device `{label_of(device)}`: tensors {'with' if overlaps else 'without'} common bytes, shared by "
                f"DLPack, are {'not ' * overlaps}taken for overlapping: see `Device.memory_of`"
            )


def _check_output_over_input(
    subject: Subject, machine: VirtualMachine, device: Device, example: Example, param: int, result: int
) -> None:
    """Call a function with a result in the memory of an input, adopted once more."""
    function = example.module[example.function]
    inputs = example.new_inputs()
    expected = evaluate_function(example.module, example.function, inputs)
    values: dict[str, Any] = dict(zip(function.input_names, inputs, strict=True))
    array = values[function.input_names[param]] = DeviceArray.copy_of(inputs[param], device)
    buffer = DeviceArray.of_dlpack(array, device)
    found = machine.run(example.function, values, {machine[example.function].results[result].name: buffer})
    arrays = tuple(_on_host(value) for value in (found if isinstance(found, tuple) else (found,)))
    agree(subject, example, inputs, arrays, expected, "with a result in the memory of an input, adopted once more")


PROMISES = (
    Promise(
        Level.L4,
        "device-arrays",
        "leaves results in the memory of a device, and reads them there in the next call without a copy",
        _check_arrays,
    ),
    Promise(
        Level.L4,
        "device-dlpack",
        "shares tensors in the memory of a device by DLPack, each alive as long as an owner",
        _check_dlpack,
    ),
    Promise(
        Level.L4,
        "device-overlaps",
        "tells memory shared by DLPack from other memory: no function writes memory of an input before the reads",
        _check_overlaps,
    ),
)
