"""Arrays in the memory of devices as inputs and results, and their exchange by DLPack."""

from __future__ import annotations

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from byoc_core import Session, VirtualMachine, parse
from byoc_core.errors import CallError, ExecutionError
from byoc_core.profiling import Peaks, profile
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.transform import KeepStates

from core.tests.devices.device_arrays import (
    PLAIN,
    Foreign,
    X,
    check_inputs_are_kept,
    copies,
    machine_on,
    npu,
    refusal,
)
from core.tests.devices.device_states import COUNTER, on_npu
from core.tests.devices.test_device_property import check_freed
from core.tests.devices.toys import build_on, run_on, toy_of
from core.tests.lower.test_states import call, module, t

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")


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
    check_inputs_are_kept()


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
