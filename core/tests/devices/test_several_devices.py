"""Programs on several devices of one memory domain: copies, memory, errors, threads, random places."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine
from byoc_core import script as R
from byoc_core.errors import ExecutionError, ProgramError
from byoc_core.ir import STRUCTURAL_OPS, IRModule
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.lower.buffers import Buffers
from byoc_core.partitioning import PartitionOptions, RunCodegen, partition
from byoc_core.runtime.devices import MemoryDomain
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.transform import KeepStates, UniqueNames, evaluate_function
from byoc_core.vm import decode, disassemble, encode
from byoc_core.vm.border_copies import border_copies
from byoc_core.vm.memory_map import memory_map
from hypothesis import given
from hypothesis import strategies as st

from core.tests.devices.several_devices import PIPE, X, check_freed, machine_of, placed, two_devices
from core.tests.devices.test_device_property import HOSTED, needed_copies, straight_line
from core.tests.devices.toys import DeviceModule, DeviceToy, crossings
from core.tests.lower.test_control_flow_property import Maker

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")


def test_regions_run_on_the_devices_chosen_by_name_and_copies_are_counted() -> None:
    executable = placed(PIPE, devices_from={"b": 1}, devices={"d": 0})
    assert executable.program.domain_names == ("npu:0", "npu:1")
    devices = two_devices()
    machine = machine_of(executable, devices)
    assert machine.devices == {"npu:0": devices[0], "npu:1": devices[1]}
    (expected,) = evaluate_function(PIPE, "main", [X])
    np.testing.assert_array_equal(machine["main"](X), expected)
    # x to 0, a to the host and to 1, c to the host and to 0, d to the host; a stays on 0 for d.
    assert crossings(executable.program) == (3, 3)
    assert [(d.counts.copies_in, d.counts.copies_out, d.counts.launches) for d in devices] == [(2, 2, 2), (1, 1, 1)]
    del machine
    check_freed(devices)


def test_each_copy_is_explained_with_the_devices() -> None:
    executable = placed(PIPE, devices_from={"b": 1}, devices={"d": 0})
    copies = border_copies(executable.program, executable.program.functions[0])
    assert [(copy.value, copy.source, copy.target) for copy in copies] == [
        ("input `x`", "host", "npu:0"),
        ("`npu_main_0`", "npu:0", "host"),
        ("`npu_main_0`", "host", "npu:1"),
        ("`npu_main_1`", "npu:1", "host"),
        ("`npu_main_1`", "host", "npu:0"),
        ("`npu_main_2`", "npu:0", "host"),
    ]
    report = str(executable.report())
    assert "npu_main_0 and npu_main_1 stay apart: the user places the ops on devices 0 and 1" in report
    assert "`npu_main_1`, 24 bytes: npu:1 to host, for `npu_main_2`" in report
    assert "domain npu:1: aligned to 64 bytes\n" in disassemble(executable.program)
    function = executable.program.functions[0]
    maps = [memory_map(executable.program, function, domain=domain) for domain in (1, 2)]
    assert [found.domain for found in maps] == ["npu:0", "npu:1"]


def test_without_a_border_between_the_devices_nothing_is_copied_between_them() -> None:
    module = R.parse(
        """
def main(x: R.Tensor((2, 3)), y: R.Tensor((2, 3))):
    a = R.exp(x)
    b = R.negative(y)
    c = R.exp(b)
    return a, c
"""
    )
    executable = placed(module, devices={"[bc]": 1})
    assert crossings(executable.program) == (2, 2)  # an input and a result of each device
    devices = two_devices()
    found: Any = machine_of(executable, devices)["main"](X, X)
    for have, want in zip(found, evaluate_function(module, "main", [X, X]), strict=True):
        np.testing.assert_array_equal(have, want)


def test_host_accessible_memory_is_copied_once_between_devices() -> None:
    domain = MemoryDomain("npu", host_accessible=True)
    executable = placed(PIPE, DeviceToy(domain=domain), devices={"b": 1})
    devices = two_devices(host_accessible=True)
    np.testing.assert_array_equal(machine_of(executable, devices)["main"](X), evaluate_function(PIPE, "main", [X])[0])
    between = [c for c in border_copies(executable.program, executable.program.functions[0]) if c.source != "host"]
    assert [(c.source, c.target) for c in between if c.target != "host"] == [("npu:0", "npu:1"), ("npu:1", "npu:0")]


def test_constants_are_uploaded_to_each_device_with_readers() -> None:
    module = R.parse(
        """
def main(x: R.Tensor((2, 3))):
    a = R.add(x, R.const([[1, 2, 3], [4, 5, 6]], "float32"))
    b = R.multiply(a, R.const([[1, 2, 3], [4, 5, 6]], "float32"))
    return b
"""
    )
    executable = placed(module, devices={"b": 1})
    devices = two_devices()
    machine = machine_of(executable, devices)
    assert [device.counts.copies_in for device in devices] == [1, 1]
    np.testing.assert_array_equal(machine["main"](X), evaluate_function(module, "main", [X])[0])


def test_a_machine_with_one_device_runs_a_program_for_two() -> None:
    executable = placed(PIPE, devices_from={"b": 1})
    device = ProtectedDevice("npu", is_lazy=True)
    machine = VirtualMachine(executable, devices={"npu:0": device, "npu:1": device})
    (expected,) = evaluate_function(PIPE, "main", [X])
    for _ in range(3):
        np.testing.assert_array_equal(machine["main"](X), expected)
        found = machine.run("main", {"x": X}, on_device=True)
        np.testing.assert_array_equal(found.numpy(), expected)
        np.testing.assert_array_equal(machine.run("main", {"x": found}), evaluate_function(PIPE, "main", [expected])[0])
    del machine, found
    check_freed([device])


def test_arrays_stay_on_the_device_of_their_region() -> None:
    executable = placed(PIPE, devices_from={"b": 1})
    devices = two_devices()
    machine = machine_of(executable, devices)
    found = machine.run("main", {"x": X}, on_device=True)
    assert found.device is devices[1]
    before = [device.counts.copies_out for device in devices]
    machine.run("main", {"x": X}, out={"d": found})
    assert [device.counts.copies_out - count for device, count in zip(devices, before, strict=True)] == [1, 0]
    # An array on another device than the region reading it crosses by the host.
    np.testing.assert_array_equal(
        machine.run("main", {"x": found}), evaluate_function(PIPE, "main", [evaluate_function(PIPE, "main", [X])[0]])[0]
    )


def test_a_state_stays_on_its_device() -> None:
    module = R.parse(
        """
def main(x: R.Tensor((2, 3)), s: R.Tensor((2, 3))):
    t = R.add(s, x)
    y = R.exp(t)
    z = R.negative(y)
    return z, t
"""
    )
    kept = KeepStates((("s", "output1"),))(module)
    executable = placed(kept, devices={"t": 1, "y": 1})
    assert [summary.domain for summary in executable.states["main"]] == ["npu:1"]
    devices = two_devices()
    machine = machine_of(executable, devices)
    state = np.zeros_like(X)
    for step in range(3):
        counted = [(device.counts.copies_in, device.counts.copies_out) for device in devices]
        want, state = evaluate_function(module, "main", [X / 8, state])
        np.testing.assert_array_equal(machine["main"](X / 8), want)
        changes = [
            (device.counts.copies_in - into, device.counts.copies_out - out)
            for device, (into, out) in zip(devices, counted, strict=True)
        ]
        assert changes == [(1, 1), (2 if step == 0 else 1, 1)]  # the first call uploads the initial value
    np.testing.assert_array_equal(machine.state("main")["s"], state)


def test_a_failure_names_its_device() -> None:
    text = """
@R.ir_module
class M:
    def f(x: R.Tensor((2, 3))):
        R.func_attr({"Codegen": "npu", "global_symbol": "f_lib"})
        y = R.abs(x)
        return y
    def g(x: R.Tensor((2, 3))):
        R.func_attr({"Codegen": "npu", "global_symbol": "g_lib", "device": 1})
        y = R.exp(x)
        return y
    def main(x: R.Tensor((2, 3))):
        a = f(x)
        b = g(a)
        return b
"""
    compiled = RunCodegen(backends=[DeviceToy()])(R.parse(text))
    assert R.parse(str(compiled)) == compiled.with_attrs(**{EXTERNAL_MODULES: ()})
    externals = [
        DeviceModule(external.graph, MemoryDomain("npu"), ["g_lib"]) if isinstance(external, DeviceModule) else external
        for external in compiled.attrs[EXTERNAL_MODULES]
    ]
    devices = two_devices()
    sound = byoc_core.build(compiled, [])
    np.testing.assert_array_equal(machine_of(sound, devices)["main"](X), np.exp(np.abs(X)))
    failing = byoc_core.build(compiled.with_attrs(**{EXTERNAL_MODULES: tuple(externals)}), [])
    machine = machine_of(failing, devices)
    for _ in range(2):
        with pytest.raises(ExecutionError, match=r"work on device `npu:1` failed with .*g_lib fails on the device"):
            machine["main"](X)
    del machine
    check_freed(devices)


@pytest.mark.parametrize("index", [0, 1])
def test_out_of_memory_on_either_device_is_an_error_and_frees_everything(index: int) -> None:
    executable = placed(PIPE, devices_from={"b": 1})
    devices = two_devices()
    devices[index].failing_allocation = 0
    message = f"device `npu:{index}` cannot allocate"
    small = two_devices()
    small[index] = ProtectedDevice("npu", index, capacity=0, is_lazy=True)
    small_machine = machine_of(executable, small)
    with pytest.raises(ExecutionError, match=message):
        small_machine["main"](X)
    del small_machine
    check_freed(small)
    machine = machine_of(executable, devices)
    with contextlib.suppress(ExecutionError):  # the first failure may be of a preparation, and is then no error
        machine["main"](X)
    np.testing.assert_array_equal(machine["main"](X), evaluate_function(PIPE, "main", [X])[0])
    del machine
    check_freed(devices)


def test_eight_threads_share_two_devices() -> None:
    devices = two_devices(is_lazy=False, max_delay=0.001)
    machines = [machine_of(placed(PIPE, devices_from={"b": 1}, devices={"d": 0}), devices)]

    def run(number: int) -> None:
        x = X * number / 8
        np.testing.assert_array_equal(machines[0]["main"](x), evaluate_function(PIPE, "main", [x])[0])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(48)))
    machines.clear()
    check_freed(devices)


def places_of(draw: Callable[[st.SearchStrategy[Any]], Any], module: IRModule) -> Mapping[str, int]:
    ops = (b for f in module.functions.values() for b in f.walk() if b.op not in STRUCTURAL_OPS)
    names = dict.fromkeys(binding.results[0].name for binding in ops)
    return {name: draw(st.integers(0, 2)) for name in names}


@given(st.data())
def test_random_places_give_the_bits_of_the_interpreter_with_the_fewest_copies(data: st.DataObject) -> None:
    module = straight_line(data.draw)
    captured: list[IRModule] = []

    def capture(found: IRModule) -> IRModule:
        captured.append(found)
        return found

    options = PartitionOptions(devices=places_of(data.draw, module))
    is_visible = data.draw(st.booleans())
    toy = DeviceToy(ops=HOSTED, domain=MemoryDomain("npu", host_accessible=is_visible))
    compiled = RunCodegen(backends=[toy])(partition(module, [toy], partition_options=options))
    executable = byoc_core.build(compiled, [], passes={"after_codegen": [capture]})
    assert decode(encode(executable.program)) == executable.program
    if is_visible:
        assert sum(crossings(executable.program)) <= sum(needed_copies(captured[-1]))
    else:
        assert crossings(executable.program) == needed_copies(captured[-1])
    devices = [ProtectedDevice("npu", index, is_lazy=True, host_accessible=is_visible) for index in range(3)]
    machine = machine_of(executable, devices)
    rng = np.random.default_rng(1)
    inputs = [rng.integers(-3, 4, (3, 4)).astype(np.float32) for _ in range(2)]
    found = machine["main"](*inputs)
    expected = evaluate_function(module, "main", inputs)
    for have, want in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_array_equal(have, want)
    del machine
    check_freed(devices)


@given(st.data())
def test_branches_and_loops_on_several_devices(data: st.DataObject) -> None:
    module = UniqueNames()(Maker(data.draw).module())
    toy = DeviceToy()
    options = PartitionOptions(devices=places_of(data.draw, module))
    executable = byoc_core.build(RunCodegen(backends=[toy])(partition(module, [toy], partition_options=options)), [])
    devices = [ProtectedDevice("npu", index, is_lazy=True) for index in range(3)]
    machine = machine_of(executable, devices)
    for flag in (True, False):
        table = np.random.default_rng(4).integers(-3, 4, (4, 3)).astype(np.float32)
        inputs: list[Any] = [np.array(flag), np.int64(2), np.array([1.5, -2.0, 0.25], np.float32), table]
        expected = evaluate_function(module, "main", inputs)
        for have, want in zip(machine["main"](*inputs), expected, strict=True):
            np.testing.assert_array_equal(have, want)
    del machine
    check_freed(devices)


def test_one_domain_for_two_devices_is_found_by_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies left out between two devices give a wrong program: the verifier refuses the program."""
    monkeypatch.setattr(Buffers, "_copied", lambda self, value, domain: self.register_of[value])
    with pytest.raises(ProgramError, match="is not in the memory of"):
        VirtualMachine(placed(PIPE, devices_from={"b": 1}), devices={"npu:0": 0, "npu:1": 1})
