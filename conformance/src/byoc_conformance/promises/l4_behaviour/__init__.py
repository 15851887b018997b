"""Level 4: behaviour of compiled functions among threads, on any buffers, sizes and numbers, and in a process."""

from __future__ import annotations

from byoc_conformance.promise import Promise
from byoc_conformance.promises.l4_behaviour import (
    buffers,
    calls,
    device_arrays,
    device_pools,
    device_states,
    devices,
    errors,
    lowered_steps,
    memory,
    permissions,
    process,
    several_devices,
    sizes,
    thread_numbers,
    threads,
    values,
)

__all__ = ["PROMISES"]

PROMISES: tuple[Promise, ...] = (
    process.STATE,
    *calls.PROMISES,
    *buffers.PROMISES,
    *sizes.PROMISES,
    *values.PROMISES,
    *errors.PROMISES,
    *threads.PROMISES,
    *thread_numbers.PROMISES,
    *process.PROMISES,
    *memory.PROMISES,
    *permissions.PROMISES,
    *lowered_steps.PROMISES,
    *devices.PROMISES,
    *device_pools.PROMISES,
    *device_states.PROMISES,
    *device_arrays.PROMISES,
    *several_devices.PROMISES,
)
"""The promises of the level; the check of the process-wide state comes first."""
