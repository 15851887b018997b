"""Direct copies between devices of one memory: counts, order, failures, ways over the host, laws, random places."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import ExecutionError, LinkError, ProgramError
from byoc_core.ir import Var
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.ir.structural import CALL_DPS_PACKED
from byoc_core.opset.opdef import Trait
from byoc_core.partitioning import PartitionOptions, RunCodegen, partition
from byoc_core.runtime.devices import Device, DeviceTensor
from byoc_core.runtime.memory import MemoryDomain
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.transform import UniqueNames, evaluate_function
from byoc_core.vm import VirtualMachine, decode, disassemble, encode, verify
from byoc_core.vm.border_copies import border_copies
from byoc_core.vm.device_run import DeviceRun
from hypothesis import given
from hypothesis import strategies as st

from core.tests.devices.several_devices import PIPE, X, check_freed, machine_of, placed, two_devices
from core.tests.devices.test_device_property import HOSTED, straight_line
from core.tests.devices.test_several_devices import places_of
from core.tests.devices.toys import DeviceModule, DeviceToy
from core.tests.lower.test_control_flow_property import Maker

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")

PEERS = MemoryDomain("npu", peer_copies=True)


def peer_toy(**choices: Any) -> DeviceToy:
    return DeviceToy(domain=PEERS, **choices)


def counts(device: ProtectedDevice) -> tuple[int, int, int, int]:
    found = device.counts
    return found.copies_in, found.copies_out, found.copies_within, found.copies_to_peers


def test_a_value_passed_between_two_devices_is_copied_once_and_explained() -> None:
    executable = placed(PIPE, peer_toy(), devices_from={"b": 1}, devices={"d": 0})
    devices = two_devices(peer_copies=True)
    machine = machine_of(executable, devices)
    (expected,) = evaluate_function(PIPE, "main", [X])
    np.testing.assert_array_equal(machine["main"](X), expected)
    # x to 0, a from 0 to 1, c from 1 to 0, d to the host.
    assert list(map(counts, devices)) == [(1, 1, 0, 1), (0, 0, 0, 1)]
    copies = border_copies(executable.program, executable.program.functions[0])
    assert [(copy.value, copy.source, copy.target) for copy in copies] == [
        ("input `x`", "host", "npu:0"),
        ("`npu_main_0`", "npu:0", "npu:1"),
        ("`npu_main_1`", "npu:1", "npu:0"),
        ("`npu_main_2`", "npu:0", "host"),
    ]
    assert "`npu_main_1`, 24 bytes: npu:1 to npu:0, for `npu_main_2`" in str(executable.report())
    assert "domain npu:0: aligned to 64 bytes, copied between devices\n" in disassemble(executable.program)
    data = encode(executable.program)
    assert data[8:10] == b"\x06\x00"
    assert decode(data) == executable.program
    del machine
    check_freed(devices)


def test_a_device_without_a_way_to_the_other_copies_by_the_host() -> None:
    class Alone(ProtectedDevice):
        def copies_to(self, peer: Device) -> bool:
            return super(ProtectedDevice, self).copies_to(peer)

    executable = placed(PIPE, peer_toy(), devices_from={"b": 1}, devices={"d": 0})
    devices = [Alone("npu", index, is_lazy=True, peer_copies=True) for index in range(2)]
    machine = machine_of(executable, devices)
    for _ in range(2):
        np.testing.assert_array_equal(machine["main"](X), evaluate_function(PIPE, "main", [X])[0])
    assert list(map(counts, devices)) == [(4, 4, 0, 0), (2, 2, 0, 0)]
    with pytest.raises(ExecutionError, match="device `npu:0`: has no copies to device `npu:1`"):
        super(ProtectedDevice, devices[0]).copy_to_peer(
            DeviceTensor(None, 0, "int8", ()), None, devices[1], DeviceTensor(None, 0, "int8", ()), None
        )
    del machine
    check_freed(devices)


def test_a_device_for_both_numbers_copies_within() -> None:
    executable = placed(PIPE, peer_toy(), devices_from={"b": 1}, devices={"d": 0})
    device = ProtectedDevice("npu", is_lazy=True, peer_copies=True)
    machine = VirtualMachine(executable, devices={"npu:0": device, "npu:1": device})
    for _ in range(2):
        np.testing.assert_array_equal(machine["main"](X), evaluate_function(PIPE, "main", [X])[0])
    assert counts(device) == (2, 2, 4, 0)
    found = machine.run("main", {"x": X}, on_device=True)
    np.testing.assert_array_equal(found.numpy(), evaluate_function(PIPE, "main", [X])[0])
    del machine, found
    check_freed([device])


def test_a_program_with_direct_copies_needs_a_device_with_the_declaration() -> None:
    executable = placed(PIPE, peer_toy(), devices_from={"b": 1})
    with pytest.raises(LinkError, match="has memory of another domain"):
        machine_of(executable, two_devices())
    plain = placed(PIPE, devices_from={"b": 1})
    devices = two_devices(peer_copies=True)  # the way over the host stays open
    np.testing.assert_array_equal(machine_of(plain, devices)["main"](X), evaluate_function(PIPE, "main", [X])[0])
    assert [device.counts.copies_to_peers for device in devices] == [0, 0]


def test_a_copy_between_devices_without_the_declaration_is_refused() -> None:
    program = placed(PIPE, peer_toy(), devices_from={"b": 1}).program
    verify(program)
    domains = tuple(replace(domain, peer_copies=False) for domain in program.domains)
    with pytest.raises(ProgramError, match="a copy between two devices; got npu:0 to npu:1, expected a copy"):
        verify(replace(program, domains=domains))
    other = (program.domains[0], MemoryDomain("gpu", peer_copies=True))
    with pytest.raises(ProgramError, match="a copy between two devices; got npu to gpu"):
        verify(replace(program, domains=other, device_numbers=()))


def test_a_hostile_flag_is_an_error() -> None:
    data = encode(placed(PIPE, peer_toy(), devices_from={"b": 1}).program)
    domain = b"\x03npu\x40\x00\x00\x01"
    assert data.count(domain) == 2
    with pytest.raises(ProgramError, match="the flag for copies between devices is neither 0 nor 1; got 2"):
        decode(data.replace(domain, b"\x03npu\x40\x00\x00\x02", 1))
    with pytest.raises(ProgramError, match="states `npu` in another way"):
        verify(decode(data.replace(domain, b"\x03npu\x40\x00\x00\x00", 1)))


def failing_machine(symbol_of: str, devices: list[ProtectedDevice]) -> VirtualMachine:
    compiled = RunCodegen(backends=[peer_toy()])(
        partition(PIPE, [peer_toy()], partition_options=PartitionOptions(devices_from={"b": 1}, devices={"d": 0}))
    )
    externals = [
        DeviceModule(module.graph, PEERS, [symbol_of]) if isinstance(module, DeviceModule) else module
        for module in compiled.attrs[EXTERNAL_MODULES]
    ]
    return machine_of(byoc_core.build(compiled.with_attrs(**{EXTERNAL_MODULES: tuple(externals)}), []), devices)


@pytest.mark.parametrize("is_lazy", [True, False])
@pytest.mark.parametrize("symbol", ["npu_main_0", "npu_main_1", "npu_main_2"])
def test_failures_travel_over_copies_and_leave_nothing(symbol: str, is_lazy: bool) -> None:
    devices = two_devices(peer_copies=True, is_lazy=is_lazy, max_delay=0.0 if is_lazy else 0.001)
    machine = failing_machine(symbol, devices)
    for _ in range(2):
        with pytest.raises(ExecutionError, match=rf"work on device `npu:.` failed with .*{symbol} fails"):
            machine["main"](X)
    del machine
    check_freed(devices)


def test_eight_threads_share_two_devices() -> None:
    devices = two_devices(peer_copies=True, is_lazy=False, max_delay=0.001)
    machines = [machine_of(placed(PIPE, peer_toy(), devices_from={"b": 1}, devices={"d": 0}), devices)]

    def run(number: int) -> None:
        x = X * number / 8
        np.testing.assert_array_equal(machines[0]["main"](x), evaluate_function(PIPE, "main", [x])[0])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(32)))
    machines.clear()
    check_freed(devices)


def least_copies(compiled: Any) -> tuple[int, int, int]:
    """Return the fewest copies to devices, to the host, and between devices: the law as brute force."""
    owners = {name: external for external in compiled.attrs[EXTERNAL_MODULES] for name in external.function_names}
    homes: dict[Any, Any] = {}
    needs: set[tuple[Any, Any]] = set()
    for binding in compiled.functions["main"].bindings:
        where = "host"
        if binding.op is CALL_DPS_PACKED:
            symbol = str(binding.attrs["symbol"])
            if owners[symbol].call_traits(symbol).domain is not None:
                where = binding.attrs["device"]
        elif binding.op.has_trait(Trait.RESHAPING):
            where = homes.get(binding.operands[0], "host")
        needs |= {(operand, where) for operand in binding.operands if isinstance(operand, Var)}
        homes |= dict.fromkeys(binding.results, where)
    needs |= {(value, "host") for value in compiled.functions["main"].results if isinstance(value, Var)}
    pairs = [(homes.get(value, "host"), where) for value, where in needs if homes.get(value, "host") != where]
    kinds = [(home == "host", where == "host") for home, where in pairs]
    return kinds.count((True, False)), kinds.count((False, True)), kinds.count((False, False))


@given(st.data())
def test_random_places_give_the_bits_of_the_interpreter_with_the_fewest_copies(data: st.DataObject) -> None:
    module = straight_line(data.draw)
    captured: list[Any] = []

    def capture(found: Any) -> Any:
        captured.append(found)
        return found

    toy = peer_toy(ops=HOSTED)
    options = PartitionOptions(devices=places_of(data.draw, module))
    compiled = RunCodegen(backends=[toy])(partition(module, [toy], partition_options=options))
    executable = byoc_core.build(compiled, [], passes={"after_codegen": [capture]})
    program = executable.program
    assert decode(encode(program)) == program
    copies = border_copies(program, program.functions[0])
    kinds = [(copy.source == "host", copy.target == "host") for copy in copies]
    found = kinds.count((True, False)), kinds.count((False, True)), kinds.count((False, False))
    assert found == least_copies(captured[-1])
    devices = [ProtectedDevice("npu", index, is_lazy=True, peer_copies=True) for index in range(3)]
    machine = machine_of(executable, devices)
    rng = np.random.default_rng(1)
    inputs = [rng.integers(-3, 4, (3, 4)).astype(np.float32) for _ in range(2)]
    results = machine["main"](*inputs)
    for have, want in zip(
        results if isinstance(results, tuple) else (results,), evaluate_function(module, "main", inputs), strict=True
    ):
        np.testing.assert_array_equal(have, want)
    assert sum(device.counts.copies_to_peers for device in devices) == found[2]
    del machine, results
    check_freed(devices)


@given(st.data())
def test_branches_and_loops_on_several_devices(data: st.DataObject) -> None:
    module = UniqueNames()(Maker(data.draw).module())
    toy = peer_toy()
    options = PartitionOptions(devices=places_of(data.draw, module))
    executable = byoc_core.build(RunCodegen(backends=[toy])(partition(module, [toy], partition_options=options)), [])
    devices = [ProtectedDevice("npu", index, is_lazy=True, peer_copies=True) for index in range(3)]
    machine = machine_of(executable, devices)
    for flag in (True, False):
        table = np.random.default_rng(4).integers(-3, 4, (4, 3)).astype(np.float32)
        inputs: list[Any] = [np.array(flag), np.int64(2), np.array([1.5, -2.0, 0.25], np.float32), table]
        for have, want in zip(machine["main"](*inputs), evaluate_function(module, "main", inputs), strict=True):
            np.testing.assert_array_equal(have, want)
    del machine
    check_freed(devices)


def test_copies_in_both_directions_in_a_loop_keep_their_order() -> None:
    module = byoc_core.parse(
        """
def main(x: R.Tensor((2, 3))):
    a = R.exp(x)
    b = R.negative(a)
    c = R.add(b, a)
    d = R.abs(b)
    e = R.add(c, d)
    f = R.maximum(e, b)
    return f
"""
    )
    for places in ({"a": 0, "b": 1, "c": 0, "d": 1, "e": 0, "f": 1}, {"a": 1, "b": 0, "c": 1, "d": 1, "e": 1, "f": 0}):
        executable = placed(module, peer_toy(), devices=places)
        for choices in ({"is_lazy": True}, {"is_lazy": False, "max_delay": 0.002}):
            devices = two_devices(peer_copies=True, **choices)
            machine = machine_of(executable, devices)
            for _ in range(4):
                np.testing.assert_array_equal(machine["main"](X), evaluate_function(module, "main", [X])[0])
            del machine
            check_freed(devices)


class _WithoutOrder(ProtectedDevice):
    """Copies before the earlier work of both devices."""

    def copy_to_peer(
        self, source: DeviceTensor, stream: object, peer: Device, target: DeviceTensor, peer_stream: object
    ) -> None:
        assert isinstance(peer, ProtectedDevice)
        with self.opened([source]) as (read,), peer.opened([target]) as (written,):
            written[...] = read


def test_missing_copies_and_copies_without_order_give_wrong_results(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = placed(PIPE, peer_toy(), devices_from={"b": 1})
    (expected,) = evaluate_function(PIPE, "main", [X])
    early = [_WithoutOrder("npu", index, is_lazy=True, peer_copies=True) for index in range(2)]
    assert not np.array_equal(machine_of(executable, early)["main"](X), expected)
    monkeypatch.setattr(DeviceRun, "copy_to_peer", lambda *arguments: None)
    devices = two_devices(peer_copies=True)
    assert not np.array_equal(machine_of(executable, devices)["main"](X), expected)
