"""OpenCL devices: buffers, command queues, copies, launches."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pyopencl as cl
from byoc_core.errors import ExecutionError
from byoc_core.runtime.devices import Device, DeviceTensor, label_of
from byoc_core.runtime.module import MemoryDomain, NDArray

from byoc_opencl.program import DOMAIN
from byoc_opencl.source import complete_source

__all__ = ["BuiltProgram", "Kernel", "OpenClDevice", "OpenClEvent", "OpenClStream", "SharedContext"]

_DLPACK_OPENCL = 4
"""``kDLOpenCL``."""

_GROUP, _MOST_GROUPS = 64, 4096
"""Threads of a work group, and the largest number of groups of a launch."""

_MOST_PROGRAMS = 16
"""Programs kept by a device though no module uses them: PoCL never frees a megabyte for each built program."""


class Kernel:
    """A kernel of a built program; the arguments of a launch are set and passed on under a lock.

    Args:
        kernel: the kernel.
        group: the threads of a work group.
    """

    def __init__(self, kernel: cl.Kernel, group: int) -> None:
        self._kernel = kernel
        self._group = group
        self._lock = threading.Lock()

    def launch(self, queue: cl.CommandQueue, arguments: Sequence[Any], rounds: int) -> None:
        """Enqueue a launch with enough threads for a number of rounds, or with the largest number of threads."""
        num_groups = min(-(-rounds // self._group), _MOST_GROUPS)
        with self._lock:
            for number, argument in enumerate(arguments):
                self._kernel.set_arg(number, argument)
            cl.enqueue_nd_range_kernel(queue, self._kernel, (num_groups * self._group,), (self._group,))


class BuiltProgram:
    """The kernels of a source on a device, by name."""

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self.kernels = kernels


class OpenClStream:
    """An in-order command queue, with the objects needed by its pending work.

    Args:
        device: the device.
        queue: the queue.
    """

    def __init__(self, device: OpenClDevice, queue: cl.CommandQueue) -> None:
        self.device = device
        self.queue = queue
        self._needed_objects: list[tuple[int, object]] = []
        self._num_events = 0

    def hold(self, item: object) -> None:
        """Hold an object until the next event is awaited, or the stream is closed."""
        self._needed_objects.append((self._num_events, item))

    def record(self) -> OpenClEvent:
        """Return an event for all work so far, and start the work."""
        event = OpenClEvent(self, cl.enqueue_marker(self.queue), self._num_events)
        self._num_events += 1
        self.queue.flush()
        return event

    def release(self, event: OpenClEvent | None = None) -> None:
        """Forget the objects needed by work before an event, or by all work."""
        self._needed_objects = (
            [] if event is None else [entry for entry in self._needed_objects if entry[0] > event.number]
        )


class OpenClEvent:
    """An event of a stream, by number."""

    def __init__(self, stream: OpenClStream, event: cl.Event, number: int) -> None:
        self.stream = stream
        self.event = event
        self.number = number


class SharedContext:
    """The OpenCL context of some devices of a driver, opened by the first use: devices of a context copy directly.

    If the driver cannot open all devices together, each device has a context of its own.

    Args:
        devices: the devices, or parts of devices.
    """

    def __init__(self, devices: Sequence[cl.Device]) -> None:
        self._devices = list(devices)
        self._lock = threading.Lock()
        self._opened: dict[cl.Device, cl.Context] = {}

    def open(self, device: cl.Device) -> cl.Context:
        """Return the context of one of the devices."""
        with self._lock:
            if not self._opened:
                try:
                    self._opened = dict.fromkeys(self._devices, cl.Context(self._devices))
                except cl.Error:  # a device in use by another process, say
                    if len(self._devices) == 1:
                        raise
            if device not in self._opened:
                self._opened[device] = cl.Context([device])
            return self._opened[device]


class OpenClDevice(Device):
    """A device of an OpenCL driver.

    Args:
        device: the device, or a part of a device.
        index: the number among the devices.
        process: the process with the loaded driver; by default this process.
        context: the context of the device and of others; by default a context of the device alone.
    """

    def __init__(
        self, device: cl.Device, index: int, process: int | None = None, context: SharedContext | None = None
    ) -> None:
        self._device = device
        self._index = index
        self._process = os.getpid() if process is None else process
        self._shared = SharedContext([device]) if context is None else context
        self._build_lock = threading.Lock()
        self._programs: WeakValueDictionary[str, BuiltProgram] = WeakValueDictionary()
        self._recent: deque[BuiltProgram] = deque(maxlen=_MOST_PROGRAMS)
        # Of a forked child: buffers of the parent, never freed here.
        self._abandoned: list[object] = []

    @property
    def domain(self) -> MemoryDomain:
        """The domain of all OpenCL devices."""
        return DOMAIN

    @property
    def index(self) -> int:
        """The number among the devices."""
        return self._index

    @property
    def capacity(self) -> int:
        """The bytes of memory."""
        return int(self._device.global_mem_size)

    @property
    def _context(self) -> cl.Context:
        self._check_process()
        return self._shared.open(self._device)

    def _check_process(self) -> None:
        """Check for use in a forked child: drivers and their threads do not survive a fork."""
        if os.getpid() != self._process:
            raise ExecutionError(
                f"device `{label_of(self)}`",
                "was opened by another process, and is unusable in a forked process",
                hint="Start processes by `spawn` or `forkserver`.",
            )

    def build(self, source: str) -> BuiltProgram:
        """Return the kernels of a source; equal sources are built once.

        Raises:
            ExecutionError: the driver refuses the source; has the log of the driver.
        """
        with self._build_lock:
            program = self._programs.get(source)
            if program is None:
                program = self._programs[source] = BuiltProgram(self._build_new(source))
                self._recent.append(program)
            return program

    def _build_new(self, source: str) -> dict[str, Kernel]:
        options = ["-w"]
        if self._device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
            options.append("-cl-fp32-correctly-rounded-divide-sqrt")
        try:
            program = cl.Program(self._context, complete_source(source)).build(options, [self._device])
            return {kernel.function_name: self._kernel(kernel) for kernel in program.all_kernels()}
        except cl.Error as error:
            raise ExecutionError(
                f"device `{label_of(self)}`", "does not compile the kernels of the program", detail=str(error)
            ) from error

    def _kernel(self, kernel: cl.Kernel) -> Kernel:
        limit = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, self._device)
        return Kernel(kernel, min(_GROUP, limit))

    def allocate(self, nbytes: int) -> object:
        """Return a buffer.

        Raises:
            MemoryError: the device has no such memory left.
        """
        context, most = self._context, int(self._device.max_mem_alloc_size)
        if nbytes > most:
            raise MemoryError(f"the driver allocates at most {most} bytes at once")
        try:
            return cl.Buffer(context, cl.mem_flags.READ_WRITE, max(nbytes, 1))
        except cl.Error as error:
            raise MemoryError(str(error)) from error

    def free(self, buffer: object) -> None:
        """Free a buffer."""
        if os.getpid() != self._process:
            self._abandoned.append(buffer)
        else:
            _buffer_of(buffer).release()

    def new_stream(self) -> OpenClStream:
        """Return a command queue."""
        return OpenClStream(self, cl.CommandQueue(self._context, self._device))

    def close_stream(self, stream: object) -> None:
        """Wait for the work of a queue."""
        own = self._own(stream)
        if os.getpid() != self._process:
            self._abandoned.append(own)
            return
        with suppress(cl.Error):  # failures of work are dropped
            own.queue.finish()
        own.release()

    def copy_in(self, source: NDArray, target: DeviceTensor, stream: object) -> None:
        """Enqueue a copy of an array into a tensor."""
        own = self._stream(stream)
        if source.nbytes:
            data = source.reshape(-1).view(np.uint8)
            buffer = _buffer_of(target.buffer)
            own.hold(cl.enqueue_copy(own.queue, buffer, data, dst_offset=target.offset, is_blocking=False))

    def copy_out(self, source: DeviceTensor, target: NDArray, stream: object) -> None:
        """Enqueue a copy of a tensor into an array."""
        own = self._stream(stream)
        if target.nbytes:
            data = target.reshape(-1).view(np.uint8)
            buffer = _buffer_of(source.buffer)
            own.hold(cl.enqueue_copy(own.queue, data, buffer, src_offset=source.offset, is_blocking=False))

    def copy_within(self, source: DeviceTensor, target: DeviceTensor, stream: object) -> None:
        """Enqueue a copy between tensors."""
        own = self._stream(stream)
        if source.nbytes:
            _enqueue_copy(own.queue, source, target)

    def copies_to(self, peer: Device) -> bool:
        """Return whether another device has the same context."""
        return isinstance(peer, OpenClDevice) and peer._context == self._context

    def copy_to_peer(
        self, source: DeviceTensor, stream: object, peer: Device, target: DeviceTensor, peer_stream: object
    ) -> None:
        """Enqueue a copy on the queue of the other device, between events of both queues."""
        if not isinstance(peer, OpenClDevice):
            raise TypeError(f"no OpenCL device: {peer!r}")
        own, other = self._stream(stream), peer._stream(peer_stream)
        if not source.nbytes:
            return
        before = cl.enqueue_marker(own.queue)
        own.queue.flush()
        copied = _enqueue_copy(other.queue, source, target, wait_for=[before])
        other.queue.flush()
        cl.enqueue_barrier(own.queue, wait_for=[copied])

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's OpenCL device of the same index."""
        return _DLPACK_OPENCL, self._index

    def dlpack_handle(self, buffer: object) -> int:
        """Return the ``cl_mem`` of a buffer."""
        return int(_buffer_of(buffer).int_ptr)

    def adopt(self, handle: int, nbytes: int) -> object:
        """Return a buffer for a ``cl_mem`` of the context of this device; the driver counts the references.

        Raises:
            BufferError: the memory belongs to another context, or is too small.
        """
        context = self._context
        buffer: Any = cl.Buffer.from_int_ptr(handle, retain=True)
        if buffer.context != context or buffer.size < nbytes:
            buffer.release()
            raise BufferError(f"no memory of {nbytes} bytes in the context of device `{label_of(self)}`")
        return buffer

    def memory_of(self, buffer: object) -> tuple[object, int]:
        """Return the ``cl_mem`` with the memory of a buffer, and the buffer's offset: parts have a ``cl_mem`` too."""
        found: Any = _buffer_of(buffer)
        parent = found.associated_memobject
        offset = 0 if parent is None else int(found.offset)
        return (self.dlpack_device, int((found if parent is None else parent).int_ptr)), offset

    def record(self, stream: object) -> OpenClEvent:
        """Return an event for all work so far."""
        return self._stream(stream).record()

    def wait(self, event: object) -> None:
        """Wait for an event, and raise a failure of the work."""
        if not isinstance(event, OpenClEvent):
            raise TypeError(f"no event of an OpenCL device: {event!r}")
        self._check_process()
        event.event.wait()
        event.stream.release(event)

    def _stream(self, stream: object) -> OpenClStream:
        """Return a stream of this device, for further work."""
        self._check_process()
        return self._own(stream)

    def _own(self, stream: object) -> OpenClStream:
        if not isinstance(stream, OpenClStream) or stream.device is not self:
            raise TypeError(f"no stream of device `{label_of(self)}`: {stream!r}")
        return stream


def _enqueue_copy(queue: cl.CommandQueue, source: DeviceTensor, target: DeviceTensor, **events: Any) -> cl.Event:
    return cl.enqueue_copy(
        queue,
        _buffer_of(target.buffer),
        _buffer_of(source.buffer),
        src_offset=source.offset,
        dst_offset=target.offset,
        byte_count=source.nbytes,
        **events,
    )


def _buffer_of(buffer: object) -> cl.Buffer:
    if not isinstance(buffer, cl.Buffer):
        raise TypeError(f"no buffer of an OpenCL device: {buffer!r}")
    return buffer
