"""Programs on several devices of one memory domain: places, copies, memory, errors, threads, and the laws of files."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine
from byoc_core import script as R
from byoc_core.artifact import Executable
from byoc_core.errors import CodegenError, ExecutionError, LinkError, OptionsError, ProgramError
from byoc_core.ir import STRUCTURAL_OPS, IRModule
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.lower import lower
from byoc_core.lower.buffers import Buffers
from byoc_core.partitioning import PartitionOptions, RunCodegen, partition
from byoc_core.runtime.devices import MemoryDomain
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.transform import KeepStates, UniqueNames, evaluate_function
from byoc_core.vm import Program, VMFunction, decode, disassemble, encode, verify
from byoc_core.vm.border_copies import border_copies
from byoc_core.vm.domain_laws import check_program_domains
from byoc_core.vm.memory_map import memory_map
from hypothesis import given
from hypothesis import strategies as st

from core.tests.devices.test_device_property import HOSTED, needed_copies, straight_line
from core.tests.devices.toys import DeviceModule, DeviceToy, build_on, crossings
from core.tests.lower.test_control_flow_property import Maker

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")

X = np.array([[1.5, -2.0, 0.25], [3.0, -1.0, 8.0]], np.float32)
PIPE = R.parse(
    """
def main(x: R.Tensor((2, 3))):
    a = R.abs(x)
    b = R.exp(a)
    c = R.negative(b)
    d = R.add(c, a)
    return d
"""
)

CALLING = R.parse(
    """
def f(x: R.Tensor((2, 3))):
    e = R.exp(x)
    return e

def main(x: R.Tensor((2, 3))):
    b = f(x)
    c = R.exp(b)
    return c
"""
)


def two_devices(**choices: Any) -> list[ProtectedDevice]:
    return [ProtectedDevice("npu", index, **{"is_lazy": True, **choices}) for index in range(2)]


def named(executable: Executable, devices: Sequence[ProtectedDevice]) -> dict[str, ProtectedDevice]:
    """Return the device for each domain of a program, by the number of the device."""
    program = executable.program
    numbers = [program.device_number(domain) for domain in range(1, len(program.domains) + 1)]
    return {name: devices[number] for name, number in zip(program.domain_names, numbers, strict=True)}


def machine_of(executable: Executable, devices: Sequence[ProtectedDevice]) -> VirtualMachine:
    return VirtualMachine(executable, devices=named(executable, devices))


def placed(module: IRModule, toy: DeviceToy | None = None, **options: Any) -> Executable:
    return build_on(module, toy or DeviceToy(), partition_options=PartitionOptions(**options))


def check_freed(devices: Sequence[ProtectedDevice]) -> None:
    gc.collect()
    for device in devices:
        assert (device.counts.live_buffers, device.counts.live_bytes, device.counts.live_streams) == (0, 0, 0)


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


def test_an_artifact_names_its_devices_and_keeps_its_bytes(tmp_path: Path) -> None:
    two = placed(PIPE, devices_from={"b": 1}).program
    assert two.device_numbers == (0, 1)
    data = encode(two)
    assert data[8:10] == b"\x05\x00"
    assert decode(data) == two
    one = placed(PIPE).program
    assert (one.device_numbers, one.domain_names, encode(one)[8:10]) == ((), ("npu",), b"\x04\x00")
    second = placed(PIPE, devices={"*": 1}).program
    assert (second.device_numbers, second.domain_names) == ((1,), ("npu:1",))


FUNCTION = VMFunction("main", (), (), (), (), (), (), ())
NPU = MemoryDomain("npu")
LAWS: dict[str, tuple[Program, str]] = {
    "one device twice": (
        Program((FUNCTION,), domains=(NPU, NPU), device_numbers=(1, 1)),
        "domain 2: has no name of its own; got 'npu:1'",
    ),
    "two kinds of memory": (
        Program((FUNCTION,), domains=(NPU, MemoryDomain("npu", 128)), device_numbers=(0, 1)),
        f"domain 2: states `npu` in another way; got {MemoryDomain('npu', 128)}, expected {NPU}",
    ),
    "a number for one of two": (
        Program((FUNCTION,), domains=(NPU, MemoryDomain("gpu")), device_numbers=(1,)),
        (
            "program: has other numbers of devices than domains; got [1], expected a number for each of 2 domains, "
            "or none if all are 0"
        ),
    ),
    "no numbers but 0": (
        Program((FUNCTION,), domains=(NPU,), device_numbers=(0,)),
        (
            "program: has other numbers of devices than domains; got [0], expected a number for each of 1 domains, "
            "or none if all are 0"
        ),
    ),
    "the host's name and the number of a device": (
        Program((FUNCTION,), domains=(MemoryDomain("host"),), device_numbers=(1,)),
        "domain 1: has no name of its own; got 'host'",
    ),
    "a number beyond 32 bits": (
        Program((FUNCTION,), domains=(NPU, NPU), device_numbers=(2**31 - 1, 2**31)),
        "domain 2: has an impossible number of a device; got 2147483648, expected 0 to 2147483647",
    ),
    "a name like another's number": (
        Program((FUNCTION,), domains=(NPU, MemoryDomain("npu:1"), NPU), device_numbers=(0, 0, 1)),
        "domain 3: has no name of its own; got 'npu:1'",
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_declarations_of_devices_obey_laws(name: str) -> None:
    program, message = LAWS[name]
    with pytest.raises(ProgramError) as caught:
        check_program_domains(program)
    assert str(caught.value) == message


def test_programs_of_many_domains_are_checked_in_linear_time() -> None:
    domains = tuple(MemoryDomain(f"d{index}") for index in range(50_000))
    data = encode(Program((), domains=domains, device_numbers=(1, *[0] * (len(domains) - 1))))
    start = process_time()
    program = decode(data)
    verify(program)
    assert program.domain_names == ("d0:1", *(domain.name for domain in domains[1:]))
    assert [program.domain_name(index) for index in range(1, len(domains) + 1)] == list(program.domain_names)
    assert process_time() - start < 5  # 0.5 s is usual; work growing with the square takes a minute


def test_a_copy_between_devices_of_one_memory_goes_through_the_host() -> None:
    program = placed(PIPE, devices_from={"b": 1}).program
    (function,) = program.functions
    swapped = tuple({1: 2, 2: 1}.get(domain, domain) for domain in function.domains)
    with pytest.raises(ProgramError):
        verify(replace(program, functions=(replace(function, domains=swapped),)))


def refusals() -> dict[str, tuple[Callable[[], object], type[Exception], str]]:
    executable = placed(PIPE, devices_from={"b": 1})
    device = ProtectedDevice("npu")
    return {
        "the memory without a number": (
            lambda: VirtualMachine(executable, devices={"npu": 0}),
            OptionsError,
            "devices['npu']: is no domain of the program; expected npu:0, npu:1. Did you mean 'npu:1' or 'npu:0'?",
        ),
        "one domain by two names": (
            lambda: VirtualMachine(placed(PIPE), devices={"npu": device, "npu:0": device}),
            OptionsError,
            "devices['npu:0']: is given twice, by two names of a domain",
        ),
        "a negative number": (
            lambda: PartitionOptions(devices={"a": -1}),
            OptionsError,
            "devices `a`: is not the number of a device; got -1, expected 0 to 2147483647",
        ),
        "a number beyond the encoding": (
            lambda: PartitionOptions(devices_from={"a": 2**31}),
            OptionsError,
            "devices_from `a`: is not the number of a device; got 2147483648, expected 0 to 2147483647",
        ),
        "a number of many thousand digits": (
            lambda: PartitionOptions(devices={"a": 1 << 20000}),
            OptionsError,
            "devices `a`: is not the number of a device; got a number of 20001 bits, expected 0 to 2147483647",
        ),
        "no number": (
            lambda: PartitionOptions(devices_from={"a": "npu"}),  # type: ignore[dict-item]
            OptionsError,
            "devices_from `a`: is not the number of a device; got 'npu', expected 0 to 2147483647",
        ),
        "two numbers for an op": (
            lambda: placed(PIPE, devices={"a": 0, "main/a": 1}),
            OptionsError,
            "devices `main/a`: places `a` to `1`, but `a` places the op to `0`",
        ),
        "no op": (
            lambda: placed(PIPE, devices_from={"zz": 1}),
            OptionsError,
            "devices_from `zz`: matches no op. `byoc explain` prints the names.",
        ),
        "the name of a call": (
            lambda: placed(CALLING, devices={"b": 1}),
            OptionsError,
            (
                "devices `b`: names only calls, and no backend takes calls. Name ops of the called function: "
                "`function/name`."
            ),
        ),
        "the name of a call with dependents": (
            lambda: placed(CALLING, devices_from={"b": 1}),
            OptionsError,
            (
                "devices_from `b`: names only calls, and no backend takes calls. Name ops of the called function: "
                "`function/name`."
            ),
        ),
        "no number in a function": (
            lambda: RunCodegen(backends=[DeviceToy()])(
                R.parse(
                    """
def f(x: R.Tensor((3,))):
    R.func_attr({"Codegen": "npu", "global_symbol": "f_lib", "device": "one"})
    y = R.abs(x)
    return y
"""
                )
            ),
            CodegenError,
            "function `f`: names no device; got 'one', expected `device`: a number of 0 to 2147483647",
        ),
        "a negative number in a call": (
            lambda: lower(
                R.parse(
                    """
def main(x: R.Tensor((3,))):
    y = R.call_dps_packed("f", (x,), device=-1, out_types=[R.Tensor((3,))])
    return y
"""
                )
            ),
            CodegenError,
            "function `main`, call of `f`: names no device; got -1, expected 0 to 2147483647",
        ),
        "a function on two devices": (
            lambda: lower(
                R.parse(
                    """
def main(x: R.Tensor((3,))):
    y = R.call_dps_packed("f", (x,), device=1, out_types=[R.Tensor((3,))])
    z = R.call_dps_packed("f", (y,), out_types=[R.Tensor((3,))])
    return z
"""
                )
            ),
            CodegenError,
            "function `main`, call of `f`: names another device than an earlier call; got 0, expected 1",
        ),
        "an absent device": (
            lambda: VirtualMachine(executable, devices={"npu:0": device}),
            LinkError,
            "device `npu:1`: is not on this machine; got no device. `byoc doctor` shows the state of the runtime.",
        ),
    }


@pytest.mark.parametrize("name", refusals())
def test_refusals(name: str) -> None:
    make, kind, message = refusals()[name]
    with pytest.raises(kind) as caught:
        make()
    assert str(caught.value) == message


def test_a_composite_runs_on_the_device_of_its_last_op_and_the_host_has_no_devices() -> None:
    module = partition(PIPE, [DeviceToy(ops=["exp", "negative"])], partition_options=PartitionOptions(devices={"*": 2}))
    assert [function.attrs.get("device") for function in module.functions.values()] == [2, None]
    program = build_on(PIPE, DeviceToy(ops=["exp"]), partition_options=PartitionOptions(devices={"a": 1})).program
    assert program.device_numbers == ()


def test_a_session_takes_devices_by_number() -> None:
    devices = two_devices()
    options = PartitionOptions(devices_from={"b": 1})
    session = byoc_core.Session(
        PIPE, backends=[DeviceToy()], partition_options=options, device={"npu:0": devices[0], "npu:1": devices[1]}
    )
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], evaluate_function(PIPE, "main", [X])[0])
    with pytest.raises(OptionsError) as caught:
        byoc_core.Session(PIPE, backends=[DeviceToy()], partition_options=options, device=devices[0])
    assert str(caught.value) == (
        "device: is given for a program of several domains; expected a mapping by npu:0, npu:1"
    )


def test_dependents_of_an_op_of_a_called_function_are_placed() -> None:
    program = placed(CALLING, devices_from={"f/e": 1}).program
    assert (program.device_numbers, program.domain_names) == ((1,), ("npu:1",))
