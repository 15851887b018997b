"""A device passing all work on to another device, and counting."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from byoc_core.runtime.devices import Device, DeviceTensor
from byoc_core.runtime.module import MemoryDomain, NDArray

__all__ = ["CountingDevice", "DeviceWork"]


@dataclass
class DeviceWork:
    """The copies so far, and the buffers and streams not released yet."""

    copies_in: int = 0
    copies_out: int = 0
    copies_within: int = 0
    copies_to_peers: int = 0
    live_buffers: int = 0
    live_streams: int = 0


class CountingDevice(Device):
    """A device passing all work on to another device; streams, buffers and events are those of the other.

    Args:
        device: the other device.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.RLock()  # a finaliser may free a buffer inside any call
        self.work = DeviceWork()

    def _count(self, name: str, change: int) -> None:
        with self._lock:
            setattr(self.work, name, getattr(self.work, name) + change)

    @property
    def domain(self) -> MemoryDomain:
        """The domain of the other device."""
        return self._device.domain

    @property
    def index(self) -> int:
        """The index of the other device."""
        return self._device.index

    @property
    def capacity(self) -> int | None:
        """The bytes of memory."""
        return self._device.capacity

    def allocate(self, nbytes: int) -> object:
        """Return a buffer."""
        buffer = self._device.allocate(nbytes)
        self._count("live_buffers", 1)
        return buffer

    def allocate_in(self, pool: str, nbytes: int) -> object:
        """Return a buffer in a pool."""
        buffer = self._device.allocate_in(pool, nbytes)
        self._count("live_buffers", 1)
        return buffer

    def free(self, buffer: object) -> None:
        """Free a buffer."""
        self._device.free(buffer)
        self._count("live_buffers", -1)

    def new_stream(self) -> object:
        """Return a stream."""
        stream = self._device.new_stream()
        self._count("live_streams", 1)
        return stream

    def close_stream(self, stream: object) -> None:
        """Close a stream."""
        self._device.close_stream(stream)
        self._count("live_streams", -1)

    def copy_in(self, source: NDArray, target: DeviceTensor, stream: object) -> None:
        """Enqueue a copy to the device."""
        self._count("copies_in", 1)
        self._device.copy_in(source, target, stream)

    def copy_out(self, source: DeviceTensor, target: NDArray, stream: object) -> None:
        """Enqueue a copy from the device."""
        self._count("copies_out", 1)
        self._device.copy_out(source, target, stream)

    def copy_within(self, source: DeviceTensor, target: DeviceTensor, stream: object) -> None:
        """Enqueue a copy on the device."""
        self._count("copies_within", 1)
        self._device.copy_within(source, target, stream)

    def copies_to(self, peer: Device) -> bool:
        """Return whether the device copies to another counted device."""
        return (
            isinstance(peer, CountingDevice)
            and peer._device is not self._device
            and self._device.copies_to(peer._device)
        )

    def copy_to_peer(
        self, source: DeviceTensor, stream: object, peer: Device, target: DeviceTensor, peer_stream: object
    ) -> None:
        """Enqueue a copy to another counted device."""
        assert isinstance(peer, CountingDevice)
        self._count("copies_to_peers", 1)
        self._device.copy_to_peer(source, stream, peer._device, target, peer_stream)

    def map(self, buffer: object) -> NDArray:
        """Return the bytes of a buffer as an array."""
        return self._device.map(buffer)

    @property
    def dlpack_device(self) -> tuple[int, int] | None:
        """The DLPack device of the other device."""
        return self._device.dlpack_device

    def dlpack_handle(self, buffer: object) -> int:
        """Return the data pointer of a buffer."""
        return self._device.dlpack_handle(buffer)

    def adopt(self, handle: int, nbytes: int) -> object:
        """Return a buffer over memory of another package."""
        buffer = self._device.adopt(handle, nbytes)
        self._count("live_buffers", 1)
        return buffer

    def memory_of(self, buffer: object) -> tuple[object, int]:
        """Return the memory of a buffer, and the buffer's offset."""
        return self._device.memory_of(buffer)

    def record(self, stream: object) -> object:
        """Return an event for all work so far."""
        return self._device.record(stream)

    def wait(self, event: object) -> None:
        """Wait for an event."""
        self._device.wait(event)
