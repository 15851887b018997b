"""The range of the numbers of devices, in options of users, calls of the IR, and programs."""

from __future__ import annotations

__all__ = ["MAX_DEVICE_NUMBER"]

MAX_DEVICE_NUMBER = 2**31 - 1
"""The largest number of a device among the devices of one memory: runtimes hold numbers of devices in 32 bits."""
