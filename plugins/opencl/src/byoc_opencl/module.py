"""The module of compiled regions: functions enqueueing launches on a command queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from byoc_core.dims import evaluate
from byoc_core.dtypes import dtype_info
from byoc_core.errors import ExecutionError
from byoc_core.runtime.devices import DeviceMemory, DeviceTensor, sizes_of_call
from byoc_core.runtime.module import CallTraits, PackedFunction, RuntimeModule, Signature

from byoc_opencl.program import DOMAIN, DeviceFunction, DeviceProgram

if TYPE_CHECKING:
    from byoc_opencl.device import BuiltProgram, Kernel, OpenClDevice, OpenClStream

__all__ = ["OpenClModule"]

_MOST_CALLS = 64
"""Sets of sizes with evaluated launches kept for each function."""

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class _SizedLaunch:
    """A launch at the sizes of a call: kernel, memory, sizes, and rounds above 0."""

    kernel: str
    memory: tuple[int, ...]
    sizes: tuple[np.int64, ...]
    rounds: int


@dataclass(frozen=True, slots=True)
class _SizedCall:
    """A function at the sizes of a call: the parts of the workspace, the workspace's bytes, and the launches."""

    parts: tuple[tuple[str, int], ...]
    workspace_nbytes: int
    launches: tuple[_SizedLaunch, ...]


class OpenClModule(RuntimeModule):
    """A module of compiled regions. A driver compiles the kernels at the first call on each device.

    Args:
        program: the functions.
    """

    type_key = "opencl"

    def __init__(self, program: DeviceProgram) -> None:
        self.program = program
        self._functions = {function.name: function for function in program.functions}
        self._calls: dict[str, dict[Shapes, _SizedCall]] = {name: {} for name in self._functions}
        self._built: WeakKeyDictionary[OpenClDevice, BuiltProgram] = WeakKeyDictionary()

    @property
    def function_names(self) -> tuple[str, ...]:
        """The names of all functions."""
        return tuple(self._functions)

    def find_signature(self, name: str) -> Signature:
        """Return the signature of a function."""
        return self._functions[name].signature

    def call_traits(self, name: str) -> CallTraits:
        """Return the workspace of a function, and the memory of OpenCL devices."""
        return CallTraits(workspace_nbytes=self._functions[name].workspace_nbytes, domain=DOMAIN)

    def find_function(self, name: str) -> PackedFunction:
        """Return a function enqueueing its launches on a stream."""
        function = self._functions[name]

        def enqueue(stream: OpenClStream, *tensors: DeviceTensor) -> None:
            self._enqueue(function, stream, tensors)

        return PackedFunction(name, enqueue, function.signature)

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the interface's keyword
        """Return the kernels in OpenCL C."""
        return self.program.source if format in ("", "cl") else ""

    @property
    def is_native(self) -> bool:
        """``True``: kernels are code, compiled by a driver."""
        return True

    @property
    def uses_threads(self) -> bool:
        """``False``: the threads of a driver are its own."""
        return False

    def _enqueue(self, function: DeviceFunction, stream: OpenClStream, tensors: Sequence[DeviceTensor]) -> None:
        specs = (*function.signature.inputs, *function.signature.outputs)
        call = self._call_of(function, tensors[: len(specs)])
        if not call.launches:
            return
        kernels = self._kernels(stream.device)
        memory = [(tensor.buffer, tensor.offset) for tensor in tensors[: len(specs)]]
        if call.parts:
            if len(tensors) > len(specs):
                workspace, start = tensors[-1].buffer, tensors[-1].offset
            else:
                own = DeviceMemory(stream.device, max(call.workspace_nbytes, 1))
                stream.hold(own)
                workspace, start = own.buffer, 0
            memory += [(workspace, start + offset) for _, offset in call.parts]
        itemsizes = [dtype_info(dtype).itemsize for dtype in function.dtypes]
        offsets = [np.int64(offset // nbytes) for nbytes, (_, offset) in zip(itemsizes, memory, strict=True)]
        for launch in call.launches:
            arguments: list[object] = []
            for number in launch.memory:
                arguments += [memory[number][0], offsets[number]]
            kernels[launch.kernel].launch(stream.queue, [*arguments, *launch.sizes], launch.rounds)

    def _kernels(self, device: OpenClDevice) -> Mapping[str, Kernel]:
        """Return the kernels for a device, compiled at the first request."""
        program = self._built.get(device)
        if program is None:
            program = self._built[device] = device.build(self.program.source)
        return program.kernels

    def _call_of(self, function: DeviceFunction, tensors: Sequence[DeviceTensor]) -> _SizedCall:
        """Return the launches for the sizes of a call."""
        calls, shapes = self._calls[function.name], tuple(tensor.shape for tensor in tensors)
        call = calls.get(shapes)
        if call is None:
            if len(calls) >= _MOST_CALLS:
                calls.clear()
            call = calls[shapes] = _sized_call(function, sizes_of_call(function.signature, tensors))
        return call


def _sized_call(function: DeviceFunction, sizes: dict[str, int]) -> _SizedCall:
    """Return a function at the sizes of a call.

    Raises:
        ExecutionError: a part of the workspace lies outside of the workspace, or is not aligned.
    """
    nbytes = evaluate(function.workspace_nbytes, sizes)
    parts = []
    for part in function.parts:
        offset, end = evaluate(part.offset, sizes), evaluate(part.offset + part.nbytes, sizes)
        if not 0 <= offset <= end <= nbytes or offset % dtype_info(part.dtype).itemsize:
            raise ExecutionError(f"function `{function.name}`", "has memory outside of its workspace", got=offset)
        parts.append((part.dtype, offset))
    launches = [
        _SizedLaunch(
            launch.kernel,
            launch.memory,
            tuple(np.int64(evaluate(size, sizes)) for size in launch.sizes),
            evaluate(launch.rounds, sizes),
        )
        for launch in function.launches
    ]
    return _SizedCall(tuple(parts), nbytes, tuple(launch for launch in launches if launch.rounds > 0))
