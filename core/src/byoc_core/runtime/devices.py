"""Devices: memory outside the host's arrays, streams of work, and copies between device and host.

A runtime returns its devices by the hook ``byoc_devices``. A function states the memory of its tensors by
:attr:`~byoc_core.runtime.module.CallTraits.domain`; without a domain, the tensors are the host's numpy arrays.

The contract of a device, beyond the methods:

- Work on a stream runs in order; work on different streams runs in any order. A call enqueues work and may return
  before the work runs. Each stream is used by one thread at a time, the device by any number of threads.
- The arrays of a copy live unchanged until the work is done: the caller waits for an event recorded after the copy.
- A failure of enqueued work is raised by :meth:`Device.wait`, for each event recorded on the stream afterwards. Later
  work of a failed stream may be skipped. The caller closes a failed stream.
- A buffer is freed once, with no work on the buffer enqueued or running.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from byoc_core.dtypes import dtype_info
from byoc_core.errors import ExecutionError
from byoc_core.runtime.memory import MemoryDomain
from byoc_core.runtime.module import NDArray, Signature

__all__ = ["Device", "DeviceMemory", "DeviceTensor", "MemoryDomain", "find_device", "label_of", "sizes_of_call"]

_ADDRESSED = frozenset({1, 2, 3, 10, 11, 13})
"""DLPack's types of devices with addresses as data pointers: CPU, CUDA, ROCm, and their memory of the host."""


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """A C-contiguous tensor in a buffer of a device.

    Attributes:
        buffer: the buffer, as returned by :meth:`Device.allocate`.
        offset: bytes from the start of the buffer to the first element.
        dtype: the name of the dtype.
        shape: the sizes.
    """

    buffer: object
    offset: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of the tensor."""
        return prod(self.shape) * dtype_info(self.dtype).itemsize

    def part(self, offset: int, shape: tuple[int, ...]) -> DeviceTensor:
        """Return elements of the tensor as a tensor of another shape.

        Args:
            offset: bytes from the first element.
            shape: the sizes of the part.
        """
        return DeviceTensor(self.buffer, self.offset + offset, self.dtype, shape)


class Device(ABC):
    """A device of a runtime. Buffers, streams and events are objects of the runtime, opaque to the core."""

    @property
    @abstractmethod
    def domain(self) -> MemoryDomain:
        """The domain of the device's memory; several devices of a runtime share a domain, with different indexes."""

    @property
    @abstractmethod
    def index(self) -> int:
        """The number of the device among the runtime's devices of the domain, from 0."""

    @property
    def capacity(self) -> int | None:
        """The bytes of memory; ``None`` if unknown."""
        return None

    @abstractmethod
    def allocate(self, nbytes: int) -> object:
        """Return a buffer of at least ``nbytes`` bytes, aligned as stated by the domain, with undefined content.

        Raises:
            MemoryError: the device has no such memory left.
        """

    def allocate_in(self, pool: str, nbytes: int) -> object:
        """Return a buffer like :meth:`allocate`, in a pool of the domain, aligned as stated by the pool.

        Only called if the domain has pools: such a device overrides this method. :meth:`allocate` then returns memory
        of any pool, for values without a plan: states, arrays of the caller, and sizes known only while running.

        Args:
            pool: the name of the pool.
            nbytes: the size.

        Raises:
            MemoryError: the pool has no such memory left.
            ExecutionError: the device has no pools.
        """
        raise ExecutionError(
            f"device `{label_of(self)}`",
            f"allocates no memory in the pool `{pool}`, though the domain has pools",
            hint="Override `Device.allocate_in`, or declare the domain without `pools`.",
        )

    @abstractmethod
    def free(self, buffer: object) -> None:
        """Free a buffer."""

    @abstractmethod
    def new_stream(self) -> object:
        """Return a stream without work."""

    @abstractmethod
    def close_stream(self, stream: object) -> None:
        """Wait until no work of the stream runs or will run, and release the stream. Failures of work are dropped."""

    @abstractmethod
    def copy_in(self, source: NDArray, target: DeviceTensor, stream: object) -> None:
        """Enqueue a copy of a C-contiguous array of the host, of the target's dtype and shape, into a tensor."""

    @abstractmethod
    def copy_out(self, source: DeviceTensor, target: NDArray, stream: object) -> None:
        """Enqueue a copy of a tensor into a C-contiguous array of the host, of the source's dtype and shape."""

    @abstractmethod
    def copy_within(self, source: DeviceTensor, target: DeviceTensor, stream: object) -> None:
        """Enqueue a copy between tensors of this device, of equal dtype and shape, without common bytes."""

    def copies_to(self, peer: Device) -> bool:
        """Return whether :meth:`copy_to_peer` reaches another device of the same memory.

        A machine asks for each copy between two devices of a domain with ``peer_copies``. Without direct copies, the
        machine copies by way of the host.
        """
        return False

    def copy_to_peer(
        self, source: DeviceTensor, stream: object, peer: Device, target: DeviceTensor, peer_stream: object
    ) -> None:
        """Enqueue a copy into a tensor of another device, of equal dtype and shape.

        The copy runs after all work enqueued so far on both streams; later work on both streams runs after the copy. A
        failure of earlier work on one of the streams, or of the copy, is a failure of both streams.

        Only called if :meth:`copies_to` is true: such a device overrides this method.

        Args:
            source: the tensor of this device.
            stream: a stream of this device.
            peer: the other device.
            target: the tensor of the other device.
            peer_stream: a stream of the other device.

        Raises:
            ExecutionError: the device has no direct copies.
        """
        raise ExecutionError(f"device `{label_of(self)}`", f"has no copies to device `{label_of(peer)}`")

    def map(self, buffer: object) -> NDArray:
        """Return the bytes of a buffer as a writable array of one axis, valid until the buffer is freed.

        Only called if the domain is host-accessible: such a device overrides this method.

        Raises:
            ExecutionError: the device has no memory accessible to the host.
        """
        raise ExecutionError(
            f"device `{label_of(self)}`",
            "maps no memory for the host, though the domain is host-accessible",
            hint="Override `Device.map`, or declare the domain without `host_accessible`.",
        )

    @property
    def dlpack_device(self) -> tuple[int, int] | None:
        """DLPack's type and number of the device; ``None`` if arrays are not exchanged with other packages.

        A device with a DLPack device overrides :meth:`dlpack_handle` and :meth:`adopt`.
        """
        return None

    def dlpack_handle(self, buffer: object) -> int:
        """Return the data pointer of DLPack for a buffer: the address, or the handle of the driver.

        Raises:
            BufferError: the device has no DLPack device.
        """
        raise BufferError(f"device `{label_of(self)}` has no DLPack device")

    def adopt(self, handle: int, nbytes: int) -> object:
        """Return a buffer over memory of another package; :meth:`free` gives up the buffer, and leaves the memory.

        Args:
            handle: the data pointer of DLPack.
            nbytes: the bytes needed from the start of the memory.

        Raises:
            BufferError: the device cannot use the memory, or has no DLPack device.
        """
        raise BufferError(f"device `{label_of(self)}` has no DLPack device")

    def memory_of(self, buffer: object) -> tuple[object, int]:
        """Return the memory of a buffer, and the offset of the buffer in this memory, in bytes.

        Two buffers with common bytes have equal memories (``==``). By default buffers with the same DLPack handle are
        one memory, and a handle is an offset if DLPack defines the handle as an address. Without a DLPack device, each
        buffer is a memory of its own. Override the method if buffers share bytes in another way.
        """
        device = self.dlpack_device
        if device is None:
            return (None, id(buffer)), 0
        handle = self.dlpack_handle(buffer)
        return (device, handle) if device[0] in _ADDRESSED else ((device, handle), 0)

    @abstractmethod
    def record(self, stream: object) -> object:
        """Return an event for the end of all work enqueued on the stream so far."""

    @abstractmethod
    def wait(self, event: object) -> None:
        """Wait for an event, and raise the first failure of the stream's work before the event."""


class DeviceMemory:
    """A buffer of a device, freed with this object.

    Args:
        device: the device.
        nbytes: the size of the buffer.
        pool: the name of the pool with the buffer; ``None`` for memory chosen by the device.

    Raises:
        MemoryError: the device has no such memory left.
    """

    __slots__ = ("__weakref__", "buffer", "nbytes")

    def __init__(self, device: Device, nbytes: int, pool: str | None = None) -> None:
        self.buffer = device.allocate(nbytes) if pool is None else device.allocate_in(pool, nbytes)
        self.nbytes = nbytes
        weakref.finalize(self, device.free, self.buffer)


def label_of(device: Device) -> str:
    """Return the name of a device in messages, such as ``npu:0``."""
    return f"{device.domain.name}:{device.index}"


def find_device(devices: Sequence[Device], domain: MemoryDomain, index: int) -> Device | None:
    """Return the device of an index able to run programs for a domain; ``None`` if absent."""
    return next((device for device in devices if device.domain.covers(domain) and device.index == index), None)


def sizes_of_call(signature: Signature, tensors: Sequence[DeviceTensor]) -> dict[str, int]:
    """Return the size of each symbol determined by the shapes of a call's tensors.

    Args:
        signature: the signature of the called function.
        tensors: the inputs, then the outputs.

    Raises:
        CallError: a size is not the declared size, or contradicts the size of its symbol elsewhere.
    """
    from byoc_core.runtime.arguments import bind_symbols

    return bind_symbols((*signature.inputs, *signature.outputs), tensors)
