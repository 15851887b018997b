"""Functions of a device as functions of the host's arrays: each call copies all arrays to the device and back.

For calls of a single function, as in tests and by a debugger; a machine copies only what crosses a border.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from byoc_core.errors import CallError
from byoc_core.runtime.delegating import DelegatingModule
from byoc_core.runtime.devices import Device, DeviceMemory, DeviceTensor, find_device, label_of
from byoc_core.runtime.module import CallTraits, MemoryDomain, NDArray, PackedFunction, RuntimeModule

__all__ = ["StagedModule", "stage_function"]

FindDevice = Callable[[MemoryDomain], Device]


def stage_function(module: RuntimeModule, name: str, find: FindDevice | None = None) -> PackedFunction:
    """Return a function of a device as a function of the host's arrays.

    Args:
        module: a module with a function in the memory of a device.
        name: the function.
        find: returns the device of a domain; by default the first device of the module's runtime.
    """
    function = module.find_function(name)
    domain = module.call_traits(name).domain
    assert domain is not None

    def call(*arrays: NDArray) -> None:
        if function.signature is None:
            raise CallError(f"function `{name}`", "runs on a device and declares no signature")
        device = _device_of(module, domain) if find is None else find(domain)
        _call_on(device, function, arrays, len(function.signature.inputs), len(function.signature.outputs))

    return PackedFunction(name, call, function.signature)


def _device_of(module: RuntimeModule, domain: MemoryDomain) -> Device:
    from byoc_core.runtime.registry import runtimes

    found = runtimes().get(module.type_key).devices()
    device = find_device(found, domain, 0)
    if device is None:
        labels = ", ".join(map(label_of, found)) or "no device"
        raise CallError(f"device `{domain.name}:0`", "is not on this machine", got=labels)
    return device


def _call_on(
    device: Device, function: PackedFunction, arrays: Sequence[NDArray], num_inputs: int, num_outputs: int
) -> None:
    memories = [DeviceMemory(device, max(array.nbytes, 1)) for array in arrays]
    tensors = [
        DeviceTensor(memory.buffer, 0, array.dtype.name, array.shape)
        for memory, array in zip(memories, arrays, strict=True)
    ]
    inputs = [np.ascontiguousarray(array).reshape(array.shape) for array in arrays[:num_inputs]]
    outputs = [np.empty(array.shape, array.dtype) for array in arrays[num_inputs : num_inputs + num_outputs]]
    stream = device.new_stream()
    try:
        for array, tensor in zip(inputs, tensors, strict=False):
            if array.size:
                device.copy_in(array, tensor, stream)
        function.impl(stream, *tensors)
        for array, tensor in zip(outputs, tensors[num_inputs:], strict=False):
            if array.size:
                device.copy_out(tensor, array, stream)
        device.wait(device.record(stream))
    finally:
        device.close_stream(stream)
    for array, target in zip(outputs, arrays[num_inputs:], strict=False):
        target[...] = array


class StagedModule(DelegatingModule):
    """A module with functions of a device as functions of the host's arrays; other functions are unchanged.

    Args:
        inner: the module.
        find: see :func:`stage_function`.
    """

    def __init__(self, inner: RuntimeModule, find: FindDevice | None = None) -> None:
        super().__init__(inner)
        self._find = find

    def call_traits(self, name: str) -> CallTraits:
        """Return the plain contract for a function of a device, else the inner function's permissions."""
        traits = self.inner.call_traits(name)
        return traits if traits.domain is None else CallTraits(workspace_nbytes=traits.workspace_nbytes)

    def find_function(self, name: str) -> PackedFunction:
        """Return the function."""
        if self.inner.call_traits(name).domain is None:
            return self.inner.find_function(name)
        return stage_function(self.inner, name, self._find)
