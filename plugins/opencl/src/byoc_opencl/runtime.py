"""The run half: devices of OpenCL drivers, and modules of kernels in OpenCL C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from byoc_core.errors import UntrustedCodeError
from byoc_core.runtime.devices import Device
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, Status, hookimpl

from byoc_opencl.drivers import find_cl_devices, status
from byoc_opencl.module import OpenClModule
from byoc_opencl.program import decode, encode

if TYPE_CHECKING:
    import pyopencl as cl

__all__ = [
    "byoc_check_payload",
    "byoc_devices",
    "byoc_load_module",
    "byoc_runtime_info",
    "byoc_runtime_status",
    "byoc_save_module",
]


@hookimpl
def byoc_runtime_info() -> RuntimeInfo:
    """Return the type key; the threads of a driver do not survive a fork."""
    return RuntimeInfo(type_key="opencl", fork_safe=False)


@hookimpl
def byoc_runtime_status() -> Status:
    """Return whether there is a device, and the names of the devices."""
    return status()


@hookimpl
def byoc_devices() -> Sequence[Device]:
    """Return the devices of all drivers, GPUs before processors; the devices of a driver copy to each other."""
    found = find_cl_devices()
    if not found.devices:
        return ()
    from byoc_opencl.device import OpenClDevice, SharedContext

    groups: dict[object, list[cl.Device]] = {}
    for device in found.devices:
        groups.setdefault(device.platform, []).append(device)
    contexts = {platform: SharedContext(devices) for platform, devices in groups.items()}
    return [
        OpenClDevice(device, index, found.process, contexts[device.platform])
        for index, device in enumerate(found.devices)
    ]


@hookimpl
def byoc_save_module(module: OpenClModule) -> bytes:
    """Return kernels and launches as bytes."""
    return encode(module.program)


@hookimpl
def byoc_check_payload(payload: bytes, context: LoadContext) -> None:
    """Check the references of all launches; the kernels are not examined."""
    decode(payload, context.source)


@hookimpl
def byoc_load_module(payload: bytes, context: LoadContext) -> OpenClModule:
    """Return the module of a payload; refuse unless the user permits native code."""
    module = OpenClModule(decode(payload, context.source))
    if not context.allow_native:
        raise UntrustedCodeError(
            context.source,
            f"holds native code (functions {', '.join(module.function_names)})",
            hint="Pass allow_native=True if you trust the source.",
        )
    return module
