"""Arrays in the memory of devices as inputs and results, and their exchange by DLPack."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from byoc_core import Session, VirtualMachine, parse
from byoc_core.errors import CallError, ExecutionError
from byoc_core.ir import IRModule
from byoc_core.profiling import Peaks, profile
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.runtime.devices import DeviceTensor
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.transform import KeepStates, evaluate_function
from byoc_core.vm import device_arguments, linked_function
from byoc_core.vm.device_arguments import PlacedArguments
from hypothesis import given, note, settings
from hypothesis import strategies as st

from core.tests.devices.test_device_property import HOSTED, check_freed, devices_of, machine_of, straight_line
from core.tests.devices.test_device_states import COUNTER, on_npu
from core.tests.devices.toys import DeviceToy, build_on, run_on, toy_of
from core.tests.lower.test_control_flow_property import Maker
from core.tests.lower.test_states import call, module, t

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")

X = np.array([1.5, -2.0, 0.25, 3.0], np.float32)
PLAIN = parse(f"def main(x: {t(4)}):\n    a = R.negative(x)\n    b = R.exp(a)\n    return b")
IN_PLACE = module(f"x: {t(4)}, y: {t(4)}", f"z = {call('add_in_place', 'x', 'y')}\nreturn z", "()")


def npu(**options: Any) -> ProtectedDevice:
    return ProtectedDevice("npu", is_lazy=True, **options)


def machine_on(module: IRModule, device: ProtectedDevice, ops: Sequence[str] = ("negative", "exp")) -> VirtualMachine:
    return run_on(build_on(module, toy_of(device, ops)), device)


def copies(device: ProtectedDevice) -> tuple[int, int, int]:
    counts = device.counts
    return counts.copies_in, counts.copies_out, counts.copies_within


class Foreign:
    """A tensor of another package: nothing but the methods of DLPack."""

    def __init__(self, array: DeviceArray, device: tuple[int, int] | None = None) -> None:
        self._array = array
        self._device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device or self._array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> object:
        return self._array.__dlpack__(**options)


def test_a_result_stays_on_the_device_and_is_the_next_input_without_a_copy() -> None:
    device = npu()
    machine = machine_on(PLAIN, device)
    want = X
    value: Any = X
    for _ in range(4):
        value = machine.run("main", {"x": value}, on_device=True)
        want = np.exp(-want)
    assert isinstance(value, DeviceArray)
    assert copies(device) == (1, 0, 0)  # the first input
    np.testing.assert_array_equal(value.numpy(), want)
    assert copies(device) == (1, 1, 0)
    np.testing.assert_array_equal(machine["main"](value), np.exp(-want))
    del machine, value
    check_freed([device])


def test_an_array_outlives_the_machine_and_all_other_memory() -> None:
    device = npu()
    value = machine_on(PLAIN, device).run("main", {"x": X}, on_device=True)
    gc.collect()
    assert (device.counts.live_buffers, device.counts.live_streams) == (1, 0)
    np.testing.assert_array_equal(value.numpy(), np.exp(-X))
    capsule = value.__dlpack__()
    del value
    gc.collect()
    assert device.counts.live_buffers == 1
    del capsule
    check_freed([device])


def test_a_given_array_on_the_device_is_filled_without_a_copy() -> None:
    device = npu()
    machine = machine_on(PLAIN, device)
    x, y = DeviceArray.copy_of(X, device), DeviceArray.empty(device, "float32", (4,), "y")
    before = copies(device)
    assert machine.run("main", {"x": x}, {"b": y}) is y
    assert copies(device) == before
    np.testing.assert_array_equal(y.numpy(), np.exp(-X))
    assert machine.run("main", {"x": x}, {"b": x}) is x  # through a temporary, on the device
    np.testing.assert_array_equal(x.numpy(), np.exp(-X))


def test_a_result_of_the_host_is_copied_into_a_given_array() -> None:
    device = npu()
    machine = machine_on(
        parse(f"def main(x: {t(4)}):\n    a = R.negative(x)\n    b = R.floor(a)\n    return b"), device
    )
    y = DeviceArray.empty(device, "float32", (4,), "y")
    machine.run("main", {"x": X}, {"b": y})
    np.testing.assert_array_equal(y.numpy(), np.floor(-X))
    assert type(machine.run("main", {"x": X}, on_device=True)) is np.ndarray


def test_an_input_read_by_the_host_too_is_copied_to_the_host_once() -> None:
    text = f"def main(x: {t(4)}):\n    a = R.negative(x)\n    b = R.floor(x)\n    c = R.ceil(x)\n    return a, b, c"
    device = npu()
    machine = machine_on(parse(text), device)
    x = DeviceArray.copy_of(X, device)
    before = device.counts.copies_out
    a, b, c = machine.run("main", {"x": x}, on_device=True)
    assert device.counts.copies_out == before + 1
    for found, want in ((a.numpy(), -X), (b, np.floor(X)), (c, np.ceil(X))):
        np.testing.assert_array_equal(found, want)


def test_an_input_is_never_overwritten_in_place() -> None:
    """A function may write its result in place of a copy of the input, and gets a copy on the device."""
    device = npu()
    machine = on_npu(IN_PLACE, device)
    x, y = DeviceArray.copy_of(X, device), DeviceArray.copy_of(X, device)
    before = device.counts.copies_within
    z = machine.run("main", {"x": x, "y": y}, on_device=True)
    assert device.counts.copies_within == before + 1
    for found, want in ((x, X), (y, X), (z, X + X)):
        np.testing.assert_array_equal(found.numpy(), want)


def test_states_and_arrays_on_devices_go_together() -> None:
    source = module(
        f"x: {t(4)}, h: {t(4)}",
        f"k = {call('add_in_place', 'h', 'x')}\ny = {call('next', 'k')}\nreturn y, k",
        '(("h", "k"),)',
    )
    device = npu()
    machine = on_npu(source, device)
    x = DeviceArray.copy_of(X, device)
    for step in range(1, 4):
        y = machine.run("main", {"x": x}, on_device=True)
        np.testing.assert_array_equal(y.numpy(), step * X + 1)
    assert device.counts.copies_in == 2  # x, and zeros before the first call
    machine = on_npu(COUNTER, device)
    with pytest.raises(CallError, match="wrong dtype"):
        machine.run("main", {"x": DeviceArray.copy_of(X.astype(np.float64), device)})
    machine.run("main", {"x": x})


# -- DLPack ---------------------------------------------------------------------------------------------------


def test_numpy_never_sees_an_address_of_a_device() -> None:
    array = DeviceArray.copy_of(X, npu())
    with pytest.raises(TypeError, match=r"is not in the memory of the host; numpy\(\) copies"):
        np.asarray(array)
    with pytest.raises(Exception, match=r"[Dd]evice"):
        np.from_dlpack(array)  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"[Dd]evice"):
        np.from_dlpack(Foreign(array))  # type: ignore[arg-type]
    assert repr(array) == "<array on device npu:0: float32[4]>"
    assert (array.shape, array.ndim, array.nbytes) == ((4,), 1, 16)
    assert array.dtype == np.float32


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "float16", "bfloat16", "int32", "float32", "int64", "float64"]
)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (1, 2, 0, 3)])
def test_a_tensor_comes_back_through_dlpack(dtype: str, shape: tuple[int, ...]) -> None:
    from byoc_core.dtypes import to_numpy

    device = npu(alignment=256)
    host = (np.arange(int(np.prod(shape))) % 2).reshape(shape).astype(to_numpy(dtype))
    array = DeviceArray.copy_of(host, device)
    found = DeviceArray.of_dlpack(Foreign(array), device)
    assert (found.shape, found.dtype) == (shape, host.dtype)
    assert found.tensor.buffer is array.tensor.buffer or not host.size
    np.testing.assert_array_equal(found.numpy(), host)
    del array
    np.testing.assert_array_equal(found.numpy(), host)  # the memory lives as long as the tensor
    del found
    check_freed([device])


def test_a_part_of_a_buffer_has_an_offset() -> None:
    device = npu()
    array = DeviceArray.copy_of(np.arange(12, dtype=np.float32), device)
    part = DeviceArray(device, array, array.tensor.part(16, (2, 3)))
    found = DeviceArray.of_dlpack(Foreign(part), device)
    np.testing.assert_array_equal(found.numpy(), np.arange(4, 10).reshape(2, 3))


def test_a_tensor_of_another_package_is_read_in_place() -> None:
    device = npu()
    machine = machine_on(PLAIN, device)
    foreign = Foreign(DeviceArray.copy_of(X, device))
    before = copies(device)
    found = machine.run("main", {"x": foreign}, on_device=True)
    assert copies(device) == before
    np.testing.assert_array_equal(found.numpy(), np.exp(-X))
    np.testing.assert_array_equal(machine["main"](foreign), np.exp(-X))
    del machine, foreign, found
    check_freed([device])


def refusal(use: Any) -> str:
    with pytest.raises((CallError, BufferError)) as caught:
        use()
    return str(caught.value)


def test_misfits_are_errors_with_the_device_named() -> None:
    device, other = npu(), ProtectedDevice("npu", 1, is_lazy=True)
    machine = machine_on(PLAIN, device)
    x = DeviceArray.copy_of(X, other)
    assert refusal(lambda: machine.run("main", {"x": x})) == (
        "function `main`, input 0 `x`: lies on a device without functions of this call; got npu:1, "
        "expected the host's memory or npu:0. numpy() copies the elements to the host."
    )
    y = DeviceArray.empty(other, "float32", (4,), "y")
    assert "output 0 `b`: lies on a device without" in refusal(lambda: machine.run("main", {"x": X}, {"b": y}))
    wrong = DeviceArray.empty(device, "float32", (5,), "y")
    assert "axis 0 has the wrong size" in refusal(lambda: machine.run("main", {"x": wrong}))
    assert "axis 0 has the wrong size" in refusal(lambda: machine.run("main", {"x": X}, {"b": wrong}))
    hosted = VirtualMachine(build_on(PLAIN))
    assert "expected the host's memory. numpy() copies" in refusal(lambda: hosted.run("main", {"x": x}))
    assert "is not in CPU memory" in refusal(lambda: hosted.run("main", {"x": Foreign(x)}))
    for options, text in (
        ({"stream": 5}, "streams of the consumer are unknown to the device, got 5"),
        ({"dl_device": (1, 0)}, "is on DLPack device (12, 1), not on (1, 0)"),
        ({"copy": True}, "is exported without a copy"),
    ):
        assert text in refusal(lambda options=options: x.__dlpack__(**options))
    assert x.__dlpack__(stream=-1, max_version=(1, 0), dl_device=(12, 1), copy=False) is not None
    assert "is on another DLPack device than stated; got (12, 1), expected (12, 0)" in refusal(
        lambda: machine.run("main", {"x": Foreign(x, (12, 0))})
    )
    strange = DeviceArray(device, x, x.tensor)
    assert "has no buffer of 16 bytes at this address" in refusal(lambda: machine.run("main", {"x": Foreign(strange)}))


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


def test_copies_check_the_other_array() -> None:
    device = npu()
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = DeviceArray.copy_of(table, device)
    for other, problem in (
        (np.zeros((2, 3)), "has another dtype; got float64, expected float32"),
        (np.zeros((2, 3), ">f4"), "has another dtype; got >f4, expected float32"),
        (np.zeros((3, 2), np.float32), "has another shape; got [3, 2], expected [2, 3]"),
        (np.zeros((1, 3), np.float32), "has another shape; got [1, 3], expected [2, 3]"),
        (np.zeros((4, 3), np.float32), "has another shape; got [4, 3], expected [2, 3]"),
        ([[1.0]], "is no array; got list"),
    ):
        given: Any = other
        assert refusal(lambda given=given: x.assign(given)) == f"{x!r}, source of a copy: {problem}"
        assert refusal(lambda given=given: x.copy_to(given)) == f"{x!r}, target of a copy: {problem}"
    smaller = DeviceArray.empty(device, "float32", (1, 3), "y")
    assert "has another shape" in refusal(lambda: x.assign(smaller))
    read_only = np.zeros((2, 3), np.float32)
    read_only.flags.writeable = False
    assert refusal(lambda: x.copy_to(read_only)) == f"{x!r}, target of a copy: is read-only"
    np.testing.assert_array_equal(x.numpy(), table)
    strided = np.zeros((3, 2), np.float32).T
    x.copy_to(strided)
    np.testing.assert_array_equal(strided, table)
    x.assign((2 * table).T.copy().T)
    np.testing.assert_array_equal(x.numpy(), 2 * table)


@pytest.mark.parametrize("start", range(5))
def test_an_array_is_assigned_from_an_array_with_common_bytes(start: int) -> None:
    device = npu(distinct_adoptions=True)
    full = DeviceArray.copy_of(np.arange(8, dtype=np.float32), device)
    source = DeviceArray.of_dlpack(Foreign(DeviceArray(device, full, full.tensor.part(8, (4,)))), device)
    DeviceArray(device, full, full.tensor.part(4 * start, (4,))).assign(source)
    expected = np.arange(8, dtype=np.float32)
    expected[start : start + 4] = [2, 3, 4, 5]
    np.testing.assert_array_equal(full.numpy(), expected)
    assert device.counts.copies_within == {2: 0}.get(start, 2)


def test_a_profile_reads_arrays_on_devices() -> None:
    device = npu()
    text = 'def main(x: R.Tensor(("n",))):\n    a = R.negative(x)\n    return a'
    session = Session(build_on(parse(text), toy_of(device, ["negative"])), device=device)
    x = DeviceArray.copy_of(X, device)
    before = device.counts.copies_in
    for value in (x, Foreign(x)):
        assert session.profile({"x": value}, num_calls=1, warm_up=0, peaks=Peaks(1e9, 1e9)).sizes == {"n": 4}
    assert device.counts.copies_in == before
    counter = parse('def main(x: R.Tensor(("n",)), h: R.Tensor(("n",))):\n    y = R.add(h, x)\n    return y')
    executable = build_on(KeepStates((("h", "output0"),), "main")(counter), toy_of(device))
    found = profile(executable, [x], devices={"npu": device}, num_calls=1, warm_up=0, peaks=Peaks(1e9, 1e9))
    assert found.sizes == {"n": 4}


def test_calls_without_arrays_on_devices_say_so() -> None:
    device = npu()
    x = DeviceArray.copy_of(X, device)
    executable = build_on(parse('def main(x: R.Tensor(("n",))):\n    a = R.negative(x)\n    return a'), toy_of(device))
    machine = run_on(executable, device)
    assert "input 0 `x`: is not in CPU memory" in refusal(lambda: machine.bind("main", {"x": x}))
    assert "output 0 `a`: is not in CPU memory" in refusal(lambda: machine.bind("main", {"x": X}, {"a": x}))
    options: Any
    for options in ({"casting": "same_kind"}, {"buckets": {"n": [4, 8]}}):
        session = Session(executable, device=device, **options)
        assert "`x`: is not in CPU memory" in refusal(lambda session=session: session.run(None, {"x": x}))
        text = refusal(lambda session=session: session.run(None, {"x": X}, on_device=True))
        assert "leaves no outputs on devices" in text


def test_out_of_memory_for_a_result_is_an_error() -> None:
    device = npu()
    machine = machine_on(PLAIN, device)
    machine["main"](X)
    device.failing_allocation = device.counts.allocations
    with pytest.raises(ExecutionError, match="result `b`: device `npu:0` cannot allocate 16 bytes"):
        machine.run("main", {"x": X}, on_device=True)
    np.testing.assert_array_equal(machine.run("main", {"x": X}, on_device=True).numpy(), np.exp(-X))


def test_eight_threads_share_inputs_on_a_device() -> None:
    device = ProtectedDevice("npu", max_delay=0.0005)
    machine = machine_on(PLAIN, device)
    x = DeviceArray.copy_of(X, device)

    def use(machine: VirtualMachine, x: DeviceArray, number: int) -> None:
        for _ in range(4):
            own = machine.run("main", {"x": x}, on_device=True)
            twice = machine.run("main", {"x": own}, on_device=number % 2 == 0)
            found = twice.numpy() if isinstance(twice, DeviceArray) else twice
            np.testing.assert_array_equal(found, np.exp(-np.exp(-X)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(partial(use, machine, x), range(8)))
    del machine, x
    check_freed([device])


# -- random functions -----------------------------------------------------------------------------------------


def on_some_device(array: Any, number: int, devices: Sequence[ProtectedDevice], machine: VirtualMachine) -> Any:
    """Return an array on one of the machine's devices, on the host (0), or as a tensor of another package."""
    used = [device for device in devices if device in machine.devices.values()]
    if not number or not used:
        return array
    found = DeviceArray.copy_of(np.asarray(array), used[number % len(used)])
    return Foreign(found) if number >= 4 else found


def as_host(value: Any) -> Any:
    return value.numpy() if isinstance(value, DeviceArray) else value


def calls_agree(
    module: IRModule,
    pairs: Sequence[tuple[ProtectedDevice, DeviceToy]],
    inputs: Sequence[Any],
    places: Sequence[int],
) -> bool:
    """Return whether calls with arrays anywhere give the values of the interpreter, and leave the inputs unchanged."""
    devices = [device for device, _ in pairs]
    machine = machine_of(build_on(module, *(toy for _, toy in pairs)), devices)
    expected = evaluate_function(module, "main", inputs)
    names = [spec.name for spec in machine["main"].params]
    given_inputs = [on_some_device(*pair, devices, machine) for pair in zip(inputs, places, strict=False)]
    for on_device in (True, False, True):
        found = machine.run("main", dict(zip(names, given_inputs, strict=True)), on_device=on_device)
        found = found if isinstance(found, tuple) else (found,)
        if not on_device and any(isinstance(value, DeviceArray) for value in found):
            return False
        if not all(np.array_equal(as_host(have), want) for have, want in zip(found, expected, strict=True)):
            return False
    kept = zip(given_inputs, inputs, strict=True)
    return all(np.array_equal(as_host(v._array if isinstance(v, Foreign) else v), want) for v, want in kept)


SQUARE = [np.arange(12, dtype=np.float32).reshape(3, 4) - 5, np.ones((3, 4), np.float32)]
PLACES = st.lists(st.integers(0, 5), min_size=4, max_size=4)


@given(st.data(), PLACES)
@settings(deadline=None)
def test_arrays_lie_anywhere(data: st.DataObject, places: list[int]) -> None:
    module = straight_line(data.draw)
    note(str(module))
    pairs = devices_of(data.draw, HOSTED)
    assert calls_agree(module, pairs, SQUARE, places)
    check_freed([device for device, _ in pairs])


@given(st.data(), PLACES)
@settings(deadline=None)
def test_arrays_lie_anywhere_around_branches_and_loops(data: st.DataObject, places: list[int]) -> None:
    module = Maker(data.draw).module()
    note(str(module))
    pairs = devices_of(data.draw, ("negative", "abs", "nn.relu", "add", "subtract", "maximum", "sum", "less"))
    table = np.random.default_rng(1).integers(-3, 4, (3, 3)).astype(np.float32)
    inputs = [np.array(data.draw(st.booleans())), np.int64(2), np.array([1.5, -2.0, 0.25], np.float32), table]
    assert calls_agree(module, pairs, inputs, places)
    check_freed([device for device, _ in pairs])


def test_a_chain_of_calls_copies_nothing_between_the_calls() -> None:
    """A value fed from call to call on one device crosses to the device once and back once."""
    for length in (1, 2, 5):
        device = npu()
        body = "".join(f"    v{i + 1} = R.add(v{i}, v{i})\n" for i in range(length))
        machine = machine_on(parse(f"def main(v0: {t(4)}):\n{body}    return v{length}"), device, ["add"])
        value: Any = X
        for _ in range(6):
            value = machine.run("main", {"v0": value}, on_device=True)
        np.testing.assert_array_equal(value.numpy(), X * 2 ** (6 * length))
        assert copies(device) == (1, 1, 0)


# -- faults ---------------------------------------------------------------------------------------------------


def check_calls(body: str) -> None:
    """Check calls of a function with arrays on the device and on the host in turn."""
    module = parse(f"def main(x: {t(4)}):\n    {body.replace('; ', chr(10) + '    ')}")
    device = npu()
    machine = machine_on(module, device)
    x = DeviceArray.copy_of(X, device)
    for value in (x, X + 1, x, X - 1):
        found = machine.run("main", {"x": value}, on_device=True)
        expected = evaluate_function(module, "main", [as_host(value)])
        for have, want in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            np.testing.assert_array_equal(as_host(have), want)
    np.testing.assert_array_equal(x.numpy(), X)


def place_without_inputs(places: Any, registers: Any, arrays: Any, placed: PlacedArguments, views_of: Any) -> None:
    """Forget the registers with an array of the caller before each result."""
    for index, array in arrays.items():
        contents = dict(placed.contents)
        placed.contents.clear()
        PLACE_RESULTS(places, registers, {index: array}, placed, views_of)
        placed.contents.update(contents)


INPUT_USE, REPLACE = device_arguments._RegisterUses.input_use, device_arguments._replace
PLACE_RESULTS = device_arguments.place_results

FAULTS: dict[str, tuple[object, str, object, str]] = {
    "arrays of the caller stay in the registers": (
        PlacedArguments,
        "restore",
        lambda self, registers: None,
        "a = R.negative(x); return a",
    ),
    "two results lie in one register": (
        linked_function,
        "place_results",
        place_without_inputs,
        "a = R.negative(x); b = R.reshape(a, shape=(2, 2)); return a, b",
    ),
    "readers of an input on the host are overlooked": (
        device_arguments._RegisterUses,
        "input_use",
        lambda self, param, domain: replace(INPUT_USE(self, param, domain), has_other_readers=False),
        "a = R.negative(x); b = R.floor(x); return a, b",
    ),
    "views of a replaced register are overlooked": (
        device_arguments,
        "_replace",
        lambda registers, placed, number, tensor, views_of: REPLACE(registers, placed, number, tensor, {}),
        "a = R.negative(x); b = R.reshape(a, shape=(2, 2)); h = R.floor(b); c = R.exp(b); return a, h, c",
    ),
    "a copy is left out though the register is overwritten in place": (
        device_arguments._RegisterUses,
        "_replaceable",
        lambda self, target, index: target,
        "",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, broken, body = FAULTS[name]

    def check() -> None:
        check_calls(body) if body else test_an_input_is_never_overwritten_in_place()

    check()
    monkeypatch.setattr(owner, attribute, broken)
    with pytest.raises((AssertionError, ExecutionError, AttributeError)):
        check()
