"""Pools of a device's memory: buffers in each pool, copies between pools, failures of allocation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from byoc_core.runtime.devices import Device, DeviceTensor, label_of

from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.devices import devices_of
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_SIZE = 64
"""Bytes of a buffer."""
_IMPOSSIBLE = 1 << 60
"""Bytes beyond the memory of any device."""


def _check_pools(subject: Subject, case: str) -> None:
    devices = [device for device in devices_of(subject) if device.domain.pools]
    if not devices:
        raise NotCoveredError("the memory of the backend's devices has no pools")
    for device in devices:
        for pool in device.domain.pools:
            where = f"device `{label_of(device)}`, pool `{pool.name}`"
            _check_memory_error(device, pool.name, where)
            if pool.nbytes is not None and pool.nbytes < _SIZE:
                continue
            drawn = np.arange(_SIZE, dtype=np.uint8) + 1
            with _buffer(device, pool.name, where) as tensor, _buffer(device, None, where) as other:
                stream = device.new_stream()
                try:
                    found = np.zeros_like(drawn)
                    device.copy_in(np.zeros_like(drawn), other, stream)
                    device.copy_in(drawn, tensor, stream)
                    device.copy_within(tensor, other, stream)
                    device.copy_out(other, found, stream)
                    device.wait(device.record(stream))
                finally:
                    device.close_stream(stream)
            if not np.array_equal(found, drawn):
                raise FailedError(f"{where}: copies gave other bytes, or ran out of order")


@contextmanager
def _buffer(device: Device, pool: str | None, where: str) -> Iterator[DeviceTensor]:
    """Yield a tensor in a pool, or in memory chosen by the device."""
    try:
        buffer = device.allocate(_SIZE) if pool is None else device.allocate_in(pool, _SIZE)
    except Exception as error:
        raise FailedError(f"{where}: an allocation of {_SIZE} bytes raised {type(error).__name__}: {error}") from error
    try:
        yield DeviceTensor(buffer, 0, "uint8", (_SIZE,))
    finally:
        device.free(buffer)


def _check_memory_error(device: Device, pool: str, where: str) -> None:
    try:
        device.allocate_in(pool, _IMPOSSIBLE)
    except MemoryError:
        return
    except Exception as error:
        raise FailedError(f"{where}: an allocation of {_IMPOSSIBLE} bytes raised {type(error).__name__}") from error
    raise FailedError(f"{where}: returned a buffer of {_IMPOSSIBLE} bytes")


PROMISES = (
    Promise(
        Level.L4,
        "device-pools",
        "allocates in each pool of a device, copies there exactly, and refuses impossible sizes by `MemoryError`",
        _check_pools,
    ),
)
