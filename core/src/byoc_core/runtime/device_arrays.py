"""Arrays in the memory of a device, each with a share in its memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np

from byoc_core.dtypes import dtype_info, dtype_name, to_numpy
from byoc_core.errors import CallError, ExecutionError
from byoc_core.runtime.device_dlpack import adopt_tensor, export_tensor
from byoc_core.runtime.devices import Device, DeviceMemory, DeviceTensor, label_of
from byoc_core.runtime.module import NDArray

__all__ = ["DeviceArray", "allocate_memory"]


def allocate_memory(device: Device, nbytes: int, where: str, pool: str | None = None) -> DeviceMemory:
    """Return memory of a device, in a pool or chosen by the device, freed with the returned object.

    Raises:
        ExecutionError: the device has no such memory left, or failed otherwise.
    """
    try:
        return DeviceMemory(device, max(nbytes, 1), pool)
    except Exception as error:
        memory = "" if pool is None else f" in pool `{pool}`"
        problem = f"device `{label_of(device)}` cannot allocate {nbytes} bytes{memory}"
        raise ExecutionError(where, f"{problem}: {type(error).__name__}: {error}") from error


class DeviceArray:
    """A C-contiguous array in the memory of a device. The memory lives as long as an array in the memory.

    The host cannot read the elements: :meth:`numpy` copies the elements to the host. Other packages use the array by
    DLPack, if the device has a DLPack device. All work on the array has ended when the array is returned by a call.

    Args:
        device: the device.
        memory: the memory, or another object keeping the buffer alive.
        tensor: the place of the elements in the buffer.
    """

    __slots__ = ("__weakref__", "_device", "_memory", "_tensor")

    def __init__(self, device: Device, memory: object, tensor: DeviceTensor) -> None:
        self._device = device
        self._memory = memory
        self._tensor = tensor

    @classmethod
    def empty(cls, device: Device, dtype: str, shape: Sequence[int], where: str) -> DeviceArray:
        """Return an array with undefined elements, in memory of its own.

        Args:
            device: the device.
            dtype: the name of the dtype.
            shape: the sizes.
            where: the owner of the array, for errors.

        Raises:
            ExecutionError: the device has no such memory left, or failed otherwise.
        """
        memory = allocate_memory(device, prod(shape) * dtype_info(dtype).itemsize, where)
        return cls(device, memory, DeviceTensor(memory.buffer, 0, dtype, tuple(shape)))

    @classmethod
    def copy_of(cls, array: NDArray, device: Device) -> DeviceArray:
        """Return a copy of an array of the host in the memory of a device.

        Raises:
            ExecutionError: the device has no such memory left, or failed otherwise.
        """
        found = cls.empty(device, dtype_name(array.dtype), array.shape, "array")
        found.assign(array)
        return found

    @classmethod
    def of_dlpack(cls, value: object, device: Device, where: str = "array") -> DeviceArray:
        """Return a tensor of another package in the memory of a device, without a copy.

        The memory lives as long as the array, and is not to be changed during a call with the array. The other
        package's work on the tensor must have ended.

        Args:
            value: an object with ``__dlpack__``, on the DLPack device of ``device``: a C-contiguous tensor.
            device: the device.
            where: the tensor, for errors.

        Raises:
            CallError: the tensor is on another device, has strides or an unknown dtype, or cannot be used.
        """
        return cls(device, *adopt_tensor(value, device, where))

    @property
    def device(self) -> Device:
        """The device."""
        return self._device

    @property
    def tensor(self) -> DeviceTensor:
        """The place of the elements, for functions of the device."""
        return self._tensor

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements."""
        return to_numpy(self._tensor.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return self._tensor.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._tensor.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self._tensor.nbytes

    def first_rows(self, axis: int, count: int) -> DeviceArray:
        """Return the first rows along an axis, in the same memory; all axes before the axis have size 1."""
        shape = (*self.shape[:axis], count, *self.shape[axis + 1 :])
        return DeviceArray(self._device, self._memory, self._tensor.part(0, shape))

    def overlaps(self, other: DeviceArray) -> bool:
        """Return whether the arrays have common bytes; memory adopted several times is the same memory."""
        if not (self.nbytes and other.nbytes):
            return False
        memory, start = self._location()
        other_memory, other_start = other._location()
        return memory == other_memory and start < other_start + other.nbytes and other_start < start + self.nbytes

    def _location(self) -> tuple[object, int]:
        """Return the memory of the elements, and the offset of the first element in the memory."""
        memory, offset = self._device.memory_of(self._tensor.buffer)
        return memory, offset + self._tensor.offset

    def numpy(self) -> NDArray:
        """Return a copy of the elements in the host's memory.

        Raises:
            ExecutionError: the device failed.
        """
        found = np.empty(self.shape, self.dtype)
        self.copy_to(found)
        return found

    def copy_to(self, target: NDArray) -> None:
        """Copy the elements into an array of the host, of the same dtype and shape.

        Raises:
            CallError: the target has another dtype or shape, or is read-only.
            ExecutionError: the device failed.
        """
        self._check("target", target)
        if not target.flags.writeable:
            raise CallError(f"{self!r}, target of a copy", "is read-only")
        if not target.flags.c_contiguous:
            target[...] = self.numpy()
            return
        array = target.view(np.ndarray)
        self._work("from", lambda stream: self._device.copy_out(self._tensor, array, stream))

    def assign(self, source: NDArray | DeviceArray) -> None:
        """Copy elements of the same dtype and shape from the host, from this device, or from another by the host.

        The source may have strides, or share bytes with this array.

        Raises:
            CallError: the source has another dtype or shape.
            ExecutionError: a device failed.
        """
        self._check("source", source)
        if isinstance(source, DeviceArray):
            if source._device is self._device:
                if self.overlaps(source):
                    if self._location() == source._location():
                        return
                    temporary = DeviceArray.empty(self._device, source._tensor.dtype, self.shape, f"{self!r}")
                    temporary.assign(source)
                    source = temporary
                tensor = source._tensor
                self._work("on", lambda stream: self._device.copy_within(tensor, self._tensor, stream))
                return
            source = source.numpy()
        array = np.ascontiguousarray(source.view(np.ndarray)).reshape(source.shape)
        self._work("to", lambda stream: self._device.copy_in(array, self._tensor, stream))

    def _check(self, role: str, other: object) -> None:
        """Check the other array of a copy.

        Raises:
            CallError: the other array is no array, or has another dtype or shape.
        """
        where = f"{self!r}, {role} of a copy"
        if not isinstance(other, np.ndarray | DeviceArray):
            raise CallError(where, "is no array", got=type(other).__name__)
        if other.dtype != self.dtype:
            raise CallError(where, "has another dtype", got=other.dtype, expected=self.dtype)
        if other.shape != self.shape:
            raise CallError(where, "has another shape", got=list(other.shape), expected=list(self.shape))

    def _work(self, preposition: str, enqueue: Callable[[object], object]) -> None:
        """Run a copy on a stream of its own, and wait for the copy."""
        if not self.nbytes:
            return
        device = self._device
        try:
            stream = device.new_stream()
            try:
                enqueue(stream)
                device.wait(device.record(stream))
            finally:
                device.close_stream(stream)
        except Exception as error:
            label = label_of(device)
            problem = f"a copy {preposition} device `{label}` failed with {type(error).__name__}: {error}"
            raise ExecutionError(f"{self!r}", problem) from error

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the DLPack device.

        Raises:
            BufferError: the memory of the device has no DLPack device.
        """
        found = self._device.dlpack_device
        if found is None:
            raise BufferError(f"{self!r}: the device has no DLPack device; numpy() copies the elements to the host")
        return found

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return a DLPack capsule without a version; the consumer's memory is the memory of the array.

        Args:
            stream: ``None``, or -1 for a consumer without need for synchronisation: no work on the array is pending.
            max_version: ignored, because capsules without a version are read by all consumers.
            dl_device: the DLPack device of the array, or ``None``.
            copy: ``None`` or ``False``.

        Raises:
            BufferError: an argument asks for another device, a copy or a stream, or the dtype has no form in DLPack.
        """
        own = self.__dlpack_device__()
        if stream is not None and stream != -1:
            raise BufferError(f"{self!r}: streams of the consumer are unknown to the device, got {stream!r}")
        if dl_device is not None and tuple(dl_device) != own:
            raise BufferError(f"{self!r}: is on DLPack device {own}, not on {tuple(dl_device)}")
        if copy:
            raise BufferError(f"{self!r}: is exported without a copy; numpy() copies the elements to the host")
        return export_tensor(self._device, self._tensor, self)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        """Refuse: a copy to the host is explicit."""
        raise TypeError(f"{self!r} is not in the memory of the host; numpy() copies the elements")

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        return f"<array on device {label_of(self._device)}: {self._tensor.dtype}[{sizes}]>"
