"""The search for OpenCL drivers and devices, and the reason if there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from byoc_core.runtime.hooks import Status

if TYPE_CHECKING:
    import pyopencl as cl

__all__ = ["FoundDevices", "find_cl_devices", "status"]

_VARIABLE, _SYSTEM_DRIVERS = "OCL_ICD_VENDORS", Path("/etc/OpenCL/vendors")
_REMEDY = "Install the driver of the device; for the processor: apt install pocl-opencl-icd."


@dataclass(frozen=True, slots=True)
class FoundDevices:
    """The usable devices, GPUs before processors.

    Attributes:
        devices: the devices.
        reason: the reason if there is none.
        process: the process with the loaded drivers: a forked child has no threads of the drivers.
    """

    devices: tuple[cl.Device, ...]
    reason: str
    process: int


@cache
def find_cl_devices() -> FoundDevices:
    """Return the usable devices of this machine; loads all drivers, once."""
    return FoundDevices(*_search(), os.getpid())


def _search() -> tuple[tuple[cl.Device, ...], str]:
    try:
        with _named_system_drivers():
            platforms = _load_platforms()
    except ImportError as error:
        return (), f"pyopencl cannot be imported: {error}"
    if not platforms:
        return (), "no OpenCL driver was found"
    import pyopencl as cl

    found: list[cl.Device] = []
    reasons = []
    for platform in platforms:
        try:
            devices = platform.get_devices()
        except cl.Error:  # a driver without a device
            devices = []
        found += [device for device in devices if _is_usable(device)]
        reasons += [f"{device.name.strip()} has no float64" for device in devices if not _is_usable(device)]
    found.sort(key=lambda device: bool(device.type & cl.device_type.CPU))
    return tuple(found), "" if found else "; ".join(reasons) or "no OpenCL driver has a device"


def _load_platforms() -> Sequence[cl.Platform]:
    """Return the platform of each driver; the loader of drivers reads the environment in the first call only."""
    import pyopencl as cl

    try:
        return cl.get_platforms()
    except cl.Error:
        return []


def _is_usable(device: cl.Device) -> bool:
    return bool(device.available) and "cl_khr_fp64" in device.extensions.split()


def find_package() -> Path | None:
    """Return the folder of pyopencl, without importing the package; ``None`` if absent."""
    spec = find_spec("pyopencl")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


@contextmanager
def _named_system_drivers() -> Iterator[None]:
    """Name the folder with the drivers of the system to the loader in pyopencl's wheel, inside the block.

    By default, this loader looks for drivers beside itself only. The variable of a user, and drivers installed by pip
    beside pyopencl, have precedence. The import of pyopencl changes the environment too: afterwards the environment is
    as before.
    """
    package, before = find_package(), dict(os.environ)
    has_own_drivers = package is not None and any((package / ".libs").glob("*.icd"))
    if _VARIABLE not in os.environ and not has_own_drivers and any(_SYSTEM_DRIVERS.glob("*.icd")):
        os.environ[_VARIABLE] = str(_SYSTEM_DRIVERS)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def status() -> Status:
    """Return whether there is a device, with the names of the devices, or the reason and the remedy."""
    found = find_cl_devices()
    if not found.devices:
        return Status(False, found.reason, _REMEDY)
    return Status(True, ", ".join(describe(found.devices)))


def describe(devices: Sequence[cl.Device]) -> list[str]:
    """Return the names of devices with their drivers."""
    return [f"{device.name.strip()} ({device.platform.name.strip()})" for device in devices]
