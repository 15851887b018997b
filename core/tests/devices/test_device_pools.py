"""Pools of a device's memory: places of intermediates and constants, limits, laws, files, broken plans."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from byoc_core import VirtualMachine
from byoc_core import script as R
from byoc_core.errors import ByocError, ExecutionError, LinkError, MemoryLimitError, ProgramError
from byoc_core.lower import plan_registers
from byoc_core.runtime.devices import DeviceTensor, find_device
from byoc_core.runtime.memory import MemoryDomain, Pool
from byoc_core.runtime.pools import PoolPlan
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.transform import evaluate_function
from byoc_core.vm import Program, decode, disassemble, encode, encoding, verify
from byoc_core.vm.constant_places import place_constants
from byoc_core.vm.memory_map import memory_map
from hypothesis import given
from hypothesis import strategies as st

from core.tests.devices.several_devices import check_freed, placed
from core.tests.devices.test_device_laws import PROGRAM, tensor, with_function
from core.tests.devices.test_device_property import HOSTED, straight_line
from core.tests.devices.toys import DeviceToy, build_on, run_on

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")

READ = frozenset({"read"})
SRAM, DRAM, ROM = Pool("sram", 128), Pool("dram", alignment=256), Pool("rom", 64, accesses=READ)
CHAIN_TEXT = """
def main(x: R.Tensor((4, 4))):
    a = R.add(x, R.const([1, 2, 3, 4], "float32"))
    f = R.floor(a)
    b = R.exp(f)
    g = R.floor(b)
    c = R.add(b, a)
    h = R.floor(c)
    return g, h
"""
CHAIN = R.parse(CHAIN_TEXT)
X = np.arange(16, dtype=np.float32).reshape(4, 4) / 8


def pooled(*pools: Pool, **choices: Any) -> ProtectedDevice:
    return ProtectedDevice("npu", is_lazy=True, pools=pools, **choices)


def built(device: ProtectedDevice, module: Any = CHAIN, ops: Any = ("add", "exp")) -> Any:
    return build_on(module, DeviceToy(ops=ops, domain=device.domain))


def test_intermediates_lie_in_pools_within_the_limits_and_constants_in_the_read_only_pool() -> None:
    device = pooled(SRAM, DRAM, ROM)
    executable = built(device)
    (function,) = executable.program.functions
    assert {function.pool_of(n) for n, domain in enumerate(function.storage_domains) if domain} == {0, 1}
    machine = run_on(executable, device)
    assert device.pool_bytes["rom"] == 16
    for _ in range(3):
        for have, want in zip(machine["main"](X), evaluate_function(CHAIN, "main", [X]), strict=True):
            np.testing.assert_array_equal(have, want)
    assert 0 < device.peak_pool_bytes["sram"] <= 128
    assert device.pool_bytes["sram"] == 0 < device.pool_bytes["dram"]  # scarce memory is given back after each call
    maps = [memory_map(executable.program, function, domain=1, pool=pool) for pool in (0, 1)]
    assert [found.arena_nbytes for found in maps] == [device.peak_pool_bytes[found.pool] for found in maps]
    facts = [(found.pool, found.limit_nbytes, found.alignment) for found in maps]
    assert facts == [("sram", 128, 64), ("dram", None, 256)]
    del machine
    check_freed([device])
    assert device.pool_bytes == {"sram": 0, "dram": 0, "rom": 0}


def test_a_program_with_pools_is_kept_by_the_encoding_and_named_in_the_listing() -> None:
    program = built(pooled(SRAM, DRAM, ROM)).program
    data = encode(program)
    assert data[8:10] == b"\x06\x00"
    assert decode(data) == program
    assert encode(decode(data)) == data
    text = disassemble(program)
    assert "domain npu: aligned to 64 bytes, pool sram of 128 bytes to read and write, aligned to 64, pool dram" in text
    assert " bytes in pool dram\n" in text


def test_too_small_pools_are_an_error_of_the_build() -> None:
    with pytest.raises(MemoryLimitError, match=r"pool `sram`: too small for .* `float32\[4, 4\]` \(64 bytes\)"):
        built(pooled(Pool("sram", 64)))


def test_symbolic_sizes_take_the_pool_without_limit_or_are_an_error_of_the_call() -> None:
    module = R.parse(
        'def main(x: R.Tensor(("n", 4))):\n    a = R.exp(x)\n    f = R.floor(a)\n    b = R.exp(f)\n    return b'
    )
    device = pooled(SRAM, DRAM)
    machine = run_on(built(device, module), device)
    for n in (1, 40, 0, 7):
        x = np.ones((n, 4), np.float32)
        np.testing.assert_array_equal(machine["main"](x), evaluate_function(module, "main", [x])[0])
    assert device.peak_pool_bytes["sram"] == 0
    small = pooled(Pool("tcm", 64), SRAM)
    machine = run_on(built(small, module), small)
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(machine["main"](x), evaluate_function(module, "main", [x])[0])
    message = (
        "the intermediates for the sizes of the call exceed the pool `sram`; got .* bytes, expected at most 128 bytes"
    )
    with pytest.raises(ExecutionError, match=message):
        machine["main"](np.ones((40, 4), np.float32))
    np.testing.assert_array_equal(machine["main"](x), evaluate_function(module, "main", [x])[0])


def test_host_accessible_memory_has_pools_too() -> None:
    device = pooled(SRAM, DRAM, host_accessible=True)
    machine = run_on(built(device), device)
    for have, want in zip(machine["main"](X), evaluate_function(CHAIN, "main", [X]), strict=True):
        np.testing.assert_array_equal(have, want)
    assert device.peak_pool_bytes["sram"]


def test_a_device_with_larger_pools_runs_the_program_and_a_smaller_device_does_not() -> None:
    executable = built(pooled(SRAM, DRAM, ROM))
    larger = pooled(DRAM, Pool("rom", accesses=READ), Pool("tcm", 8), Pool("sram", 512, 128))
    np.testing.assert_array_equal(run_on(executable, larger)["main"](X)[0], evaluate_function(CHAIN, "main", [X])[0])
    assert find_device([larger], executable.program.domains[0], 0) is larger
    for pools in ((SRAM, DRAM), (replace(SRAM, nbytes=127), DRAM, ROM), (SRAM, Pool("dram"), ROM), ()):
        with pytest.raises(LinkError, match="has memory of another domain"):
            run_on(executable, pooled(*pools))
    with pytest.raises(LinkError, match="has memory of another domain"):
        run_on(built(pooled()), larger)


def test_a_device_declaring_pools_overrides_their_allocation() -> None:
    class Forgets(ProtectedDevice):
        def allocate_in(self, pool: str, nbytes: int) -> object:
            return super(ProtectedDevice, self).allocate_in(pool, nbytes)

    device = Forgets("npu", pools=(SRAM, DRAM))
    with pytest.raises(ExecutionError, match=r"npu:0`: allocates no memory in the pool `sram`, though .* Override"):
        run_on(built(device), device)["main"](X)


def test_a_call_without_room_in_a_pool_takes_other_memory_and_an_error_names_the_device() -> None:
    device = pooled(SRAM, DRAM, ROM)
    executable = built(device)
    machine, twin = run_on(executable, device), run_on(executable, device)
    taken = device.allocate_in("sram", 100)
    device.peak_pool_bytes["sram"] = 0
    for each in (machine, twin, machine):
        for have, want in zip(each["main"](X), evaluate_function(CHAIN, "main", [X]), strict=True):
            np.testing.assert_array_equal(have, want)
    assert device.peak_pool_bytes["sram"] == 0
    device.free(taken)
    machine["main"](X)
    assert device.peak_pool_bytes["sram"] > 0
    small = pooled(SRAM, DRAM, ROM, capacity=100)
    hungry = run_on(executable, small)
    with pytest.raises(ExecutionError, match=r"cannot allocate .* out of memory"):
        hungry["main"](X)
    del machine, twin, hungry, each
    check_freed([device, small])


def test_constants_without_room_in_a_read_only_pool_take_other_memory() -> None:
    device = pooled(SRAM, DRAM, replace(ROM, nbytes=16))
    executable = built(device)
    machines = [run_on(executable, device) for _ in range(3)]
    assert device.pool_bytes["rom"] == 16  # of the first machine
    for machine in machines:
        for have, want in zip(machine["main"](X), evaluate_function(CHAIN, "main", [X]), strict=True):
            np.testing.assert_array_equal(have, want)
    machines.clear()
    del machine
    check_freed([device])
    again = run_on(executable, device)
    assert device.pool_bytes["rom"] == 16
    del again
    unlimited = pooled(SRAM, DRAM, Pool("rom", accesses=READ))
    unlimited.failing_allocation = 0
    with pytest.raises(ExecutionError, match=r"constants: device `npu:0` cannot allocate 16 bytes in pool `rom`"):
        run_on(built(unlimited), unlimited)
    check_freed([device, unlimited])


@pytest.mark.parametrize(("limit", "taken"), [(64, 32), (16, 16)])
def test_two_domains_of_a_device_share_the_read_only_pool(limit: int, taken: int) -> None:
    module = R.parse(
        """
def main(x: R.Tensor((4, 4))):
    a = R.add(x, R.const([1, 2, 3, 4], "float32"))
    b = R.exp(a)
    c = R.add(b, R.const([1, 2, 3, 4], "float32"))
    return c
"""
    )
    device = pooled(SRAM, DRAM, replace(ROM, nbytes=limit), peer_copies=True)
    executable = placed(module, DeviceToy(domain=device.domain), devices_from={"b": 1})
    machine = VirtualMachine(executable, devices={"npu:0": device, "npu:1": device})
    assert device.pool_bytes["rom"] == taken
    np.testing.assert_array_equal(machine["main"](X), evaluate_function(module, "main", [X])[0])


def test_functions_and_threads_share_the_scarce_pool() -> None:
    module = R.parse(f"{CHAIN_TEXT}\n{CHAIN_TEXT.replace('main', 'again')}")
    device = pooled(SRAM, DRAM, ROM, max_delay=0.001)
    device._is_lazy = False
    machine = run_on(build_on(module, DeviceToy(ops=("add", "exp"), domain=device.domain)), device)
    for name in ("main", "again", "main"):
        device.peak_pool_bytes["sram"] = 0
        np.testing.assert_array_equal(machine[name](X)[0], evaluate_function(CHAIN, "main", [X])[0])
        assert device.peak_pool_bytes["sram"]  # each function in turn has the fast memory

    def run(number: int) -> None:
        x = X * number
        np.testing.assert_array_equal(machine["main"](x)[0], evaluate_function(CHAIN, "main", [x])[0])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(32)))


def test_a_function_writing_a_read_only_pool_fails_on_the_fake_device() -> None:
    device = pooled(SRAM, ROM)
    target = DeviceTensor(device.allocate_in("rom", 16), 0, "float32", (4,))
    stream: Any = device.new_stream()
    stream.launch(lambda out: out.fill(1), [target])
    with pytest.raises(ValueError, match="read-only"):
        device.wait(device.record(stream))
    device.close_stream(stream)
    device.free(target.buffer)


def test_constants_fill_read_only_pools_in_order_and_the_rest_is_chosen_by_the_device() -> None:
    domain = MemoryDomain("npu", pools=(SRAM, Pool("rom", 200, 128, READ), Pool("flash", 100, accesses=READ)))
    places = place_constants(domain, {0: 40, 1: 150, 2: 60, 3: 90, 4: 10})
    assert places.locations == {1: ("rom", 0), 3: ("flash", 0), 2: (None, 0), 0: (None, 64), 4: (None, 128)}
    assert places.nbytes == {"rom": 150, "flash": 90, None: 138}
    assert place_constants(MemoryDomain("npu"), {0: 4, 1: 4}).locations == {0: (None, 0), 1: (None, 64)}


WITH_POOLS = replace(
    with_function(tensors=(tensor(0), tensor(1)), storages=(16, 16), storage_pools=(0, 1)),
    domains=(MemoryDomain("npu", pools=(SRAM, DRAM, ROM)),),
)


def with_pools(*pools: Pool) -> Program:
    return replace(WITH_POOLS, domains=(replace(WITH_POOLS.domains[0], pools=pools),))


BROKEN: dict[str, tuple[Program, str]] = {
    "a pool of the host": (
        with_function(WITH_POOLS, domains=()),
        "function `main`, storage 1: lies in a missing pool of `host`; got 1, expected 0 pools",
    ),
    "a missing pool": (
        with_function(WITH_POOLS, storage_pools=(0, 3)),
        "function `main`, storage 1: lies in a missing pool of `npu`; got 3, expected 3 pools",
    ),
    "a read-only pool": (
        with_function(WITH_POOLS, storage_pools=(0, 2)),
        "function `main`, storage 1: lies in the pool `rom` without access to read and write",
    ),
    "a number for one storage": (
        with_function(WITH_POOLS, storage_pools=(1,)),
        (
            "function `main`: has other numbers of pools than storages; got [1], expected a number for each of 2 "
            "storages, or none if all are 0"
        ),
    ),
    "no number but 0": (
        with_function(WITH_POOLS, storage_pools=(0, 0)),
        (
            "function `main`: has other numbers of pools than storages; got [0, 0], expected a number for each of 2 "
            "storages, or none if all are 0"
        ),
    ),
    "a storage beyond the limit": (
        with_function(WITH_POOLS, storages=(129, 16)),
        "function `main`, storage 0: reaches beyond the pool `sram`; got 129, expected at most 128 bytes",
    ),
    "storages beyond the limit together": (
        with_function(WITH_POOLS, storages=(65, 16), storage_pools=()),
        "function `main`, storage 1: reaches beyond the pool `sram`; got 144, expected at most 128 bytes",
    ),
    "a tensor without the alignment of its pool": (
        with_function(WITH_POOLS, storages=(16, 80), tensors=(tensor(0), tensor(1, 64))),
        "function `main`, register t1: is not aligned for `npu`; got 64, expected a multiple of 256",
    ),
    "two pools of one name": (
        with_pools(SRAM, SRAM),
        "domain 1: has two pools of one name; got 'sram'",
    ),
    "an alignment below the domain's": (
        with_pools(SRAM, Pool("dram", alignment=32)),
        "domain 1, pool `dram`: has an alignment unfit for the domain; got 32, expected 64 to 1048576",
    ),
    "an alignment beyond any device": (
        with_pools(SRAM, Pool("dram", alignment=1 << 40)),
        f"domain 1, pool `dram`: has an alignment unfit for the domain; got {1 << 40}, expected 64 to 1048576",
    ),
    "no pool for intermediates": (
        with_pools(ROM, Pool("sink", accesses=frozenset({"write"}))),
        "domain 1: has no pool for intermediates; expected a pool with the accesses read and write",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_pools_obey_laws(name: str) -> None:
    verify(WITH_POOLS)
    program, message = BROKEN[name]
    with pytest.raises(ProgramError) as caught:
        verify(program)
    assert str(caught.value) == message


def test_hostile_pools_in_files_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(WITH_POOLS)
    place = data.index(b"\x03rom")
    assert data[place : place + 7] == b"\x03rom\x41\x40\x01"  # name, limit and one, alignment, accesses
    for change, message in (
        (b"\x03rom\x41\x30\x01", "a pool without meaning: pool `rom`: has an impossible alignment; got 48"),
        (b"\x03rom\x41\x40\x00", "a pool without meaning: pool `rom`: has no access"),
        (b"\x03rom\x41\x40\x04", "unknown accesses of a pool; got 4"),
    ):
        with pytest.raises(ProgramError, match=message):
            decode(data.replace(b"\x03rom\x41\x40\x01", change))
    with monkeypatch.context() as patch:
        patch.setattr(encoding, "_version_of", lambda program: 6)
        plain = encode(PROGRAM)
    with pytest.raises(ProgramError, match="has the wrong format version for this program; got 6, expected 4"):
        decode(plain)
    for position in range(10, len(data)):
        for value in (0, 1, 2, 0x7F, 0xFF):
            mutated = data[:position] + bytes([value]) + data[position + 1 :]
            try:
                program = decode(mutated)
                verify(program)
            except ByocError:
                continue
            assert encode(program) == mutated


@given(st.data())
def test_random_pools_give_the_bits_of_the_interpreter_within_the_limits(data: st.DataObject) -> None:
    module = straight_line(data.draw)
    limits = data.draw(st.lists(st.sampled_from((0, 48, 64, 128, 192, 512)), min_size=1, max_size=3))
    pools = [Pool(f"p{n}", limit, data.draw(st.sampled_from((64, 128)))) for n, limit in enumerate(limits)]
    if data.draw(st.booleans()):
        pools.append(Pool("dram"))
    device = pooled(*pools, host_accessible=data.draw(st.booleans()))
    try:
        executable = build_on(module, DeviceToy(ops=HOSTED, domain=device.domain))
    except MemoryLimitError:
        assert pools[-1].nbytes is not None  # everything fits into memory without limit
        return
    assert decode(encode(executable.program)) == executable.program
    machine = VirtualMachine(executable, devices={"npu": device} if executable.program.domains else {})
    rng = np.random.default_rng(1)
    inputs = [rng.integers(-3, 4, (3, 4)).astype(np.float32) for _ in range(2)]
    found = machine["main"](*inputs)
    for have, want in zip(
        found if isinstance(found, tuple) else (found,), evaluate_function(module, "main", inputs), strict=True
    ):
        np.testing.assert_array_equal(have, want)
    for domain in range(1, len(executable.program.domains) + 1):
        for number in range(len(pools)):
            map_of_pool = memory_map(executable.program, executable.program.functions[0], domain=domain, pool=number)
            assert map_of_pool.find_overlap() is None
    del machine, found
    check_freed([device])


def one_place(buffers: Any, pools: Any) -> PoolPlan:
    zeros, used = (0,) * len(buffers), (64, *(0 for _ in pools[1:]))
    return PoolPlan(zeros, zeros, used, used)


def read_only_place(buffers: Any, pools: Any) -> PoolPlan:
    return PoolPlan((1,) * len(buffers), tuple(range(0, 256 * len(buffers), 256)), (0, 256 * len(buffers)), (0, 0))


@pytest.mark.parametrize(
    ("planner", "message"),
    [
        (one_place, "registers t. and t. are both in use and share bytes"),
        (read_only_place, "in the pool `rom` without access"),
    ],
)
def test_a_broken_plan_is_found_by_the_verifier(
    monkeypatch: pytest.MonkeyPatch, planner: Callable[..., PoolPlan], message: str
) -> None:
    device = pooled(SRAM, Pool("rom", accesses=READ))
    monkeypatch.setattr(plan_registers, "plan_pools", planner)
    with pytest.raises(ProgramError, match=message):
        run_on(built(device), device)
