"""Devices of the backend's runtime: copies, order, accesses of functions, failures of allocation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from byoc_core.runtime import RuntimeModule, runtimes
from byoc_core.runtime.devices import Device, DeviceTensor, label_of

from byoc_conformance.drawing import generator_of
from byoc_conformance.examples import Array, Example, compile_examples
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.running import require_examples
from byoc_conformance.subject import Subject

__all__ = ["PROMISES", "devices_of"]

_SIZES = (1, 3, 64, 1000, 65537)
_DTYPES = ("uint8", "float32", "float64", "int16", "bool")
_GUARD = 0x5A
"""The bytes around the tensors of a call."""
_IMPOSSIBLE = 1 << 60
"""Bytes beyond the memory of any device."""


@cache
def devices_of(subject: Subject) -> tuple[Device, ...]:
    """Return the devices of the subject's compiled functions.

    Raises:
        NotCoveredError: no function of the examples runs on a device, or the machine has no device.
    """
    require_examples(subject)
    modules = compile_examples(subject).executable.modules
    domains = {
        (module.type_key, domain)
        for module in modules
        for name in module.function_names
        if (domain := module.call_traits(name).domain) is not None
    }
    if not domains:
        raise NotCoveredError("the functions of the backend take arrays of the host")
    found = [
        device
        for type_key in dict.fromkeys(type_key for type_key, _ in domains)
        for device in runtimes().get(type_key).devices()
        if (type_key, device.domain) in domains
    ]
    if not found:
        raise NotCoveredError("this machine has no device of the backend")
    return tuple(found)


@dataclass
class _Lease:
    """Buffers and a stream of a device, for a test."""

    device: Device
    stream: object
    buffers: list[object] = field(default_factory=list)

    def tensor(self, dtype: str, shape: tuple[int, ...], guard: int = 0) -> DeviceTensor:
        """Return a tensor in a buffer of its own, with ``guard`` bytes before and after."""
        nbytes = DeviceTensor(None, 0, dtype, shape).nbytes
        self.buffers.append(self.device.allocate(max(nbytes + 2 * guard, 1)))
        return DeviceTensor(self.buffers[-1], guard, dtype, shape)

    def read(self, tensor: DeviceTensor) -> Array:
        """Return the content of a tensor, after all work enqueued."""
        array = np.empty(tensor.shape, tensor.dtype)
        self.device.copy_out(tensor, array, self.stream)
        self.device.wait(self.device.record(self.stream))
        return array


@contextmanager
def _lease(device: Device) -> Iterator[_Lease]:
    lease = _Lease(device, device.new_stream())
    try:
        yield lease
    finally:
        device.close_stream(lease.stream)
        for buffer in lease.buffers:
            device.free(buffer)


def _check_copies(subject: Subject, case: str) -> None:
    for device in devices_of(subject):
        rng = generator_of(subject.spec.seed, label_of(device))
        alignment = device.domain.alignment
        for dtype in _DTYPES:
            for size in _SIZES:
                drawn = rng.integers(0, 2 if dtype == "bool" else 100, size).astype(dtype)
                where = f"device `{label_of(device)}`, {dtype}[{size}]"
                with _lease(device) as lease:
                    first, second = (lease.tensor(dtype, (size,), alignment) for _ in range(2))
                    other = np.zeros_like(drawn)
                    device.copy_in(other, second, lease.stream)
                    device.copy_in(drawn, first, lease.stream)
                    device.copy_within(first, second, lease.stream)
                    device.copy_in(other, first, lease.stream)  # behind the copy in the order of the stream
                    for tensor, expected in ((second, drawn), (first, other)):
                        found = lease.read(tensor)
                        if found.tobytes() != expected.tobytes():
                            raise FailedError(f"{where}: copies gave other bytes, or ran out of order")


def _check_accesses(subject: Subject, case: str) -> None:
    device = devices_of(subject)[0]
    attempt = compile_examples(subject)
    owners = {name: module for module in attempt.executable.modules for name in module.function_names}
    num_checked = 0
    for example in require_examples(subject):
        for region in attempt.regions[example.function]:
            symbol = str(region.attrs["global_symbol"])
            module = owners.get(symbol)
            if module is None or len(attempt.regions[example.function]) != 1 or example.kind == "symbolic":
                continue
            if module.call_traits(symbol).domain == device.domain:
                _check_region(device, module, symbol, example)
                num_checked += 1
    if not num_checked:
        raise NotCoveredError("no example is a single function on a device")


def _check_region(device: Device, module: RuntimeModule, symbol: str, example: Example) -> None:
    """Run a function between guard bytes, and read all memory afterwards."""
    function = module.find_function(symbol)
    signature = function.signature
    if signature is None or len(signature.inputs) != len(example.inputs):
        return  # constants are inputs too
    guard = device.domain.alignment
    specs = (*signature.inputs, *signature.outputs)
    with _lease(device) as lease:
        tensors = [lease.tensor(spec.dtype, tuple(int(str(dim)) for dim in spec.shape), guard) for spec in specs]
        regions = [DeviceTensor(t.buffer, 0, "uint8", (t.nbytes + 2 * guard,)) for t in tensors]
        images = [np.full(tensor.shape, _GUARD, np.uint8) for tensor in regions]
        for image, array in zip(images, example.inputs, strict=False):
            image[guard : guard + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        for image, tensor in zip(images, regions, strict=True):
            device.copy_in(image, tensor, lease.stream)
        function.impl(lease.stream, *tensors)
        found = [lease.read(tensor) for tensor in regions]
    num_inputs = len(signature.inputs)
    for number, (before, after, spec) in enumerate(zip(images, found, specs, strict=True)):
        inner = slice(guard, len(before) - guard)
        if number < num_inputs and not np.array_equal(before, after):
            raise FailedError(f"{example.name}: the function changed the memory of input `{spec.name}` on the device")
        before[inner] = after[inner]
        if not np.array_equal(before, after):
            raise FailedError(f"{example.name}: the function wrote beyond output `{spec.name}` on the device")


def _check_memory_error(subject: Subject, case: str) -> None:
    for device in devices_of(subject):
        try:
            device.allocate(_IMPOSSIBLE)
        except MemoryError:
            pass
        except Exception as error:
            raise FailedError(
                f"device `{label_of(device)}`: an allocation of {_IMPOSSIBLE} bytes raised {type(error).__name__}"
            ) from error
        else:
            raise FailedError(f"device `{label_of(device)}`: returned a buffer of {_IMPOSSIBLE} bytes")
        with _lease(device) as lease:  # the device works afterwards
            tensor = lease.tensor("uint8", (4,))
            device.copy_in(np.arange(4, dtype=np.uint8), tensor, lease.stream)
            if lease.read(tensor).tolist() != [0, 1, 2, 3]:
                raise FailedError(f"device `{label_of(device)}`: copies other bytes after a refused allocation")


PROMISES = (
    Promise(
        Level.L4,
        "device-copies",
        "copies bytes to, from and within a device exactly, in the order of the stream",
        _check_copies,
    ),
    Promise(
        Level.L4,
        "device-accesses",
        "touches no memory of a device but the tensors of a call, and writes outputs only",
        _check_accesses,
    ),
    Promise(
        Level.L4,
        "device-memory-error",
        "refuses memory beyond the capacity of a device by `MemoryError`, and works afterwards",
        _check_memory_error,
    ),
)
