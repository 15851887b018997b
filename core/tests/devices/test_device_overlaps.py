"""Arrays on devices with common memory: outputs and inputs, adoptions, and empty arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from byoc_core import parse
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.runtime.devices import DeviceTensor
from byoc_core.runtime.protected_device import ProtectedDevice
from hypothesis import given
from hypothesis import strategies as st

from core.tests.devices.device_arrays import (
    Foreign,
    X,
    copies,
    machine_on,
    npu,
    refusal,
)
from core.tests.lower.test_states import t

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")


def test_two_results_in_one_array_are_an_error() -> None:
    device = npu()
    text = f"def main(x: {t(4)}):\n    a = R.negative(x)\n    b = R.exp(x)\n    return a, b"
    machine = machine_on(parse(text), device)
    y = DeviceArray.empty(device, "float32", (4,), "y")
    assert "shares memory with another output" in refusal(lambda: machine.run("main", {"x": X}, {"a": y, "b": y}))


TWO_RESULTS = parse(f"def main(x: {t(4)}):\n    a = R.negative(x)\n    b = R.exp(x)\n    return a, b")


@pytest.mark.parametrize("distinct", [False, True])
def test_an_output_in_memory_of_an_adopted_input_is_written_after_the_reads(distinct: bool) -> None:
    device = npu(distinct_adoptions=distinct)
    machine = machine_on(TWO_RESULTS, device)
    x = DeviceArray.copy_of(X, device)
    again = DeviceArray.of_dlpack(Foreign(x), device)
    assert (again.tensor.buffer is x.tensor.buffer) != distinct
    for given_input, buffer in ((x, again), (again, x), (Foreign(again), x), (again, again)):
        x.assign(X)
        a, b = machine.run("main", {"x": given_input}, {"a": buffer}, on_device=True)
        assert a is buffer
        np.testing.assert_array_equal(x.numpy(), -X)
        np.testing.assert_array_equal(b.numpy(), np.exp(X))
    expected = "output 1 `b`: shares memory with another output"
    assert expected in refusal(lambda: machine.run("main", {"x": X}, {"a": x, "b": again}))


@pytest.mark.parametrize("distinct", [False, True])
def test_outputs_in_separate_parts_of_a_buffer_are_filled_without_a_copy(distinct: bool) -> None:
    device = npu(distinct_adoptions=distinct)
    machine = machine_on(TWO_RESULTS, device)
    whole = DeviceArray.copy_of(np.concatenate([X, X, X]), device)
    parts = [DeviceArray(device, whole, whole.tensor.part(16 * row, (4,))) for row in range(3)]
    parts[1] = DeviceArray.of_dlpack(Foreign(parts[1]), device)
    before, allocations = copies(device), device.counts.allocations
    machine.run("main", {"x": parts[0]}, {"a": parts[1], "b": parts[2]})
    assert copies(device) == before
    assert device.counts.allocations <= allocations + 1  # the arena
    np.testing.assert_array_equal(whole.numpy(), np.concatenate([X, -X, np.exp(X)]))
    shifted = DeviceArray(device, whole, whole.tensor.part(20, (4,)))
    assert "shares memory" in refusal(lambda: machine.run("main", {"x": X}, {"a": parts[1], "b": shifted}))
    content = shifted.numpy()
    _, b = machine.run("main", {"x": shifted}, {"a": parts[1]}, on_device=True)  # through a temporary, on the device
    np.testing.assert_array_equal(parts[1].numpy(), -content)
    np.testing.assert_array_equal(b.numpy(), np.exp(content))


def test_empty_outputs_never_share_memory() -> None:
    device = npu()
    text = 'def main(x: R.Tensor(("n",))):\n    a = R.negative(x)\n    b = R.exp(x)\n    return a, b'
    machine = machine_on(parse(text), device)
    empty = DeviceArray.copy_of(X[:0], device)
    a, b = (DeviceArray.of_dlpack(Foreign(empty), device) for _ in range(2))
    assert machine.run("main", {"x": empty}, {"a": a, "b": b}) == (a, b)
    assert machine.run("main", {"x": a}, {"a": a, "b": a}) == (a, a)


RANGES = st.tuples(st.integers(0, 15), st.integers(0, 8), st.integers(0, 2))


@given(st.booleans(), RANGES, RANGES)
def test_arrays_overlap_if_they_have_a_common_byte(distinct: bool, left: Any, right: Any) -> None:
    """Of two arrays in one of three buffers, adopted or not."""
    device = npu(distinct_adoptions=distinct)
    own = [DeviceArray.empty(device, "uint8", (24,), "x") for _ in range(2)]
    owners = [*own, DeviceArray.of_dlpack(Foreign(own[0]), device)]
    arrays = [DeviceArray(device, owners[n], owners[n].tensor.part(start, (size,))) for start, size, n in (left, right)]
    bytes_of = [{(n % 2, start + byte) for byte in range(size)} for start, size, n in (left, right)]
    expected = bool(bytes_of[0] & bytes_of[1])
    assert (arrays[0].overlaps(arrays[1]), arrays[1].overlaps(arrays[0])) == (expected, expected)


class Addressed(ProtectedDevice):
    """A device with addresses as data pointers, and adoptions at any address: as CUDA has."""

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return 2, 0

    def dlpack_handle(self, buffer: object) -> int:
        return buffer if isinstance(buffer, int) else super().dlpack_handle(buffer)

    def adopt(self, handle: int, nbytes: int) -> object:
        return handle

    def free(self, buffer: object) -> None:
        if not isinstance(buffer, int):
            super().free(buffer)


def test_adoptions_at_different_addresses_overlap() -> None:
    device = Addressed("npu")
    whole = DeviceArray.empty(device, "float32", (8,), "x")
    start = device.dlpack_handle(whole.tensor.buffer)
    later = DeviceArray(device, whole, DeviceTensor(device.adopt(start + 16, 16), 0, "float32", (4,)))
    assert whole.overlaps(later)
    assert later.overlaps(whole)
    assert not later.overlaps(whole.first_rows(0, 4))


class WithoutDLPack(ProtectedDevice):
    """A device exchanging no tensors."""

    dlpack_device = None  # type: ignore[assignment]


def test_arrays_overlap_on_a_device_without_dlpack() -> None:
    device = WithoutDLPack("npu")
    x, y = (DeviceArray.copy_of(X, device) for _ in range(2))
    assert (x.overlaps(x), x.overlaps(x.first_rows(0, 1)), x.overlaps(y)) == (True, True, False)
