"""Arrays in the memory of an OpenCL device: results left there, inputs read there, and the exchange by DLPack."""

from __future__ import annotations

import gc
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine
from byoc_core.errors import CallError
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.runtime.devices import DeviceTensor

from plugins.opencl.tests.counted_devices import CountedDevice

pytestmark = pytest.mark.usefixtures("needs_device")

X = np.array([[1.5, -2.0, 0.25], [3.0, -1.0, 8.0]], np.float32)
MODEL = byoc_core.parse("def main(x: R.Tensor((2, 3))):\n    y = R.add(x, x)\n    return y")


class Foreign:
    """A tensor of another package: nothing but the methods of DLPack."""

    def __init__(self, array: DeviceArray) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> object:
        return self._array.__dlpack__(**options)


def machine_on(device: CountedDevice) -> VirtualMachine:
    return VirtualMachine(byoc_core.build(MODEL, ["opencl"]), devices={"opencl": device})


def test_values_stay_on_the_device_between_calls() -> None:
    device = CountedDevice()
    machine = machine_on(device)
    value: Any = X
    for _ in range(5):
        value = machine.run("main", {"x": value}, on_device=True)
    assert (device.counts.copies_in, device.counts.copies_out, device.counts.copies_within) == (1, 0, 0)
    del machine
    gc.collect()
    np.testing.assert_array_equal(value.numpy(), 32 * X)
    del value
    gc.collect()
    assert (device.counts.live_buffers, device.counts.live_streams) == (0, 0)


def test_a_session_leaves_results_on_the_device() -> None:
    device = CountedDevice()
    session = byoc_core.Session(byoc_core.build(MODEL, ["opencl"]), device=device)
    (y,) = session.run(None, {"x": X}, on_device=True)
    (z,) = session.run(["y"], {"x": y}, out={"y": DeviceArray.empty(device, "float32", (2, 3), "z")})
    assert isinstance(z, DeviceArray)
    assert (device.counts.copies_in, device.counts.copies_out) == (1, 0)
    np.testing.assert_array_equal(z.numpy(), 4 * X)


def test_tensors_of_other_packages_are_read_in_place() -> None:
    device = CountedDevice()
    machine = machine_on(device)
    array = DeviceArray.copy_of(X, device)
    assert array.__dlpack_device__() == (4, 0)
    found = machine.run("main", {"x": Foreign(array)}, on_device=True)
    assert (device.counts.copies_in, device.counts.copies_out) == (1, 0)
    np.testing.assert_array_equal(found.numpy(), 2 * X)
    adopted = DeviceArray.of_dlpack(Foreign(array), device)
    del array
    gc.collect()
    np.testing.assert_array_equal(adopted.numpy(), X)


PRODUCT = byoc_core.parse(
    "def main(x: R.Tensor((64, 64)), w: R.Tensor((64, 64))):\n    y = R.matmul(x, w)\n    z = R.exp(x)\n    return y, z"
)


def test_an_output_over_the_memory_of_an_input_is_written_after_the_reads() -> None:
    device = CountedDevice()
    machine = VirtualMachine(byoc_core.build(PRODUCT, ["opencl"]), devices={"opencl": device})
    numbers = np.random.default_rng(0)
    x, w = (numbers.integers(-3, 4, (64, 64)).astype(np.float32) for _ in range(2))
    array = DeviceArray.copy_of(x, device)
    adopted = DeviceArray.of_dlpack(Foreign(array), device)
    assert adopted.tensor.buffer is not array.tensor.buffer
    for given, buffer in ((array, adopted), (adopted, array), (Foreign(array), adopted)):
        array.assign(x)
        machine.run("main", {"x": given, "w": w}, {"y": buffer})
        np.testing.assert_array_equal(array.numpy(), x @ w)  # exact in float32
    with pytest.raises(CallError, match="output 1 `z`: shares memory with another output"):
        machine.run("main", {"x": x, "w": w}, {"y": array, "z": adopted})


def test_copies_check_the_array_of_the_host() -> None:
    device = CountedDevice()
    array = DeviceArray.copy_of(X, device)
    strided = np.zeros((3, 2), np.float32).T
    array.copy_to(strided)
    np.testing.assert_array_equal(strided, X)
    for other in (np.zeros((1, 3), np.float32), np.zeros((4, 3), np.float32), np.zeros((2, 3), np.int32)):
        for copy in (array.copy_to, array.assign):
            with pytest.raises(CallError, match=r"of a copy: has another (shape|dtype)"):
                copy(other)
    with pytest.raises(CallError, match="source of a copy: has another shape"):
        array.assign(DeviceArray.empty(device, "float32", (4, 3), "y"))
    np.testing.assert_array_equal(array.numpy(), X)


def test_a_part_of_a_buffer_overlaps_the_buffer() -> None:
    """A part has a ``cl_mem`` of its own."""
    device = CountedDevice()
    whole = DeviceArray.empty(device, "uint8", (12288,), "x")
    part: Any = whole.tensor.buffer
    part = part.get_sub_region(4096, 4096)
    adopted = DeviceArray(device, whole, DeviceTensor(device.adopt(part.int_ptr, 4096), 0, "uint8", (4096,)))
    assert adopted.overlaps(whole)
    assert whole.overlaps(adopted)
    for start in (0, 8192):
        assert not adopted.overlaps(DeviceArray(device, whole, whole.tensor.part(start, (4096,))))


def test_memory_of_another_context_is_refused() -> None:
    with pytest.raises(CallError, match="no memory of 24 bytes in the context of device `opencl:0`"):
        machine_on(CountedDevice()).run("main", {"x": Foreign(DeviceArray.copy_of(X, CountedDevice()))})
