"""A device in the memory of the process, out of the host's reach: for tests of programs and of the core.

The pages of a buffer are inaccessible except while the device itself works on the buffer, so any stray access ends the
process. Work runs on a thread for each stream, after random delays, or at the latest permitted time. The device checks
the contract of :mod:`byoc_core.runtime.devices`: a source array changed before its copy has run, a tensor outside its
buffer, and a buffer freed during work are failures. Needs a POSIX system.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.errors import ExecutionError
from byoc_core.runtime.devices import Device, DeviceTensor, label_of
from byoc_core.runtime.memory import MemoryDomain, Pool
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.protected_pages import POISON, ProtectedBuffer
from byoc_core.runtime.protected_streams import DeviceEvent, DeviceStream

__all__ = ["DeviceCounts", "DeviceEvent", "DeviceStream", "ProtectedDevice"]

_EXTENSION = 12
"""``kDLExtDev``, DLPack's type of devices without a type of their own."""


@dataclass
class DeviceCounts:
    """The work of a device so far, and the objects not released yet."""

    copies_in: int = 0
    copies_out: int = 0
    copies_within: int = 0
    copies_to_peers: int = 0
    launches: int = 0
    allocations: int = 0
    waits: int = 0
    live_buffers: int = 0
    live_bytes: int = 0
    live_streams: int = 0


class _Adoption:
    """A further buffer over the pages of a buffer."""

    def __init__(self, buffer: ProtectedBuffer) -> None:
        self.buffer = buffer


class ProtectedDevice(Device):
    """A device whose memory the host cannot read or write.

    Args:
        name: the name of the memory domain.
        index: the index of the device.
        alignment: the alignment stated by the domain, and checked for all tensors.
        capacity: the bytes of memory; ``None`` without a limit.
        max_delay: the longest delay before each piece of work, in seconds.
        is_lazy: whether work runs only when an event after the work is awaited: the latest permitted time.
        host_accessible: whether the domain is accessible to the host; then nothing is protected.
        pools: the pools of the domain. A buffer counts in its pool; a function writing in a pool without write access
            fails.
        peer_copies: whether devices of this memory copy to each other.
        distinct_adoptions: whether each adoption returns a buffer object of its own, as many drivers do.
        seed: the seed of the delays.

    Attributes:
        counts: the work so far.
        pool_bytes: the bytes of the live buffers of each pool; buffers in memory chosen by the device are left out.
        peak_pool_bytes: the most bytes so far.
        failing_allocation: the number of the allocation raising ``MemoryError``, counted from 0; ``None`` for none.
    """

    def __init__(
        self,
        name: str,
        index: int = 0,
        *,
        alignment: int = 64,
        capacity: int | None = None,
        max_delay: float = 0.0,
        is_lazy: bool = False,
        host_accessible: bool = False,
        pools: Sequence[Pool] = (),
        peer_copies: bool = False,
        distinct_adoptions: bool = False,
        seed: int = 0,
    ) -> None:
        self._domain = MemoryDomain(name, alignment, host_accessible, tuple(pools), peer_copies)
        self.pool_bytes = dict.fromkeys((pool.name for pool in pools), 0)
        self.peak_pool_bytes = dict(self.pool_bytes)
        self._index = index
        self._capacity = capacity
        self.max_delay = max_delay
        self._is_lazy = is_lazy
        self._distinct_adoptions = distinct_adoptions
        self.failing_allocation: int | None = None
        self.counts = DeviceCounts()
        self._random = Random(seed)  # noqa: S311 - for delays
        self._by_address: dict[int, ProtectedBuffer] = {}
        self._lock = threading.RLock()  # a finaliser may free a buffer inside any call

    @property
    def domain(self) -> MemoryDomain:
        """The domain given by name and alignment."""
        return self._domain

    @property
    def index(self) -> int:
        """The index."""
        return self._index

    @property
    def capacity(self) -> int | None:
        """The bytes of memory."""
        return self._capacity

    def count(self, **changes: int) -> None:
        """Add to the counts."""
        with self._lock:
            for name, change in changes.items():
                setattr(self.counts, name, getattr(self.counts, name) + change)

    def allocate(self, nbytes: int) -> object:
        """Return a buffer of poisoned memory."""
        return self._allocate(nbytes, None)

    def allocate_in(self, pool: str, nbytes: int) -> object:
        """Return a buffer of poisoned memory, within the limit of a pool."""
        found = next((own for own in self._domain.pools if own.name == pool), None)
        return super().allocate_in(pool, nbytes) if found is None else self._allocate(nbytes, found)

    def _allocate(self, nbytes: int, pool: Pool | None) -> object:
        with self._lock:
            number = self.counts.allocations
            self.count(allocations=1)
            is_full = self._capacity is not None and self.counts.live_bytes + nbytes > self._capacity
            if pool is not None and pool.nbytes is not None:
                is_full |= self.pool_bytes[pool.name] + nbytes > pool.nbytes
            if number == self.failing_allocation or is_full:
                memory = "memory" if pool is None else f"memory in pool `{pool.name}`"
                raise MemoryError(f"device `{self._domain.name}:{self._index}` is out of {memory}")
            buffer = ProtectedBuffer(nbytes, is_protected=not self._domain.host_accessible, pool=pool)
            if pool is not None:
                self.pool_bytes[pool.name] += nbytes
                self.peak_pool_bytes[pool.name] = max(self.peak_pool_bytes[pool.name], self.pool_bytes[pool.name])
            self._by_address[buffer.address] = buffer
            self.count(live_buffers=1, live_bytes=nbytes)
            return buffer

    def free(self, buffer: object) -> None:
        """Free a buffer without work, once for each owner."""
        found = self._buffer(buffer)
        with self._lock:
            found.num_owners -= 1
            if found.num_owners > 0:
                return
            del self._by_address[found.address]
            self.count(live_buffers=-1, live_bytes=-found.nbytes)
            if found.pool is not None:
                self.pool_bytes[found.pool.name] -= found.nbytes
            found.free()

    def new_stream(self) -> object:
        """Return a stream with a thread of its own."""
        with self._lock:
            stream = DeviceStream(self, self._random.getrandbits(32), is_lazy=self._is_lazy)
            self.count(live_streams=1)
            return stream

    def close_stream(self, stream: object) -> None:
        """Wait for the thread's work and end the thread."""
        self._stream(stream).close()
        self.count(live_streams=-1)

    def copy_in(self, source: NDArray, target: DeviceTensor, stream: object) -> None:
        """Enqueue a copy; an array changed in the meantime is a failure of the work."""
        self._check_host(source, target)
        self.count(copies_in=1)
        at_call = source.tobytes()

        def copy() -> None:
            if source.tobytes() != at_call:
                raise RuntimeError("the source of a copy to the device was changed before the copy")
            with self.opened([target]) as (array,):
                array[...] = source

        self._stream(stream).enqueue(copy)

    def copy_out(self, source: DeviceTensor, target: NDArray, stream: object) -> None:
        """Enqueue a copy; the array holds poison until then."""
        self._check_host(target, source)
        if not target.flags.writeable:
            raise ValueError("the target of a copy from the device is read-only")
        self.count(copies_out=1)
        target.reshape(-1).view(np.uint8)[...] = 1 if target.dtype == bool else POISON

        def copy() -> None:
            with self.opened([source]) as (array,):
                target[...] = array

        self._stream(stream).enqueue(copy)

    def copy_within(self, source: DeviceTensor, target: DeviceTensor, stream: object) -> None:
        """Enqueue a copy between tensors."""
        self.check([source, target])
        if not self.is_writable(target):
            raise ExecutionError(f"device `{label_of(self)}`", "gets a copy into a pool without write access")
        self.count(copies_within=1)

        def copy() -> None:
            with self.opened([source, target]) as (read, written):
                written[...] = read

        self._stream(stream).enqueue(copy)

    def copies_to(self, peer: Device) -> bool:
        """Return whether both devices are declared with copies to each other."""
        return self._domain.peer_copies and isinstance(peer, ProtectedDevice) and peer.domain.peer_copies

    def copy_to_peer(
        self, source: DeviceTensor, stream: object, peer: Device, target: DeviceTensor, peer_stream: object
    ) -> None:
        """Enqueue a copy on the stream of the other device, between two events."""
        if not isinstance(peer, ProtectedDevice):
            raise TypeError(f"no device of this memory: {peer!r}")
        self.check([source])
        peer.check([target])
        self.count(copies_to_peers=1)
        before = self._stream(stream).record()

        def copy() -> None:
            before.wait()
            if before.failure is not None:
                raise before.failure
            with self.opened([source]) as (read,), peer.opened([target]) as (written,):
                written[...] = read

        own = peer._stream(peer_stream)
        own.enqueue(copy)
        after = own.record()

        def wait() -> None:
            after.wait()
            if after.failure is not None:
                raise after.failure

        self._stream(stream).enqueue(wait)

    def map(self, buffer: object) -> NDArray:
        """Return the memory of a buffer, if the domain is accessible to the host."""
        if not self._domain.host_accessible:
            return super().map(buffer)
        found = self._buffer(buffer)
        return found.array(DeviceTensor(buffer, 0, "uint8", (found.nbytes,)))

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """An extension device of DLPack, with the index of the device."""
        return _EXTENSION, self._index

    def dlpack_handle(self, buffer: object) -> int:
        """Return the address of a buffer; the pages stay protected."""
        return self._buffer(buffer).address

    def adopt(self, handle: int, nbytes: int) -> object:
        """Return the buffer of this device at an address, with one more owner."""
        with self._lock:
            buffer = self._by_address.get(handle)
            if buffer is None or nbytes > buffer.nbytes:
                raise BufferError(f"device `{label_of(self)}` has no buffer of {nbytes} bytes at this address")
            buffer.num_owners += 1
            return _Adoption(buffer) if self._distinct_adoptions else buffer

    def record(self, stream: object) -> object:
        """Return an event for all work so far."""
        return self._stream(stream).record()

    def wait(self, event: object) -> None:
        """Wait for an event, and raise the failure of earlier work."""
        if not isinstance(event, DeviceEvent):
            raise TypeError(f"no event of this device: {event!r}")
        self.count(waits=1)
        event.wait()
        if event.failure is not None:
            raise event.failure

    def is_writable(self, tensor: DeviceTensor) -> bool:
        """Return whether functions may write a tensor: its pool has write access."""
        return self._buffer(tensor.buffer).is_writable

    @contextmanager
    def opened(self, tensors: Sequence[DeviceTensor]) -> Iterator[list[NDArray]]:
        """Open the buffers of tensors; yields the tensors as arrays, valid inside the block."""
        with ExitStack() as stack:
            yield [stack.enter_context(self._open(tensor)) for tensor in tensors]

    @contextmanager
    def _open(self, tensor: DeviceTensor) -> Iterator[NDArray]:
        buffer = self._buffer(tensor.buffer)
        with self._lock:
            if buffer.is_freed:
                raise RuntimeError("the device works on a freed buffer")
            buffer.open()
        try:
            yield buffer.array(tensor)
        finally:
            with self._lock:
                buffer.close()

    def check(self, tensors: Sequence[DeviceTensor]) -> None:
        """Check the places of tensors.

        Raises:
            ExecutionError: a tensor is not aligned or reaches beyond its buffer, or the buffer is freed.
        """
        for tensor in tensors:
            buffer = self._buffer(tensor.buffer)
            where = f"device `{self._domain.name}:{self._index}`"
            if buffer.is_freed:
                raise ExecutionError(where, "gets a tensor in a freed buffer")
            if tensor.offset % min(self._domain.alignment, to_numpy(tensor.dtype).itemsize):
                raise ExecutionError(where, "gets a tensor without alignment", got=tensor.offset)
            if not 0 <= tensor.offset <= buffer.nbytes - tensor.nbytes:
                raise ExecutionError(where, "gets a tensor outside its buffer", got=tensor.offset + tensor.nbytes)

    def _check_host(self, array: NDArray, tensor: DeviceTensor) -> None:
        self.check([tensor])
        if type(array) is not np.ndarray or not array.flags.c_contiguous:
            raise TypeError("the array of a copy is no C-contiguous numpy array")
        if array.shape != tensor.shape or array.dtype != to_numpy(tensor.dtype):
            raise TypeError(f"array {array.dtype}{list(array.shape)} is no {tensor.dtype}{list(tensor.shape)}")

    def _buffer(self, buffer: object) -> ProtectedBuffer:
        if isinstance(buffer, _Adoption):
            buffer = buffer.buffer
        if not isinstance(buffer, ProtectedBuffer):
            raise TypeError(f"no buffer of this device: {buffer!r}")
        return buffer

    def _stream(self, stream: object) -> DeviceStream:
        if not isinstance(stream, DeviceStream) or stream.device is not self:
            raise TypeError(f"no stream of this device: {stream!r}")
        return stream
