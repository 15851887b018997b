"""The devices of a machine: memory and streams of running calls, and the waits of the host for pending copies.

The work of a call runs on one stream for each device. The host goes on at once; before an instruction of the host uses
memory of a pending copy, and before results are returned, the host waits for an event of the stream.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.errors import CallError, ExecutionError
from byoc_core.runtime.device_arrays import DeviceArray, allocate_memory
from byoc_core.runtime.devices import Device, DeviceMemory, DeviceTensor, label_of
from byoc_core.runtime.memory import Pool
from byoc_core.runtime.module import NDArray
from byoc_core.vm.constant_places import constants_by_domain, place_constants
from byoc_core.vm.device_arguments import Replacement
from byoc_core.vm.program import HOST, Program

if TYPE_CHECKING:
    from byoc_core.vm.frame import Frame

__all__ = ["DeviceRun", "MachineDevices"]


_MOST_PENDING = 8
"""Pieces of pending work kept for a register; one more waits for the oldest."""


class MachineDevices:
    """The devices of a machine by domain, and the program's constants on each device.

    Args:
        program: a verified program.
        devices: the device of each domain of the program.
        constants: the program's constants.

    Raises:
        ExecutionError: a device has no memory for the constants, or a copy failed.
    """

    def __init__(self, program: Program, devices: Sequence[Device], constants: Sequence[NDArray]) -> None:
        self._devices = tuple(devices)
        self._program = program
        self._constants: dict[tuple[int, int], DeviceTensor] = {}
        self._memories: list[DeviceMemory] = []
        for domain, sizes in constants_by_domain(program).items():
            self._upload(domain, sizes, constants)

    def __getitem__(self, domain: int) -> Device:
        """Return the device of a domain."""
        return self._devices[domain - 1]

    def __iter__(self) -> Iterator[Device]:
        """Yield the devices, in the order of the domains."""
        return iter(self._devices)

    def domain_of(self, device: Device) -> int | None:
        """Return the domain of a device; ``None`` for a device of no domain."""
        return next((number for number, own in enumerate(self._devices, start=1) if own is device), None)

    def adopt(self, value: object, where: str) -> DeviceArray | None:
        """Return another package's tensor on one of the devices as an array; ``None`` for all other values.

        Devices of different domains may have the same DLPack device: the first device able to use the memory is taken.

        Raises:
            CallError: no device can use the tensor.
        """
        find_device = getattr(value, "__dlpack_device__", None)
        if find_device is None:
            return None
        try:
            device_type, number = find_device()
            key = int(device_type), int(number)
        except Exception:  # noqa: BLE001 - code of the producer; the conversion for the host reports the error
            return None
        failure: CallError | None = None
        for device in self._devices:
            if device.dlpack_device == key:
                try:
                    return DeviceArray.of_dlpack(value, device, where)
                except CallError as error:
                    failure = failure or error
        if failure is not None:
            raise failure
        return None

    def constant(self, number: int, domain: int) -> DeviceTensor:
        """Return a constant of the program in the memory of a domain."""
        return self._constants[number, domain]

    @property
    def program(self) -> Program:
        """The program with the domains."""
        return self._program

    def allocate(self, domain: int, nbytes: int, where: str, pool: str | None = None) -> DeviceMemory:
        """Return memory of a device, in a pool or chosen by the device, freed with the returned object.

        Raises:
            ExecutionError: the device has no such memory left, or failed otherwise.
        """
        return allocate_memory(self[domain], nbytes, where, pool)

    def allocate_preferring(self, domain: int, nbytes: int, where: str, pool: Pool | None) -> DeviceMemory:
        """Return memory in a pool; if a pool with a limit has no room, return memory chosen by the device.

        Raises:
            ExecutionError: the device has no such memory left, or failed otherwise.
        """
        if pool is not None:
            try:
                return self.allocate(domain, nbytes, where, pool.name)
            except ExecutionError as error:
                if pool.nbytes is None or not isinstance(error.__cause__, MemoryError):
                    raise
        return self.allocate(domain, nbytes, where)

    def _upload(self, domain: int, sizes: Mapping[int, int], constants: Sequence[NDArray]) -> None:
        """Copy constants into one buffer for each pool of a device, and wait for the copies.

        Without room in a pool, because another domain or machine fills the pool, the buffer lies in memory chosen by
        the device.
        """
        device = self[domain]
        declared = self._program.domains[domain - 1]
        found = place_constants(declared, sizes)
        pools: dict[str | None, Pool] = {pool.name: pool for pool in declared.pools}
        memories = {
            name: self.allocate_preferring(domain, nbytes, "constants", pools.get(name))
            for name, nbytes in found.nbytes.items()
        }
        self._memories += memories.values()
        try:
            stream = device.new_stream()
            try:
                for number in sizes:
                    array, dtype = constants[number], self._program.constants[number].dtype
                    pool, offset = found.locations[number]
                    tensor = DeviceTensor(memories[pool].buffer, offset, dtype, array.shape)
                    self._constants[number, domain] = tensor
                    if array.size:
                        device.copy_in(array, tensor, stream)
                device.wait(device.record(stream))
            finally:
                device.close_stream(stream)
        except Exception as error:
            problem = f"cannot be copied to device `{label_of(device)}`: {type(error).__name__}: {error}"
            raise ExecutionError("constants", problem) from error


class DeviceRun:
    """The streams, memory and pending copies of a call; used again by later calls with the same frame.

    Args:
        devices: the devices of the machine.
        where: the function, for errors.
        describe: returns the text of an instruction by number, for errors.

    Attributes:
        replacements: by instruction, the work in place of copies left out by this call.
    """

    __slots__ = (
        "__weakref__",
        "_arenas",
        "_describe",
        "_devices",
        "_dynamics",
        "_enqueued",
        "_maps",
        "_pending",
        "_streams",
        "_tensors",
        "_where",
        "replacements",
    )

    def __init__(self, devices: MachineDevices, where: str, describe: Callable[[int], str]) -> None:
        self._devices = devices
        self._where = where
        self._describe = describe
        self.replacements: Mapping[int, Replacement] = {}
        # By domain and pool.
        self._arenas: dict[tuple[int, int], DeviceMemory] = {}
        # The arenas visible to the host, as arrays; and the tensors of registers holding arrays in such memory.
        self._maps: dict[tuple[int, int], NDArray] = {}
        self._tensors: dict[int, DeviceTensor] = {}
        # By register: the memory of a size known only while the function runs.
        self._dynamics: dict[int, DeviceMemory] = {}
        self._streams: dict[int, object] = {}
        # The instructions with work on each stream since the last wait.
        self._enqueued: dict[int, dict[int, None]] = {}
        # By register visible to the host: domain and event of work on the memory, and the array of a copy.
        self._pending: dict[int, list[tuple[int, object, NDArray | None]]] = {}
        weakref.finalize(self, _close_streams, devices, self._streams)

    def resize(self, nbytes: Mapping[tuple[int, int], int]) -> None:
        """Allocate the arena of each domain and pool; an arena grows if necessary, otherwise stays.

        Without room in a pool, because other calls hold its memory, an arena lies in memory chosen by the device.

        Raises:
            ExecutionError: a device has no such memory left.
        """
        for key, size in nbytes.items():
            domain, number = key
            arena = self._arenas.pop(key, None)
            self._maps.pop(key, None)
            if arena is None or arena.nbytes < size:
                arena = None  # freed before the larger arena is allocated
                pool = self._devices.program.pool(domain, number)
                arena = self._devices.allocate_preferring(domain, size, self._where, pool)
            self._arenas[key] = arena
            if self._devices[domain].domain.host_accessible:
                self._maps[key] = self._devices[domain].map(arena.buffer)

    def content_at(
        self, number: int, memory: tuple[int, int], offset: int, dtype: str, shape: tuple[int, ...]
    ) -> DeviceTensor | NDArray:
        """Return the content of register ``number`` at an offset into the arena of a domain and pool.

        The content is an array if the host uses the memory in place, else the tensor.
        """
        tensor = DeviceTensor(self._arenas[memory].buffer, offset, dtype, shape)
        return self._content(number, tensor, self._maps.get(memory))

    def content_of(self, number: int, array: DeviceArray) -> DeviceTensor | NDArray:
        """Return the content of register ``number`` for a device array, to be kept by the caller during the call."""
        device, tensor = array.device, array.tensor
        return self._content(number, tensor, device.map(tensor.buffer) if device.domain.host_accessible else None)

    def tensor_of(self, frame: Frame, number: int) -> DeviceTensor:
        """Return the tensor of a register on a device; the register may hold an array over the same memory."""
        content = frame.registers[number]
        if isinstance(content, DeviceTensor):
            return content
        found = self._tensors.get(number)
        if found is None:  # a view
            base, view = frame.base_of(number)
            found = self._tensors[base].part(view.offset, view.shape)
        return found

    def leave_pending(self, domain: int, numbers: Iterable[int]) -> None:
        """Note that work on registers visible to the host is under way."""
        if domain not in self._streams:
            return  # tensors without elements
        event = self._devices[domain].record(self._streams[domain])
        for number in numbers:
            self._note(number, domain, event, None)

    def _note(self, number: int, domain: int, event: object, array: NDArray | None) -> None:
        """Note pending work on the memory of a register; an event covers the earlier work on the same array."""
        entries = self._pending.get(number, [])
        remaining = [entry for entry in entries if entry[0] != domain or entry[2] is not array]
        if len(remaining) >= _MOST_PENDING:  # copies in a loop, each of another array
            oldest_domain, oldest_event, _ = remaining.pop(0)
            self._wait(oldest_domain, oldest_event)
        self._pending[number] = [*remaining, (domain, event, array)]

    def _content(self, number: int, tensor: DeviceTensor, memory: NDArray | None) -> DeviceTensor | NDArray:
        if memory is None:
            return tensor
        self._tensors[number] = tensor
        return np.ndarray(tensor.shape, to_numpy(tensor.dtype), memory, tensor.offset)

    def allocate(self, domain: int, number: int, dtype: str, shape: tuple[int, ...]) -> DeviceTensor | NDArray:
        """Return the content of register ``number`` in fresh memory, in place of the register's earlier memory.

        Raises:
            ExecutionError: the device has no such memory left, or earlier work failed.
        """
        if number in self._dynamics:
            # Work on the earlier memory may be under way.
            if domain in self._streams:
                self._wait(domain, self._devices[domain].record(self._streams[domain]))
            del self._dynamics[number]
        nbytes = DeviceTensor(None, 0, dtype, shape).nbytes
        memory = self._dynamics[number] = self._devices.allocate(domain, nbytes, self._where)
        device = self._devices[domain]
        mapped = device.map(memory.buffer) if device.domain.host_accessible else None
        return self._content(number, DeviceTensor(memory.buffer, 0, dtype, shape), mapped)

    def stream(self, domain: int, instruction: int) -> object:
        """Return the stream for work of an instruction on the device of a domain."""
        stream = self._streams.get(domain)
        if stream is None:
            stream = self._streams[domain] = self._devices[domain].new_stream()
        self._enqueued.setdefault(domain, {})[instruction] = None
        return stream

    def copy_in(self, domain: int, instruction: int, number: int, source: NDArray, target: DeviceTensor) -> None:
        """Enqueue a copy of an array in host register ``number`` to a device."""
        if not source.size:
            return
        stream, device = self.stream(domain, instruction), self._devices[domain]
        array = source if source.flags.c_contiguous else np.ascontiguousarray(source).reshape(source.shape)
        device.copy_in(array, target, stream)
        self._note(number, domain, device.record(stream), array)

    def copy_out(self, domain: int, instruction: int, number: int, source: DeviceTensor, target: NDArray) -> None:
        """Enqueue a copy from a device into an array in host register ``number``; wait if the array has strides."""
        if not target.size:
            return
        stream, device = self.stream(domain, instruction), self._devices[domain]
        if target.flags.c_contiguous:
            device.copy_out(source, target, stream)
            self._note(number, domain, device.record(stream), target)
            return
        array = np.empty(target.shape, target.dtype)
        device.copy_out(source, array, stream)
        self._wait(domain, device.record(stream))
        target[...] = array

    def copy_within(self, domain: int, instruction: int, source: DeviceTensor, target: DeviceTensor) -> None:
        """Enqueue a copy between tensors of a device; nothing to do if the old value of a state is the new value."""
        if not source.nbytes or (source.buffer is target.buffer and source.offset == target.offset):
            return
        self._devices[domain].copy_within(source, target, self.stream(domain, instruction))

    def copy_to_peer(
        self, domains: tuple[int, int], instruction: int, source: DeviceTensor, target: DeviceTensor
    ) -> None:
        """Copy between tensors of two domains: directly, within a device serving both, or by way of the host.

        Raises:
            ExecutionError: work of a device failed.
        """
        if not source.nbytes:
            return
        leaving, entering = domains
        device, peer = self._devices[leaving], self._devices[entering]
        stream, peer_stream = self.stream(leaving, instruction), self.stream(entering, instruction)
        if device is not peer and device.copies_to(peer):
            device.copy_to_peer(source, stream, peer, target, peer_stream)
            return
        if device is peer:
            self._wait(leaving, device.record(stream))
            device.copy_within(source, target, peer_stream)
        else:
            array = np.empty(source.shape, to_numpy(source.dtype))
            device.copy_out(source, array, stream)
            self._wait(leaving, device.record(stream))
            peer.copy_in(array, target, peer_stream)
        # Later work on the other stream may overwrite the source, and the array is freed.
        self._wait(entering, peer.record(peer_stream))

    def finish(self, numbers: Iterable[int], ordered: int = HOST) -> None:
        """Wait for the pending work on the memory of registers visible to the host.

        Args:
            numbers: the registers.
            ordered: a domain whose work need not be awaited.

        Raises:
            ExecutionError: work of a device failed.
        """
        if not self._pending:
            return
        for number in numbers:
            entries = self._pending.pop(number, [])
            remaining = [entry for entry in entries if entry[0] == ordered]
            for domain, event, _ in entries:
                if domain != ordered:
                    self._wait(domain, event)
            if remaining:
                self._pending[number] = remaining

    def finish_all(self) -> None:
        """Wait for all work of the call.

        Raises:
            ExecutionError: work of a device failed.
        """
        for domain, instructions in self._enqueued.items():
            if instructions:
                device = self._devices[domain]
                self._wait(domain, device.record(self._streams[domain]))
                instructions.clear()
        self._pending.clear()

    def release(self) -> bool:
        """End the call: after a failure, wait until no work touches the call's memory, and drop the streams.

        The memory of pools with a limit is given back, for calls of other functions.

        Returns:
            Whether memory was given back: the next call calls :meth:`resize` again.
        """
        if any(self._enqueued.values()):
            _close_streams(self._devices, self._streams)
        self._enqueued.clear()
        self._pending.clear()
        self._dynamics.clear()
        self.replacements = {}
        pools = {key: self._devices.program.pool(*key) for key in self._arenas}
        limited = [key for key, pool in pools.items() if pool is not None and pool.nbytes is not None]
        for key in limited:
            del self._arenas[key]
            self._maps.pop(key, None)
        return bool(limited)

    def _wait(self, domain: int, event: object) -> None:
        device = self._devices[domain]
        try:
            device.wait(event)
        except Exception as error:
            calls = ", ".join(map(self._describe, self._enqueued[domain]))
            raise ExecutionError(
                self._where,
                f"work on device `{label_of(device)}` failed with {type(error).__name__}: {error}",
                hint=f"The work was enqueued by {calls}.",
            ) from error


def _close_streams(devices: MachineDevices, streams: dict[int, object]) -> None:
    """Close streams and forget the streams; used by a finaliser, so nothing is raised before the last is closed."""
    while streams:
        domain, stream = streams.popitem()
        devices[domain].close_stream(stream)
