"""Devices counting their copies and live objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyopencl as cl
from byoc_core.runtime.devices import Device, DeviceTensor
from byoc_core.runtime.module import NDArray
from byoc_opencl.device import OpenClDevice, OpenClStream, SharedContext
from byoc_opencl.drivers import find_cl_devices

__all__ = ["CountedDevice", "Counts", "first_cl_device"]


@dataclass
class Counts:
    """The copies so far, and the buffers and streams not released yet."""

    copies_in: int = 0
    copies_out: int = 0
    copies_within: int = 0
    copies_to_peers: int = 0
    live_buffers: int = 0
    live_streams: int = 0


class CountedDevice(OpenClDevice):
    """A device with counts; by default the first device of the machine."""

    def __init__(self, device: cl.Device | None = None, index: int = 0, context: SharedContext | None = None) -> None:
        super().__init__(device or first_cl_device(), index, context=context)
        self.counts = Counts()

    def allocate(self, nbytes: int) -> object:
        buffer = super().allocate(nbytes)
        self.counts.live_buffers += 1
        return buffer

    def free(self, buffer: object) -> None:
        super().free(buffer)
        self.counts.live_buffers -= 1

    def new_stream(self) -> OpenClStream:
        self.counts.live_streams += 1
        return super().new_stream()

    def close_stream(self, stream: object) -> None:
        super().close_stream(stream)
        self.counts.live_streams -= 1

    def copy_in(self, source: NDArray, target: DeviceTensor, stream: object) -> None:
        self.counts.copies_in += 1
        super().copy_in(source, target, stream)

    def copy_out(self, source: DeviceTensor, target: NDArray, stream: object) -> None:
        self.counts.copies_out += 1
        super().copy_out(source, target, stream)

    def copy_to_peer(
        self, source: DeviceTensor, stream: object, peer: Device, target: DeviceTensor, peer_stream: object
    ) -> None:
        self.counts.copies_to_peers += 1
        super().copy_to_peer(source, stream, peer, target, peer_stream)

    def copy_within(self, source: DeviceTensor, target: DeviceTensor, stream: object) -> None:
        self.counts.copies_within += 1
        super().copy_within(source, target, stream)


def first_cl_device() -> Any:
    """Return the first device of the machine."""
    found = find_cl_devices()
    assert found.devices, found.reason
    return found.devices[0]
