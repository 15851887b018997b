"""Programs on devices: copies, waits, memory, errors and threads, on a device that no stray access survives."""

from __future__ import annotations

import gc
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine
from byoc_core import script as R
from byoc_core.artifact import Executable
from byoc_core.errors import CallError, ExecutionError, LinkError, OptionsError
from byoc_core.ir import IRModule
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.lower import lower
from byoc_core.partitioning import RunCodegen
from byoc_core.runtime.devices import Device, MemoryDomain
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.runtime.staged import StagedModule
from byoc_core.transform import evaluate_function
from byoc_core.vm.border_copies import border_copies
from byoc_core.vm.copy_conflicts import is_crossing
from byoc_core.vm.memory_map import memory_map

from core.tests.devices.toys import DeviceModule, DeviceToy, build_on, crossings, run_on, toy_of
from core.tests.vm.programs import Executable as ProgramOnly

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")

X = np.array([[1.5, -2.0, 0.25], [3.0, -1.0, 8.0]], np.float32)
SIZE = 'R.Tensor((2, 3), "float32")'


def parse(text: str) -> IRModule:
    return R.parse(textwrap.dedent(text))


def regions(calls: str, **bodies: str) -> IRModule:
    """Return a module with annotated functions of one argument ``x`` and a main function with these calls."""
    functions = [
        f"def {name}(x: {SIZE}):\n"
        f'    R.func_attr({{"Codegen": "npu", "global_symbol": "{name}_lib"}})\n'
        f"    y = {body}\n"
        "    return y"
        for name, body in bodies.items()
    ]
    functions.append(f"def main(x: {SIZE}):\n" + "\n".join(f"    {line}" for line in calls.splitlines()))
    text = "\n".join(functions)
    return R.parse("@R.ir_module\nclass M:\n" + "\n".join(f"    {line}" for line in text.splitlines()))


def compiled(module: IRModule, toy: DeviceToy | None = None) -> Executable:
    return byoc_core.build(RunCodegen(backends=[toy or DeviceToy()])(module), [])


def check(executable: Executable, module: IRModule, *devices: ProtectedDevice) -> None:
    machine = run_on(executable, *devices)
    expected = evaluate_function(module, "main", [X])
    found = machine["main"](X)
    for have, want in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_array_equal(have, want)
    del machine
    gc.collect()
    for device in devices:
        assert (device.counts.live_buffers, device.counts.live_bytes, device.counts.live_streams) == (0, 0, 0)


CHAIN = regions("a = f(x)\nb = g(a)\nreturn b", f="R.negative(x)", g="R.exp(x)")
BROKEN_CHAIN = regions("a = f(x)\nh = R.floor(a)\nb = g(h)\nreturn b", f="R.negative(x)", g="R.exp(x)")


def test_between_two_regions_of_a_device_nothing_is_copied() -> None:
    device = ProtectedDevice("npu", is_lazy=True)
    executable = compiled(CHAIN)
    assert crossings(executable.program) == (1, 1)  # the input and the result
    check(executable, CHAIN, device)
    counts = device.counts
    assert (counts.copies_in, counts.copies_out, counts.copies_within, counts.launches) == (1, 1, 0, 2)


def test_an_op_of_the_host_between_two_regions_costs_two_copies() -> None:
    device = ProtectedDevice("npu", is_lazy=True)
    executable = compiled(BROKEN_CHAIN)
    assert crossings(executable.program) == (2, 2)
    check(executable, BROKEN_CHAIN, device)
    assert (device.counts.copies_in, device.counts.copies_out, device.counts.copies_within) == (2, 2, 0)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ("a = f(x)\nb = g(x)\nreturn a, b, b", (1, 2)),
        ("h = R.floor(x)\na = f(h)\nb = g(h)\nreturn a, b", (1, 2)),
        ("a = f(x)\nh = R.floor(a)\ni = R.ceil(a)\nreturn h, i", (1, 1)),
        ("a = f(x)\nh = R.floor(a)\nreturn a, h", (1, 1)),  # the host reads the result's buffer
        ("a = f(x)\nreturn a, a", (1, 1)),
        ("a = R.floor(x)\nreturn a", (0, 0)),
        ("a = f(x)\nb = R.reshape(a, shape=(3, 2))\nc = R.reshape(b, shape=(2, 3))\nd = g(c)\nreturn d", (1, 1)),
        ("a = f(x)\nb = R.reshape(a, shape=(6,))\nreturn b", (1, 1)),
        (
            "a = f(x)\nb = R.concat(a, a, axis=0)\nc, d = R.split(b, sections=(2, 2), axis=0)\ne = g(c)\nreturn e",
            (2, 2),
        ),
        ("a = f(x)\nb = R.concat(a, x, axis=0)\nreturn b", (1, 1)),
        ("a = f(x)\nb, c, d = R.split(a, sections=(1, 1, 1), axis=1)\nreturn b, c", (1, 1)),
    ],
)
def test_a_value_is_copied_once_for_each_domain(calls: str, expected: tuple[int, int]) -> None:
    module = regions(calls, f="R.negative(x)", g="R.exp(x)")
    used = {name for name in ("f", "g") if f"{name}(" in calls}
    assert used or expected == (0, 0)
    executable = compiled(module)
    assert crossings(executable.program) == expected
    check(executable, module, *([ProtectedDevice("npu", is_lazy=True)] if used else []))


def test_tensors_of_a_device_are_aligned_and_reuse_memory() -> None:
    domain = MemoryDomain("npu", alignment=256)
    calls = "a = f(x)\nb = g(a)\nc = f(b)\nd = g(c)\nreturn d"
    module = regions(calls, f="R.negative(x)", g="R.abs(x)")
    executable = compiled(module, DeviceToy(domain=domain))
    (function,) = executable.program.functions
    assert len(function.tensors) == 5
    assert (function.nbytes_in(1), function.arena_nbytes) == (256 + 24, 0)  # two tensors at a time, the last not padded
    found = memory_map(executable.program, function, domain=1)
    assert (found.domain, found.alignment, found.arena_nbytes) == ("npu", 256, function.nbytes_in(1))
    assert found.peak_nbytes == 2 * 24
    assert all(isinstance(buffer.offset, int) and buffer.offset % 256 == 0 for buffer in found.buffers)
    assert memory_map(executable.program, function).buffers == ()
    check(executable, module, ProtectedDevice("npu", alignment=256, is_lazy=True))


WEIGHTS = parse(
    """
    def main(x: R.Tensor((2, 3), "float32")):
        a = R.add(x, R.const([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "float32"))
        h = R.floor(a)
        b = R.multiply(h, R.const([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "float32"))
        c = R.subtract(b, R.const([[7.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "float32"))
        return c
    """
)


def test_constants_are_copied_once_for_each_machine() -> None:
    device = ProtectedDevice("npu", is_lazy=True)
    executable = build_on(WEIGHTS, toy_of(device))
    machine = run_on(executable, device)
    uploads = device.counts.copies_in
    assert uploads == len({ref.digest for ref in executable.program.constants}) == 2
    for _ in range(3):
        np.testing.assert_array_equal(machine["main"](X), evaluate_function(WEIGHTS, "main", [X])[0])
    assert device.counts.copies_in == uploads + 3 * crossings(executable.program)[0]
    check(executable, WEIGHTS, ProtectedDevice("npu", is_lazy=True))


LOOP = parse(
    """
    def main(x: R.Tensor((2, 3), "float32"), trips: R.Tensor((), "int64")):
        def body(i: R.Tensor((), "int64"), y: R.Tensor((2, 3), "float32"), z: R.Tensor((2, 3), "float32")):
            a = R.negative(y)
            b = R.add(a, z)
            return R.const(True, "bool"), b, z
        y, z = R.loop(trips, R.const(True, "bool"), x, x, regions=[body])
        return y
    """
)


@pytest.mark.parametrize("trips", [0, 1, 2, 9])
def test_values_carried_by_a_loop_stay_on_the_device(trips: int) -> None:
    device = ProtectedDevice("npu", is_lazy=True)
    executable = build_on(LOOP, toy_of(device))
    machine = run_on(executable, device)
    (want,) = evaluate_function(LOOP, "main", [X, np.int64(trips)])
    np.testing.assert_array_equal(machine["main"](X, np.int64(trips)), want)
    assert device.counts.copies_in + device.counts.copies_out <= 3, device.counts  # whatever the number of rounds


@pytest.mark.parametrize(
    ("calls", "copies"),
    [
        ("a = f(x)\nh = R.floor(a)\nb = g(h)\nreturn b", 2),  # the input and the result
        ("h = R.floor(x)\na = f(h)\ni = R.ceil(a)\nreturn i", 0),
        ("a = f(x)\nb = R.concat(a, a, axis=0)\nc, d = R.split(b, sections=(2, 2), axis=0)\nreturn c", 3),
    ],
)
def test_memory_accessible_to_the_host_is_used_in_place(calls: str, copies: int) -> None:
    module = regions(calls, f="R.negative(x)", g="R.exp(x)")
    device = ProtectedDevice("npu", is_lazy=True, host_accessible=True)
    executable = compiled(module, DeviceToy(domain=device.domain))
    (function,) = executable.program.functions
    assert sum(is_crossing(function, call) for call in function.code) == copies
    check(executable, module, device)
    assert (device.counts.copies_in, device.counts.copies_out) == (0, 0)  # the host copies inputs and results itself


def branches(otherwise: str, after: str = "r") -> IRModule:
    return parse(
        f"""
        def main(x: {SIZE}, flag: R.Tensor((), "bool")):
            def then_region(y: {SIZE}):
                a = R.negative(y)
                b = R.abs(a)
                c = R.subtract(b, y)
                return c
            def else_region(y: {SIZE}):
                d = R.{otherwise}(y)
                return d
            r = R.if_(flag, x, regions=[then_region, else_region])
            s = R.{after}(r)
            return s
        """
    )


@pytest.mark.parametrize(
    ("otherwise", "after", "taken", "expected"),
    [
        ("floor", "ceil", True, (1, 1)),
        ("floor", "ceil", False, (0, 0)),  # a branch of the host alone copies nothing
        ("exp", "relu", True, (1, 1)),  # both branches and the reader are on the device
        ("exp", "relu", False, (1, 1)),
        ("floor", "relu", False, (1, 1)),
    ],
)
def test_branches_copy_for_themselves(otherwise: str, after: str, taken: bool, expected: tuple[int, int]) -> None:
    module = branches(otherwise, "nn.relu" if after == "relu" else after)
    device = ProtectedDevice("npu", is_lazy=True)
    executable = build_on(module, toy_of(device))
    machine = run_on(executable, device)
    (want,) = evaluate_function(module, "main", [X, np.array(taken)])
    np.testing.assert_array_equal(machine["main"](X, np.array(taken)), want)
    assert (device.counts.copies_in, device.counts.copies_out) == expected


@pytest.mark.parametrize("is_lazy", [True, False])
def test_results_are_complete_when_a_call_returns(is_lazy: bool) -> None:
    device = ProtectedDevice("npu", max_delay=0 if is_lazy else 0.003, is_lazy=is_lazy)
    machine = run_on(compiled(BROKEN_CHAIN), device)
    (want,) = evaluate_function(BROKEN_CHAIN, "main", [X])
    out = np.zeros_like(X)
    for _ in range(3):
        np.testing.assert_array_equal(machine["main"](X), want)
        out[...] = 0
        assert machine.run("main", {"x": X}, out={machine["main"].results[0].name: out}) is out
        np.testing.assert_array_equal(out, want)
    x = X.copy()
    call = machine.bind("main", {"x": x})
    np.testing.assert_array_equal(call(), want)
    x[...] = 2 * X
    np.testing.assert_array_equal(call(), evaluate_function(BROKEN_CHAIN, "main", [2 * X])[0])


def test_eight_threads_share_a_machine() -> None:
    device = ProtectedDevice("npu", max_delay=0.001)
    machines = [run_on(build_on(WEIGHTS, toy_of(device)), device)]

    def run(number: int) -> None:
        x = X * number
        np.testing.assert_array_equal(machines[0]["main"](x), evaluate_function(WEIGHTS, "main", [x])[0])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(64)))
    assert 1 <= device.counts.live_streams <= 8
    machines.clear()
    gc.collect()
    assert (device.counts.live_buffers, device.counts.live_streams) == (0, 0)


def test_two_devices_meet_in_the_memory_of_the_host() -> None:
    module = parse(
        f"""
        def main(x: {SIZE}):
            a = R.abs(x)
            b = R.exp(a)
            c = R.add(b, a)
            return c
        """
    )
    npu, gpu = ProtectedDevice("npu", is_lazy=True), ProtectedDevice("gpu", alignment=128, is_lazy=True)
    executable = build_on(module, toy_of(npu, ["abs", "add"]), toy_of(gpu, ["exp"]))
    assert [domain.name for domain in executable.program.domains] == ["npu", "gpu"]
    # x to npu, a to the host and gpu, b to the host and npu, c to the host.
    assert crossings(executable.program) == (3, 3)
    check(executable, module, npu, gpu)
    assert (npu.counts.copies_in, npu.counts.copies_out) == (2, 2)
    assert (gpu.counts.copies_in, gpu.counts.copies_out) == (1, 1)


def test_each_copy_names_its_value_and_readers() -> None:
    program = compiled(BROKEN_CHAIN).program
    copies = border_copies(program, program.functions[0])
    assert [(c.instruction, c.nbytes, c.source, c.target, c.value, c.readers) for c in copies] == [
        (0, 24, "host", "npu", "input `x`", ("`f_lib`",)),
        (2, 24, "npu", "host", "`f_lib`", ("`host_main_0`",)),
        (4, 24, "host", "npu", "`host_main_0`", ("`g_lib`",)),
        (6, 24, "npu", "host", "`g_lib`", ("result `b`",)),
    ]


def test_functions_of_a_program_pass_values_in_the_memory_of_the_host() -> None:
    text = f"""
@R.ir_module
class M:
    def f(x: {SIZE}):
        R.func_attr({{"Codegen": "npu", "global_symbol": "f_lib"}})
        y = R.exp(x)
        return y
    def helper(x: {SIZE}):
        a = f(x)
        b = f(a)
        return b
    def main(x: {SIZE}):
        a = f(x)
        b = helper(a)
        return b
"""
    module = RunCodegen(backends=[DeviceToy()])(R.parse(text))
    program = lower(module)
    assert [function.name for function in program.functions] == ["helper", "main"]
    assert crossings(program) == (2, 2)
    device = ProtectedDevice("npu", is_lazy=True)
    machine = VirtualMachine(
        ProgramOnly(program, module.attrs[EXTERNAL_MODULES], module.constants), devices={"npu": device}
    )
    x = X / 10
    np.testing.assert_array_equal(machine["main"](x), np.exp(np.exp(np.exp(x))))


def test_the_index_of_a_device_is_kept_by_its_machine() -> None:
    devices = [ProtectedDevice("npu", index, is_lazy=True) for index in range(2)]
    executable = compiled(CHAIN)
    machines = [run_on(executable, device) for device in devices]
    (want,) = evaluate_function(CHAIN, "main", [X])
    for machine in machines:
        np.testing.assert_array_equal(machine["main"](X), want)
    assert [device.counts.launches for device in devices] == [2, 2]


def failing_module(module: IRModule, *symbols: str) -> IRModule:
    """Return a compiled module with failing functions."""
    found = RunCodegen(backends=[DeviceToy()])(module)
    externals = [
        DeviceModule(external.graph, MemoryDomain("npu"), symbols) if isinstance(external, DeviceModule) else external
        for external in found.attrs[EXTERNAL_MODULES]
    ]
    return found.with_attrs(**{EXTERNAL_MODULES: tuple(externals)})


@pytest.mark.parametrize("is_lazy", [True, False])
def test_a_failure_of_enqueued_work_names_device_and_calls(is_lazy: bool) -> None:
    device = ProtectedDevice("npu", is_lazy=is_lazy)
    executable = byoc_core.build(failing_module(CHAIN, "f_lib"), [])
    machine = run_on(executable, device)
    for _ in range(2):
        with pytest.raises(ExecutionError) as caught:
            machine["main"](X)
        assert str(caught.value) == (
            "function `main`: work on device `npu:0` failed with RuntimeError: f_lib fails on the device. The work was "
            "enqueued by instruction 0 (call_builtin `copy`), instruction 1 (call_dps_packed `f_lib` of runtime "
            "`graph`), instruction 2 (call_dps_packed `g_lib` of runtime `graph`), instruction 3 (call_builtin `copy`)."
        )
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert device.counts.live_streams == 0
    del machine, caught
    gc.collect()
    assert device.counts.live_buffers == 0


def test_a_failure_before_an_op_of_the_host_is_found_by_the_wait() -> None:
    device = ProtectedDevice("npu", is_lazy=True)
    executable = byoc_core.build(failing_module(BROKEN_CHAIN, "f_lib"), [])
    with pytest.raises(ExecutionError, match="function `main`: work on device `npu:0` failed"):
        run_on(executable, device)["main"](X)


def test_a_call_refused_by_the_device_names_the_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    device = ProtectedDevice("npu", is_lazy=True)
    machine = run_on(compiled(CHAIN), device)

    def refuse(*_: object) -> None:
        raise RuntimeError("the bus is gone")

    monkeypatch.setattr(device, "copy_in", refuse)
    with pytest.raises(ExecutionError) as caught:
        machine["main"](X)
    assert str(caught.value) == (
        "function `main`, instruction 0 (call_builtin `copy`): failed with RuntimeError: the bus is gone"
    )


@pytest.mark.parametrize("module", [WEIGHTS, CHAIN])
def test_out_of_memory_at_every_allocation(module: IRModule) -> None:
    def attempt(executable: Executable, device: ProtectedDevice) -> NDArray:
        found: Any = run_on(executable, device)["main"](X)
        return np.asarray(found)

    executable = compiled(module) if module is CHAIN else build_on(module, DeviceToy())
    device = ProtectedDevice("npu", is_lazy=True)
    (want,) = evaluate_function(module, "main", [X])
    np.testing.assert_array_equal(attempt(executable, device), want)
    num_allocations = device.counts.allocations
    assert num_allocations == (2 if module is WEIGHTS else 1)
    failures = 0
    for number in range(num_allocations):
        device = ProtectedDevice("npu", is_lazy=True)
        device.failing_allocation = number
        try:
            np.testing.assert_array_equal(attempt(executable, device), want)  # only a preparation has failed
        except ExecutionError as error:
            failures += "device `npu:0` cannot allocate" in str(error)
        gc.collect()
        assert (device.counts.live_buffers, device.counts.live_streams) == (0, 0)
        device = ProtectedDevice("npu", capacity=0, is_lazy=True)
        with pytest.raises(ExecutionError, match="device `npu:0` cannot allocate"):
            attempt(executable, device)
        gc.collect()
        assert (device.counts.live_buffers, device.counts.live_streams) == (0, 0)
    assert failures == (1 if module is WEIGHTS else 0)


def test_symbolic_sizes_lay_out_a_device_anew() -> None:
    module = parse(
        """
        def main(x: R.Tensor(("n", 3), "float32")):
            a = R.negative(x)
            h = R.floor(a)
            b = R.exp(h)
            return b
        """
    )
    device = ProtectedDevice("npu", is_lazy=True)
    machine = run_on(build_on(module, toy_of(device)), device)
    for n in (1, 5, 0, 3, 100):
        x = np.arange(3 * n, dtype=np.float32).reshape(n, 3) / 10
        np.testing.assert_array_equal(machine["main"](x), evaluate_function(module, "main", [x])[0])
    assert device.counts.live_buffers == 1  # the arena has grown
    x = np.ones((1000, 3), np.float32)
    for _ in range(2):
        device.failing_allocation = device.counts.allocations
        with pytest.raises(ExecutionError, match="device `npu:0` cannot allocate 24032 bytes"):
            machine["main"](x)
    np.testing.assert_array_equal(machine["main"](x), evaluate_function(module, "main", [x])[0])
    assert device.counts.live_buffers == 1


def refusals() -> dict[str, tuple[Callable[[], object], type[Exception], str]]:
    executable = compiled(CHAIN)
    npu = MemoryDomain("npu")
    return {
        "no device": (
            lambda: VirtualMachine(executable),
            LinkError,
            "device `npu:0`: is not on this machine; got no device. `byoc doctor` shows the state of the runtime.",
        ),
        "no such index": (
            lambda: VirtualMachine(executable, devices={"npu": 3}),
            LinkError,
            "device `npu:3`: is not on this machine; got no device. `byoc doctor` shows the state of the runtime.",
        ),
        "a negative index": (
            lambda: VirtualMachine(executable, devices={"npu": -1}),
            OptionsError,
            "devices['npu']: is neither a device nor the index of a device; got -1",
        ),
        "another domain": (
            lambda: VirtualMachine(executable, devices={"npu": ProtectedDevice("npu", alignment=128)}),
            LinkError,
            f"devices['npu']: has memory of another domain; got {MemoryDomain('npu', 128)}, expected {npu}",
        ),
        "an unknown domain": (
            lambda: VirtualMachine(executable, devices={"npv": 0}),
            OptionsError,
            "devices['npv']: is no domain of the program; expected npu. Did you mean 'npu'?",
        ),
        "a function of the host in place of the device's": (
            lambda: VirtualMachine(
                executable, devices={"npu": ProtectedDevice("npu")}, externs={"f_lib": lambda x, y: None}
            ),
            LinkError,
            (
                "function `main`, instruction 1: the tensors of `f_lib` have another memory than stated by the program;"
                f" got the host's, expected {npu}"
            ),
        ),
        "a program without devices": (
            lambda: VirtualMachine(byoc_core.build(WEIGHTS, []), devices={"npu": 0}),
            OptionsError,
            "devices['npu']: is no domain of the program; expected no devices at all",
        ),
    }


@pytest.mark.parametrize("name", refusals())
def test_refused_machines(name: str) -> None:
    make, kind, message = refusals()[name]
    with pytest.raises(kind) as caught:
        make()
    assert str(caught.value) == message


def test_a_single_function_is_called_with_arrays_of_the_host() -> None:
    module = next(found for found in compiled(CHAIN).modules if isinstance(found, DeviceModule))
    device = ProtectedDevice("npu", max_delay=0.001)
    function = StagedModule(module, lambda domain: device).get_function("f_lib")
    out = np.zeros((3, 2), np.float32).T
    function(X, out)
    np.testing.assert_array_equal(out, -X)
    assert (device.counts.live_buffers, device.counts.live_streams) == (0, 0)
    assert StagedModule(module).call_traits("f_lib").domain is None
    with pytest.raises(CallError) as caught:
        module.get_function("f_lib")(X, np.zeros_like(X))
    assert str(caught.value) == "device `npu:0`: is not on this machine; got no device"


def test_a_program_on_a_device_has_no_form_in_machine_code_alone() -> None:
    from byoc_core.artifact.native_program import NativeProgram

    executable = compiled(CHAIN)
    (function,) = executable.program.functions
    assert "memory of device `npu`" in NativeProgram(executable.program, executable.modules).obstacles(function)


def test_a_session_takes_its_only_device_or_devices_by_domain() -> None:
    executable = compiled(CHAIN)
    (want,) = evaluate_function(CHAIN, "main", [X])
    device = ProtectedDevice("npu", is_lazy=True)
    for given in (device, {"npu": device}):
        session = byoc_core.Session(executable, device=given)
        (found,) = session(X).values()
        np.testing.assert_array_equal(found, want)
    assert device.counts.launches == 4
    profile = session.profile({"x": X}, num_calls=10)
    assert device.counts.launches > 4
    assert "f_lib" in str(profile)
    with pytest.raises(OptionsError) as caught:
        byoc_core.Session(WEIGHTS, [], cache=False, device=0)
    assert str(caught.value) == "device: is given for a program without devices"


STATE = parse(
    f"""
    @R.function
    def main(x: {SIZE}, s: {SIZE}):
        R.func_attr({{"input_names": ("x", "s"), "output_names": ("y", "t"), "states": (("s", "t"),)}})
        a = R.add(s, x)
        h = R.floor(x)
        t = R.add(a, h)
        y = R.multiply(t, t)
        return y, t
    """
)


def test_a_device_with_no_memory_for_the_host_says_so() -> None:
    class Unmapped(ProtectedDevice):
        map = Device.map

    device = Unmapped("npu", host_accessible=True)
    with pytest.raises(ExecutionError, match=r"device `npu.*maps no memory for the host.*Override `Device.map`"):
        run_on(compiled(CHAIN, toy_of(device)), device)["main"](X)


@pytest.mark.parametrize("host_accessible", [False, True])
def test_states_are_updated_by_devices(host_accessible: bool) -> None:
    """The upload of the old value ends before the new value is copied into the same memory."""
    device = ProtectedDevice("npu", is_lazy=True, host_accessible=host_accessible)
    executable = build_on(STATE, toy_of(device))
    found = run_on(executable, device)["main"]
    state = np.zeros_like(X)
    for _ in range(3):
        y = found(X)
        state = state + X + np.floor(X)
        np.testing.assert_array_equal(y, state * state)
