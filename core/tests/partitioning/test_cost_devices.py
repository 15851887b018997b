"""Costs of values passed between devices of one memory: the cost policy, and the law against copies of programs."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import byoc_core
import pytest
from byoc_core import parse
from byoc_core.artifact import Executable
from byoc_core.ir import IRModule
from byoc_core.partitioning import ByCost, MachineModel, PartitionOptions, RunCodegen, partition
from byoc_core.partitioning.claiming.request import PartitionRequest
from byoc_core.partitioning.op_sites import bodies_of
from byoc_core.partitioning.policies.cost_model import Sizes, to_seconds
from byoc_core.partitioning.policies.cost_problem import Body, Prices
from byoc_core.partitioning.policies.cost_slots import DeviceSlots
from byoc_core.runtime.memory import MemoryDomain
from byoc_core.transform import RemoveDeadCode
from byoc_core.vm.border_copies import border_copies
from hypothesis import given
from hypothesis import strategies as st

from core.tests.devices.test_device_property import HOSTED, straight_line
from core.tests.devices.test_several_devices import places_of
from core.tests.devices.toys import DeviceToy

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")

CHAIN = """
def main(x: R.Tensor((2, 3))):
    a = R.abs(x)
    b = R.exp(a)
    c = R.negative(b)
    return c
"""
NBYTES = 24


def npu(peer_seconds: float = 0.0, transfer_seconds: float = 10e-6) -> MachineModel:
    """Return a device with ops of 1 us, and times for passing the values of the chain."""
    rate = NBYTES / peer_seconds if peer_seconds else 0.0
    return MachineModel(1e15, 1e15, 1e-6, 0.0, NBYTES / transfer_seconds, rate)


HOST = MachineModel(1e15, 1e15, 20e-6)


def placed(machine: MachineModel, **options: Any) -> tuple[Executable, list[str]]:
    """Return the chain compiled at the least cost, and the regions of the device."""
    policy = ByCost(machines={"npu": machine, "host": HOST}, margin=0.0)
    toy = DeviceToy(domain=MemoryDomain("npu", peer_copies=machine.peer_bytes_per_second > 0))
    executable = byoc_core.build(parse(CHAIN), [toy], policy=policy, partition_options=PartitionOptions(**options))
    return executable, [symbol for symbol in executable.program.externs if symbol.startswith("npu")]


def test_a_cut_by_way_of_the_host_may_cost_more_than_the_device_saves() -> None:
    """On one device 23 us, on two by way of the host 63 us, on the host 60 us."""
    assert len(placed(npu())[1]) == 1
    executable, regions = placed(npu(), devices={"b": 1})
    assert regions == []
    assert "63 us" not in str(executable.report())
    assert "`npu` on device 1" in str(executable.report())
    executable, regions = placed(npu(transfer_seconds=9e-6), devices={"b": 1})
    assert len(regions) == 3  # 57 us


def test_direct_copies_make_the_cut_cheap() -> None:
    executable, regions = placed(npu(peer_seconds=1e-6), devices={"b": 1})
    assert len(regions) == 3
    copies = border_copies(executable.program, executable.program.functions[0])
    assert [(copy.source, copy.target) for copy in copies] == [
        ("host", "npu:0"),
        ("npu:0", "npu:1"),
        ("npu:1", "npu:0"),
        ("npu:0", "host"),
    ]
    assert placed(npu(peer_seconds=20e-6), devices={"b": 1})[1] == []


def test_slots() -> None:
    plain = DeviceSlots(2, {})
    assert [plain.slot(label, "main", "a") for label in range(3)] == [0, 1, 2]
    assert (len(plain), plain.host, plain.has_numbers) == (3, 2, False)
    slots = DeviceSlots(2, {("main", "a"): 7, ("main", "b"): 3})
    found = [slots.slot(label, "main", op) for label in range(3) for op in ("a", "b", "c")]
    assert found == [2, 1, 0, 5, 4, 3, 6, 6, 6]
    assert [slots.label(slot) for slot in range(7)] == [0, 0, 0, 1, 1, 1, 2]
    assert [slots.number(slot) for slot in range(7)] == [0, 3, 7, 0, 3, 7, 0]
    moves = slots.expand([[0, 10, 20], [30, 0, 40], [50, 60, 0]], [1, 2, 0])
    assert moves[0] == [0, 1, 1, 10, 10, 10, 20]
    assert moves[4] == [30, 30, 30, 2, 0, 2, 40]
    assert moves[6] == [50, 50, 50, 60, 60, 60, 0]


FREE = MachineModel(1e30, 1e30, 0.0, 0.0, 1.0, 4.0)
"""A device with free ops: the time is the number of bytes copied, a quarter between devices."""


@given(st.data())
def test_the_cost_of_moves_is_the_cost_of_the_copies_of_the_program(data: st.DataObject) -> None:
    module = RemoveDeadCode()(straight_line(data.draw))
    toy = DeviceToy(ops=HOSTED, domain=MemoryDomain("npu", peer_copies=True))
    devices = places_of(data.draw, module)
    handle = byoc_core.backends.get(toy)
    numbers = {("main", name): number for name, number in devices.items() if number}
    request = PartitionRequest([handle], devices=numbers)
    prices = Prices(module, request, {"npu": FREE, "host": replace(FREE, transfer_bytes_per_second=0.0)}, Sizes({}))
    claimed = request.claim(module, handle)
    prices.units(module, claimed, 0)  # makes the border known
    bodies = [Body(source, body, prices, ()) for source, body in bodies_of(claimed)]
    total = prices.total(claimed)
    assert total == sum(body.problem.cost(body.labels({})) for body in bodies)
    program = program_of(module, toy, devices)
    copies = border_copies(program, program.functions[0])
    nbytes = sum(int(str(c.nbytes)) * (1.0 if "host" in (c.source, c.target) else 0.25) for c in copies)
    assert to_seconds(total) == pytest.approx(nbytes, rel=1e-9)


def program_of(module: IRModule, toy: DeviceToy, devices: Any) -> Any:
    regions = partition(module, [toy], partition_options=PartitionOptions(devices=devices))
    return byoc_core.build(RunCodegen(backends=[toy])(regions), []).program


@given(st.data())
def test_random_placements_with_numbers_cost_no_more_than_all_or_nothing(data: st.DataObject) -> None:
    module = straight_line(data.draw)
    rates = st.sampled_from((0.0, 1e5, 1e6, 1e8))
    machine = MachineModel(
        1e15, 1e15, 1e-6, data.draw(st.sampled_from((0.0, 1e-6))), data.draw(rates), data.draw(rates)
    )
    toy = DeviceToy(ops=HOSTED)
    handle = byoc_core.backends.get(toy)
    numbers = {("main", name): number for name, number in places_of(data.draw, module).items() if number}
    request = PartitionRequest([handle], devices=numbers)
    policy = ByCost(machines={"npu": machine, "host": HOST}, margin=0.0)
    chosen, everything = policy(module, request), request.claim(module, handle)
    prices = Prices(module, request, policy.machines, Sizes({}))
    prices.units(module, everything, 0)
    assert prices.total(chosen) <= min(prices.total(everything), prices.total(module))
