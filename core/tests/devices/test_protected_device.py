"""The protected device keeps the contract of devices, and ends a process touching its memory."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.runtime.devices import DeviceMemory, DeviceTensor
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.protected_device import ProtectedDevice

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def tensor_on(device: ProtectedDevice, nbytes: int = 64, shape: tuple[int, ...] = (2, 3)) -> DeviceTensor:
    return DeviceTensor(device.allocate(nbytes), 0, "float32", shape)


def test_copies_and_functions_run_in_the_order_of_the_stream() -> None:
    device = ProtectedDevice("npu", max_delay=0.002)
    stream = device.new_stream()
    first, second = tensor_on(device), tensor_on(device)
    result = np.zeros_like(X)
    device.copy_in(X, first, stream)
    stream.launch(lambda a, b: np.add(a, 1, out=b), [first, second])  # type: ignore[attr-defined]
    device.copy_within(second, first, stream)
    device.copy_out(first, result, stream)
    device.wait(device.record(stream))
    np.testing.assert_array_equal(result, X + 1)
    device.close_stream(stream)
    device.free(first.buffer)
    device.free(second.buffer)
    counts = device.counts
    assert (counts.copies_in, counts.copies_out, counts.copies_within, counts.launches) == (1, 1, 1, 1)
    assert (counts.live_buffers, counts.live_bytes, counts.live_streams) == (0, 0, 0)


def test_the_target_of_a_copy_holds_no_value_before_the_event() -> None:
    device = ProtectedDevice("npu")
    stream = device.new_stream()
    tensor, result, gate = tensor_on(device), np.zeros_like(X), threading.Event()
    device.copy_in(X, tensor, stream)
    stream.enqueue(gate.wait)  # type: ignore[attr-defined]
    device.copy_out(tensor, result, stream)
    assert np.isnan(result).all()
    gate.set()
    device.wait(device.record(stream))
    np.testing.assert_array_equal(result, X)
    device.close_stream(stream)


def test_a_source_changed_before_its_copy_is_a_failure() -> None:
    device = ProtectedDevice("npu")
    stream = device.new_stream()
    gate, source = threading.Event(), X.copy()
    stream.enqueue(gate.wait)  # type: ignore[attr-defined]
    device.copy_in(source, tensor_on(device), stream)
    source[0, 0] = 7
    gate.set()
    with pytest.raises(RuntimeError, match="was changed before the copy"):
        device.wait(device.record(stream))
    with pytest.raises(RuntimeError, match="was changed before the copy"):
        device.wait(device.record(stream))  # for each later event
    device.close_stream(stream)


def test_work_after_a_failure_is_left_out() -> None:
    device = ProtectedDevice("npu")
    stream = device.new_stream()
    seen: list[NDArray] = []

    def fail(array: NDArray) -> None:
        raise ValueError("broken kernel")

    tensor = tensor_on(device)
    before = device.record(stream)
    stream.launch(fail, [tensor])  # type: ignore[attr-defined]
    stream.launch(seen.append, [tensor])  # type: ignore[attr-defined]
    device.wait(before)  # recorded before the failure
    with pytest.raises(ValueError, match="broken kernel"):
        device.wait(device.record(stream))
    device.close_stream(stream)
    assert not seen


def test_allocations_fail_by_capacity_and_by_number() -> None:
    device = ProtectedDevice("npu", capacity=100)
    buffer = device.allocate(60)
    with pytest.raises(MemoryError, match="`npu:0` is out of memory"):
        device.allocate(60)
    device.free(buffer)
    device.free(device.allocate(60))
    device.failing_allocation = device.counts.allocations + 1
    buffer = device.allocate(1)
    with pytest.raises(MemoryError):
        device.allocate(1)
    device.free(buffer)
    assert device.counts.live_bytes == 0


def test_memory_is_freed_with_its_object() -> None:
    device = ProtectedDevice("npu")
    memory = DeviceMemory(device, 10)
    assert device.counts.live_buffers == 1
    del memory
    assert device.counts.live_buffers == 0


@pytest.mark.parametrize(
    ("offset", "shape", "message"),
    [(2, (1,), "without alignment"), (64, (1,), "outside its buffer"), (0, (17,), "outside its buffer")],
)
def test_wrong_places_are_refused(offset: int, shape: tuple[int, ...], message: str) -> None:
    device = ProtectedDevice("npu")
    tensor = DeviceTensor(device.allocate(64), offset, "float32", shape)
    with pytest.raises(ExecutionError, match=message):
        device.copy_in(np.zeros(shape, np.float32), tensor, device.new_stream())


def test_a_freed_buffer_is_refused() -> None:
    device = ProtectedDevice("npu")
    tensor = tensor_on(device)
    device.free(tensor.buffer)
    with pytest.raises(ExecutionError, match="freed buffer"):
        device.copy_in(X, tensor, device.new_stream())


@pytest.mark.parametrize(
    "access",
    [
        "ctypes.string_at(buffer.address, 1)",
        "ctypes.memset(buffer.address, 0, 1)",
        "float(buffer.array(DeviceTensor(buffer, 0, 'float32', (1,)))[0])",
    ],
)
def test_an_access_of_the_host_ends_the_process(access: str) -> None:
    script = f"""
        import ctypes
        from byoc_core.runtime.protected_device import ProtectedDevice
        from byoc_core.runtime.devices import DeviceTensor
        buffer = ProtectedDevice("npu").allocate(64)
        print("alive", flush=True)
        {access}
        print("unharmed", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "alive\n", done
    assert done.returncode < 0
