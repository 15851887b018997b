"""Random programs on devices: the interpreter's bits, the fewest copies, and the laws of memory, broken on purpose."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core import parse
from byoc_core.artifact import Executable
from byoc_core.errors import ProgramError
from byoc_core.ir import Binding, FunctionBuilder, IRModule, TensorType, Value, Var, tensor
from byoc_core.ir.structural import CALL_DPS_PACKED
from byoc_core.lower import domains, plan_registers
from byoc_core.lower.buffers import Buffers
from byoc_core.ops import default_ops
from byoc_core.opset.opdef import Trait
from byoc_core.runtime.module import RuntimeModule
from byoc_core.runtime.plan_storage import StoragePlan
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.transform import evaluate_function
from byoc_core.vm import VirtualMachine, device_steps
from byoc_core.vm.device_run import DeviceRun
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from core.tests.devices.toys import DeviceToy, build_on, crossings, run_on, toy_of
from core.tests.lower.test_control_flow_property import Maker

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")

OPS = ("negative", "abs", "nn.relu", "add", "subtract", "maximum", "sum", "less", "broadcast_to")
HOSTED = ("floor", "negative", "abs", "add", "reshape", "permute_dims", "concat")


def devices_of(
    draw: Callable[[st.SearchStrategy[Any]], Any], ops: Sequence[str]
) -> list[tuple[ProtectedDevice, DeviceToy]]:
    """Return one or two devices, each with a backend taking some of the ops."""
    places = [draw(st.sampled_from(("host", "npu", "gpu"))) for _ in ops]
    found = []
    for name, alignment in (("npu", 64), ("gpu", 256)):
        own = [op for op, place in zip(ops, places, strict=True) if place == name]
        is_visible = draw(st.booleans())
        if own:
            device = ProtectedDevice(name, alignment=alignment, is_lazy=True, host_accessible=is_visible)
            found.append((device, toy_of(device, own)))
    return found


def machine_of(executable: Executable, devices: Sequence[ProtectedDevice]) -> VirtualMachine:
    names = {domain.name for domain in executable.program.domains}
    return VirtualMachine(executable, devices={d.domain.name: d for d in devices if d.domain.name in names})


def check_freed(devices: Sequence[ProtectedDevice]) -> None:
    gc.collect()
    for device in devices:
        assert (device.counts.live_buffers, device.counts.live_bytes, device.counts.live_streams) == (0, 0, 0)


@given(st.data())
def test_branches_and_loops_on_devices_give_the_bits_of_the_interpreter(data: st.DataObject) -> None:
    module = Maker(data.draw).module()
    pairs = devices_of(data.draw, OPS)
    devices = [device for device, _ in pairs]
    executable = build_on(module, *(toy for _, toy in pairs))
    machine = machine_of(executable, devices)
    for n in (0, 1, 4):
        for flag in (True, False):
            table = np.random.default_rng(n).integers(-3, 4, (n, 3)).astype(np.float32)
            inputs: list[Any] = [np.array(flag), np.int64(2), np.array([1.5, -2.0, 0.25], np.float32), table]
            expected = evaluate_function(module, "main", inputs)
            for have, want in zip(machine["main"](*inputs), expected, strict=True):
                assert have.dtype == want.dtype
                np.testing.assert_array_equal(have, want)
    del machine
    check_freed(devices)


def straight_line(draw: Callable[[st.SearchStrategy[Any]], Any]) -> IRModule:
    """Return a function without control flow, over tensors of twelve elements."""
    fb = FunctionBuilder("main", ops=default_ops())
    values: list[Value] = [fb.param("x", tensor((3, 4))), fb.param("y", tensor((3, 4)))]
    for _ in range(draw(st.integers(1, 8))):
        op = draw(st.sampled_from(HOSTED))
        operand = draw(st.sampled_from(values))
        assert isinstance(operand.type, TensorType)
        shape = operand.type.shape or ()
        operands, attrs = [operand], {}
        match op:
            case "add":
                operands.append(draw(st.sampled_from([value for value in values if value.type == operand.type])))
            case "reshape":
                attrs = {"shape": draw(st.sampled_from(((3, 4), (4, 3), (12,), (2, 6))))}
            case "permute_dims":
                attrs = {"axes": tuple(reversed(range(len(shape))))}
            case "concat":
                operands, attrs = [operand], {"axis": 0}
        values += fb.bind(op, operands, attrs).results
    results = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=3))
    return IRModule({"main": fb.finish(*results)}, fb.constants)


def needed_copies(compiled: IRModule) -> tuple[int, int]:
    """Return the fewest copies to and from devices, from the names of domains alone: the law as brute force.

    A value exists where its producer writes, follows through reshapes, and is needed where a reader reads; two devices
    meet in the memory of the host.
    """
    owners: dict[str, RuntimeModule] = {
        name: external for external in compiled.attrs.get("external_mods", ()) for name in external.function_names
    }

    def place(call: Binding) -> str:
        symbol = str(call.attrs["symbol"])
        domain = owners[symbol].call_traits(symbol).domain
        return "host" if domain is None else f"{domain.name}:{call.attrs['device']}"

    main = compiled.functions["main"]
    homes: dict[Value, str] = {}
    needs: set[tuple[Value, str]] = set()
    for binding in main.bindings:
        if binding.op is CALL_DPS_PACKED:
            where = place(binding)
        else:
            follows = binding.op.has_trait(Trait.RESHAPING)
            where = homes.get(binding.operands[0], "host") if follows else "host"
        needs |= {(operand, where) for operand in binding.operands if isinstance(operand, Var)}
        homes |= dict.fromkeys(binding.results, where)
    needs |= {(value, "host") for value in main.results if isinstance(value, Var)}
    needs |= {(v, "host") for v, where in needs if "host" not in (where, homes.get(v, "host")) and where != homes[v]}
    copies = [(value, where) for value, where in needs if homes.get(value, "host") != where]
    return sum(where != "host" for _, where in copies), sum(where == "host" for _, where in copies)


@given(st.data())
def test_straight_lines_copy_each_value_once_for_each_domain(data: st.DataObject) -> None:
    module = straight_line(data.draw)
    pairs = devices_of(data.draw, HOSTED)
    captured: list[IRModule] = []

    def capture(found: IRModule) -> IRModule:
        captured.append(found)
        return found

    executable = build_on(module, *(toy for _, toy in pairs), passes={"after_codegen": [capture]})
    if any(device.domain.host_accessible for device, _ in pairs):
        copies, most = crossings(executable.program), needed_copies(captured[-1])
        assert sum(copies) <= sum(most)
    else:
        assert crossings(executable.program) == needed_copies(captured[-1])
    devices = [device for device, _ in pairs]
    machine = machine_of(executable, devices)
    rng = np.random.default_rng(1)
    inputs = [rng.integers(-3, 4, (3, 4)).astype(np.float32) for _ in range(2)]
    found = machine["main"](*inputs)
    expected = evaluate_function(module, "main", inputs)
    for have, want in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_array_equal(have, want)
    if not any(device.domain.host_accessible for device in devices):
        assert sum(device.counts.copies_out for device in devices) == crossings(executable.program)[1]
    del machine
    check_freed(devices)


SQUARE = [np.arange(12, dtype=np.float32).reshape(3, 4) - 5, np.ones((3, 4), np.float32)]


def fails(module: IRModule, pairs: Sequence[tuple[ProtectedDevice, DeviceToy]], inputs: Sequence[Any] = SQUARE) -> bool:
    """Return whether the machine fails, or returns other bits than the interpreter."""
    try:
        executable = build_on(module, *(toy for _, toy in pairs))
        machine = machine_of(executable, [device for device, _ in pairs])
        found = machine["main"](*inputs)
        expected = evaluate_function(module, "main", inputs)
        found = found if isinstance(found, tuple) else (found,)
        return not all(np.array_equal(have, want, equal_nan=True) for have, want in zip(found, expected, strict=True))
    except Exception:
        return True


@st.composite
def cases(draw: Any) -> tuple[IRModule, list[tuple[ProtectedDevice, DeviceToy]]]:
    return straight_line(draw), devices_of(draw, HOSTED)


def no_conflicts(program: object, function: Any) -> list[tuple[int, ...]]:
    return [() for _ in function.code]


def same_place(intervals: Sequence[object], alignment: int) -> StoragePlan:
    return StoragePlan((0,) * len(intervals), 48)


MUTANTS: dict[str, tuple[object, str, object]] = {
    "the host never waits for a copy": (device_steps, "copy_conflicts", no_conflicts),
    "a call returns before the work is done": (DeviceRun, "finish_all", lambda self: self._enqueued.clear()),
    "all tensors of a domain lie in one place": (plan_registers, "plan", same_place),
    "all values are placed in the memory of the host": (
        domains.ValueDomains,
        "home",
        lambda self, value: 0,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_core_is_found_by_a_small_case(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each law broken on purpose fails on a random program, and shrinks to a program of a few ops."""
    owner, attribute, broken = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, broken)
    module, _ = find(
        cases(),
        lambda case: fails(*case),
        settings=settings(
            max_examples=300,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert len(module.functions["main"].bindings) <= 4, str(module)


def kept_copies() -> property:
    """Return an attribute whose entries stay, whatever is assigned."""

    def read(buffers: Any) -> dict[Any, int]:
        found: dict[Any, int] = buffers.__dict__.setdefault("kept", {})
        return found

    return property(read, lambda buffers, copies: read(buffers).update(copies))


def test_a_copy_of_one_branch_is_none_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse(
        """
def main(x: R.Tensor((3,)), flag: R.Tensor((), "bool")):
    def then_region(y: R.Tensor((3,))):
        a = R.negative(y)
        return a
    def else_region(y: R.Tensor((3,))):
        b = R.abs(y)
        return b
    r = R.if_(flag, x, regions=[then_region, else_region])
    return r
"""
    )
    device = ProtectedDevice("npu", is_lazy=True)
    inputs = [np.array([1, -2, 3], np.float32), np.array(False)]
    assert not fails(module, [(device, toy_of(device))], inputs)
    monkeypatch.setattr(Buffers, "copies", kept_copies(), raising=False)
    with pytest.raises(ProgramError, match="register t1 is read before it is written"):
        run_on(build_on(module, toy_of(device)), device)


def test_the_search_finds_nothing_in_an_unbroken_core() -> None:
    with pytest.raises(NoSuchExample):
        find(
            cases(),
            lambda case: fails(*case),
            settings=settings(max_examples=60, database=None, deadline=None, suppress_health_check=list(HealthCheck)),
        )
