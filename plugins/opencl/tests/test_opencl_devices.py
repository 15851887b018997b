"""Programs on an OpenCL device: copies between regions, waits, memory, errors, threads, forks, parts of a device."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pyopencl as cl
import pytest
from byoc_core import VirtualMachine
from byoc_core.artifact import Executable
from byoc_core.errors import ExecutionError
from byoc_core.ir import IRModule
from byoc_core.partitioning import PartitionOptions, RunCodegen
from byoc_core.runtime.devices import DeviceTensor
from byoc_core.transform import evaluate_function
from byoc_opencl.device import OpenClDevice, SharedContext
from byoc_opencl.drivers import find_cl_devices

from plugins.opencl.tests.counted_devices import CountedDevice, first_cl_device

pytestmark = pytest.mark.usefixtures("needs_device")

EQUAL_PARTS: list[Any] = [cl.device_partition_property.EQUALLY, 1]
X = np.array([[1.5, -2.0, 0.25], [3.0, -1.0, 8.0]], np.float32)
SIZE = 'R.Tensor((2, 3), "float32")'


def regions(calls: str, **bodies: str) -> IRModule:
    """Return a module with a region for each body, from `x` to `y`, and a main function with calls of the regions."""
    functions = [
        f"def {name}(x: {SIZE}):\n"
        f'    R.func_attr({{"Codegen": "opencl", "global_symbol": "{name}_lib"}})\n'
        f"{textwrap.indent(body, '    ')}\n"
        "    return y"
        for name, body in bodies.items()
    ]
    functions.append(f"def main(x: {SIZE}):\n" + textwrap.indent(calls, "    "))
    return byoc_core.parse("@R.ir_module\nclass M:\n" + textwrap.indent("\n".join(functions), "    "))


def compiled(module: IRModule) -> Executable:
    return byoc_core.build(RunCodegen(backends=["opencl"])(module), [])


def run(module: IRModule, device: OpenClDevice) -> None:
    """Run a module on a device, and compare with the reference kernels; the ops of the tests round once."""
    found = VirtualMachine(compiled(module), devices={"opencl": device})["main"](X)
    (expected,) = evaluate_function(module, "main", [X])
    np.testing.assert_array_equal(found, expected)


CHAIN = regions("a = f(x)\nb = g(a)\nreturn b", f="y = R.negative(x)", g="y = R.abs(x)")
BROKEN_CHAIN = regions("a = f(x)\nh = R.floor(a)\nb = g(h)\nreturn b", f="y = R.negative(x)", g="y = R.abs(x)")


def test_between_two_regions_nothing_is_copied() -> None:
    device = CountedDevice()
    run(CHAIN, device)
    counts = device.counts
    assert (counts.copies_in, counts.copies_out, counts.copies_within) == (1, 1, 0)  # the input and the result


def test_an_op_of_the_host_between_two_regions_costs_two_copies() -> None:
    device = CountedDevice()
    run(BROKEN_CHAIN, device)
    counts = device.counts
    assert (counts.copies_in, counts.copies_out, counts.copies_within) == (2, 2, 0)


def test_all_memory_and_streams_are_released_with_the_machine() -> None:
    device = CountedDevice()
    run(BROKEN_CHAIN, device)
    gc.collect()
    assert (device.counts.live_buffers, device.counts.live_streams) == (0, 0)


def test_parts_of_a_device_are_devices() -> None:
    found = [device for device in find_cl_devices().devices if device.type & cl.device_type.CPU]
    if not found:
        pytest.skip("no OpenCL device of a processor, to be divided")
    try:
        parts = found[0].create_sub_devices(EQUAL_PARTS)
    except cl.Error:
        pytest.skip("one processor: the OpenCL device has no parts")
    devices = [CountedDevice(part, index) for index, part in enumerate(parts)]
    for device in devices:
        run(CHAIN, device)
        assert device.counts.copies_in == 1


def test_many_threads_share_a_machine() -> None:
    machine = VirtualMachine(compiled(BROKEN_CHAIN), devices={"opencl": CountedDevice()})
    inputs = [X * number for number in range(24)]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(machine["main"], inputs))
    for x, found in zip(inputs, results, strict=True):
        np.testing.assert_array_equal(found, np.abs(np.floor(-x)))


def test_memory_beyond_the_device_is_refused_with_the_limit() -> None:
    device = CountedDevice()
    limit = int(first_cl_device().max_mem_alloc_size)
    with pytest.raises(MemoryError, match=f"allocates at most {limit} bytes"):
        device.allocate(limit + 1)
    shape = f"({limit // X.nbytes + 1}, 2, 3)"
    module = regions("a = f(x)\nreturn a", f=f"z = R.broadcast_to(x, shape={shape})\ny = R.max(z, axis=(0,))")
    machine = VirtualMachine(compiled(module), devices={"opencl": device})
    with pytest.raises(ExecutionError, match=r"device `opencl:0` cannot allocate .* bytes: MemoryError"):
        machine["main"](X)
    run(CHAIN, device)


def test_a_kernel_refused_by_the_driver_shows_the_log() -> None:
    with pytest.raises(ExecutionError) as caught:
        OpenClDevice(first_cl_device(), 0).build("__kernel void k(__global float *x) { nothing_here(x); }")
    assert str(caught.value).startswith("device `opencl:0`: does not compile the kernels of the program")
    assert "nothing_here" in str(caught.value)


def test_equal_sources_are_built_once() -> None:
    device = OpenClDevice(first_cl_device(), 0)
    source = "__kernel void k(__global float *x) { x[0] = 1; }"
    assert device.build(source) is device.build(source)


def test_copies_in_wait_for_work_before_in_the_stream() -> None:
    """The source of a copy lives and stays unchanged until an event behind the copy: no copy is lost."""
    device = OpenClDevice(first_cl_device(), 0)
    stream = device.new_stream()
    tensor = DeviceTensor(device.allocate(1 << 20), 0, "float32", (1 << 18,))
    arrays = [np.full(1 << 18, number, np.float32) for number in range(8)]
    found = np.zeros(1 << 18, np.float32)
    for array in arrays:
        device.copy_in(array, tensor, stream)
    device.copy_out(tensor, found, stream)
    device.wait(device.record(stream))
    assert (found == 7).all()
    device.close_stream(stream)
    device.free(tensor.buffer)


def test_foreign_objects_are_refused() -> None:
    device, other = (OpenClDevice(first_cl_device(), index) for index in range(2))
    with pytest.raises(TypeError, match="no stream of device `opencl:0`"):
        device.record(other.new_stream())
    with pytest.raises(TypeError, match="no buffer of an OpenCL device"):
        device.free(object())
    with pytest.raises(TypeError, match="no event of an OpenCL device"):
        device.wait(object())


_FORKED_CALL = """
import os
import byoc_core, numpy as np

module = byoc_core.parse('''
def main(x: R.Tensor((2, 3), "float32")):
    y = R.negative(x)
    return y
''')
executable = byoc_core.build(module, ["opencl"], fallback="error")
machine = byoc_core.VirtualMachine(executable)
machine["main"](np.zeros((2, 3), np.float32))
if os.fork() == 0:
    try:
        machine["main"](np.zeros((2, 3), np.float32))
    except Exception as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


_FORKED_LOAD = """
import os, sys
import byoc_core, numpy as np

module = byoc_core.parse('def main(x: R.Tensor((2, 3), "float32")):\\n    y = R.negative(x)\\n    return y')
byoc_core.build(module, ["opencl"], fallback="error").save(sys.argv[1])  # asks for the devices
if os.fork() == 0:
    try:
        byoc_core.VirtualMachine(byoc_core.load(sys.argv[1]))["main"](np.zeros((2, 3), np.float32))
    except Exception as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="without fork")
@pytest.mark.interpreter
@pytest.mark.parametrize("code", [_FORKED_CALL, _FORKED_LOAD], ids=["call", "load"])
def test_a_forked_child_gets_an_error_not_a_hang(code: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", code, str(tmp_path / "model.byoc")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "forked process" in done.stdout, done.stderr


def test_a_device_says_in_a_forked_child_that_it_was_opened_before() -> None:
    device = OpenClDevice(first_cl_device(), 0)
    device._process -= 1
    with pytest.raises(ExecutionError, match="is unusable in a forked process"):
        device.new_stream()


@pytest.fixture
def parts() -> list[Any]:
    """Return two parts of a processor, as devices."""
    found = [device for device in find_cl_devices().devices if device.type & cl.device_type.CPU]
    if not found:
        pytest.skip("no OpenCL device of a processor, to be divided")
    try:
        return list(found[0].create_sub_devices(EQUAL_PARTS)[:2])
    except cl.Error:
        pytest.skip("one processor: the OpenCL device has no parts")


def test_a_program_runs_on_two_parts_of_a_processor(parts: list[Any]) -> None:
    """Ops of one model on two devices, chosen by number: the value between them is copied once in each direction."""
    module = byoc_core.parse(
        f"def main(x: {SIZE}):\n    a = R.multiply(x, x)\n    b = R.floor(a)\n    c = R.maximum(b, x)\n    return c"
    )
    options = PartitionOptions(devices_from={"b": 1})
    executable = byoc_core.build(module, ["opencl"], fallback="error", partition_options=options)
    assert executable.program.domain_names == ("opencl:0", "opencl:1")
    devices = [CountedDevice(part, index) for index, part in enumerate(parts)]
    machines = [VirtualMachine(executable, devices={"opencl:0": devices[0], "opencl:1": devices[1]})]

    def run_once(number: int) -> None:
        x = X * number
        np.testing.assert_array_equal(machines[0]["main"](x), evaluate_function(module, "main", [x])[0])

    run_once(1)
    # x to both, a from 0 to 1, c from 1.
    assert [(d.counts.copies_in, d.counts.copies_out, d.counts.copies_within) for d in devices] == [
        (1, 1, 0),
        (2, 1, 0),
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run_once, range(24)))
    alone = OpenClDevice(first_cl_device(), 0)
    single = VirtualMachine(executable, devices={"opencl:0": alone, "opencl:1": alone})
    np.testing.assert_array_equal(single["main"](X), evaluate_function(module, "main", [X])[0])
    machines.clear()
    gc.collect()
    assert [(d.counts.live_buffers, d.counts.live_streams) for d in devices] == [(0, 0), (0, 0)]


def test_parts_with_a_common_context_copy_directly(parts: list[Any]) -> None:
    module = byoc_core.parse(
        f"def main(x: {SIZE}):\n    a = R.multiply(x, x)\n    b = R.negative(a)\n    c = R.maximum(b, x)\n"
        "    d = R.add(c, a)\n    return d"
    )
    options = PartitionOptions(devices={"b": 1, "c": 1})
    executable = byoc_core.build(module, ["opencl"], fallback="error", partition_options=options)
    context = SharedContext(parts)
    devices = [CountedDevice(part, index, context) for index, part in enumerate(parts)]
    machines = [VirtualMachine(executable, devices={"opencl:0": devices[0], "opencl:1": devices[1]})]

    def run_once(number: int) -> None:
        x = X * number
        np.testing.assert_array_equal(machines[0]["main"](x), evaluate_function(module, "main", [x])[0])

    run_once(1)
    # x to both, a from 0 to 1, c from 1 to 0, d to the host.
    counts = [(d.counts.copies_in, d.counts.copies_out, d.counts.copies_to_peers) for d in devices]
    assert counts == [(1, 1, 1), (1, 0, 1)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run_once, range(24)))
    mixed = [CountedDevice(parts[0], 0, context), CountedDevice(parts[1], 1)]  # of two contexts
    assert not mixed[0].copies_to(mixed[1])
    single = VirtualMachine(executable, devices={"opencl:0": mixed[0], "opencl:1": mixed[1]})
    np.testing.assert_array_equal(single["main"](X), evaluate_function(module, "main", [X])[0])
    assert [d.counts.copies_to_peers for d in mixed] == [0, 0]
    machines.clear()
    gc.collect()
    assert [(d.counts.live_buffers, d.counts.live_streams) for d in devices] == [(0, 0), (0, 0)]


def test_the_devices_of_a_driver_share_a_context() -> None:
    found = byoc_core.runtime.runtimes().get("opencl").devices()
    platforms = [device._device.platform for device in found]  # type: ignore[attr-defined]
    pairs = [(one, two) for one in range(len(found)) for two in range(len(found))]
    assert all(found[one].copies_to(found[two]) == (platforms[one] == platforms[two]) for one, two in pairs)


def test_devices_that_cannot_be_opened_together_have_contexts_of_their_own(
    parts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = cl.Context

    def open_single(devices: list[Any]) -> Any:
        if len(devices) > 1:
            raise cl.RuntimeError("clCreateContext", "a device is in use", cl.status_code.DEVICE_NOT_AVAILABLE)
        return opened(devices)

    monkeypatch.setattr(cl, "Context", open_single)
    context = SharedContext(parts)
    devices = [CountedDevice(part, index, context) for index, part in enumerate(parts)]
    assert not devices[0].copies_to(devices[1])
    assert devices[0].copies_to(devices[0])
    assert devices[0]._context == context.open(parts[0])
