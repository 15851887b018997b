"""States in the memory of devices: no copy of a state in a call, and the values of the interpreter."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.artifact import Executable
from byoc_core.errors import CallError, ExecutionError
from byoc_core.ir import ConstantStore
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.runtime.devices import DeviceTensor, MemoryDomain
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.vm.state import State
from byoc_core.vm.state_summary import summarise_states

from core.tests.devices.device_states import CACHE, COUNTER, OnDevices, X, executable_of, npu, on_npu, placed
from core.tests.devices.test_device_property import check_freed
from core.tests.devices.toys import build_on, crossings, run_on, toy_of
from core.tests.lower.test_states import TRAITS, call, module, t

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")


def test_a_state_of_one_region_is_never_copied() -> None:
    device = npu()
    machine = on_npu(COUNTER, device)
    for _ in range(5):
        machine["main"](X)
    counts = device.counts
    # The inputs, and zeros before the first call.
    assert (counts.copies_in, counts.copies_out, counts.copies_within) == (5 + 1, 0, 0)
    np.testing.assert_array_equal(machine.state("main")["h"], 5 * X)
    assert device.counts.copies_out == 1
    (summary,) = summarise_states(machine._program, machine._program.functions[0])
    assert (summary.domain, summary.copied_nbytes) == ("npu", {})
    assert str(summary) == "h -> y: float32[4], in place, in npu"


def test_a_state_is_copied_on_the_device_if_the_function_refuses_aliasing() -> None:
    device = npu()
    source = parse(str(COUNTER.with_attrs(**{EXTERNAL_MODULES: ()})).replace("add_in_place", "add"))
    machine = on_npu(source, device)
    for _ in range(5):
        machine["main"](X)
    assert (device.counts.copies_in, device.counts.copies_out, device.counts.copies_within) == (6, 0, 5)
    np.testing.assert_array_equal(machine.state("main")["h"], 5 * X)


def test_rows_are_appended_on_the_device() -> None:
    """Old rows stay in place: a step writes the new rows only, and a larger buffer is filled by the device."""
    device = npu()
    machine = on_npu(CACHE, device)
    state = machine.new_state("main", capacity=4)
    rows = np.arange(4, dtype=np.float32).reshape(1, 4)
    for step in range(1, 41):
        y = machine.run("main", {"r": rows + step}, state=state)
        assert np.shape(y) == (step, 4)
        np.testing.assert_array_equal(y, np.concatenate([rows + i + 2 for i in range(1, step + 1)]))
    assert (device.counts.copies_in, device.counts.copies_out) == (40, 40)
    assert device.counts.copies_within == 2  # from 16 to 32, and from 32 to 64 rows
    assert state.moved_nbytes == (16 + 32) * 16
    assert state.length == 40


def test_forks_stay_on_the_device_and_restored_values_are_uploaded(tmp_path: Path) -> None:
    device = npu()
    machine = on_npu(COUNTER, device)
    state = machine.state("main")
    machine["main"](X)
    before = replace(device.counts)
    twin = state.fork()
    changes = (device.counts.copies_in - before.copies_in, device.counts.copies_out - before.copies_out)
    assert (changes, device.counts.copies_within - before.copies_within) == ((0, 0), 1)
    machine.run("main", {"x": X}, state=twin)
    state.save(tmp_path / "h.npz")
    assert device.counts.copies_out == 1
    twin.load(tmp_path / "h.npz")
    assert device.counts.copies_in == before.copies_in + 2  # an input, and the value of the file
    for found in (state, twin):
        np.testing.assert_array_equal(found["h"], X)
    live = device.counts.live_buffers
    state.reset()
    assert device.counts.live_buffers == live - 1
    machine["main"](X)
    np.testing.assert_array_equal(state["h"], X)


def test_the_initial_value_is_uploaded_by_the_first_call_and_after_a_reset() -> None:
    source = module(f"x: {t(4)}, h: {t(4)}", f"y = {call('add_in_place', 'h', 'x')}\nreturn y", '(("h", "y"),)')
    initial = np.array([1, 2, 3, 4], np.float32)
    digest = ConstantStore().add(initial).digest
    text = str(source.with_attrs(**{EXTERNAL_MODULES: ()})).replace('("h", "y")', f'("h", "y", "{digest}")')
    device = npu()
    found = executable_of(placed(parse(text), dict.fromkeys(TRAITS, device.domain)))
    machine = run_on(Executable(found.program, found.modules, {digest: initial}), device)
    for _ in range(2):
        machine["main"](X)
        machine["main"](X)
        np.testing.assert_array_equal(machine.state("main")["h"], initial + 2 * X)
        machine.state("main").reset()


def test_a_state_read_by_the_host_stays_where_copies_are_fewest() -> None:
    body = f"a = {call('next', 'h')}\nb = {call('add', 'a', 'x')}\nreturn b"
    source = module(f"x: {t(4)}, h: {t(4)}", body, '(("h", "b"),)')
    device = npu()
    for names, copies, place in ((("next", "add"), (1, 0), "npu"), (("add",), (2, 1), "host"), ((), (0, 0), "host")):
        executable = executable_of(placed(source, dict.fromkeys(names, device.domain)))
        assert crossings(executable.program) == copies
        assert executable.states["main"][0].domain == place


def test_out_of_memory_is_an_error_and_later_calls_work() -> None:
    rows = np.ones((20, 4), np.float32)

    def steps(machine: VirtualMachine, state: State) -> NDArray:
        for _ in range(3):
            machine.run("main", {"r": rows}, state=state)
        twin = state.fork()
        y: NDArray = np.asarray(machine.run("main", {"r": rows}, state=twin)) + np.sum(twin["m"])
        return y

    device = npu()
    machine = on_npu(CACHE, device)
    first = device.counts.allocations
    want = steps(machine, machine.new_state("main"))
    used = device.counts.allocations - first
    assert used >= 4
    for number in range(used):
        device = npu()
        machine = on_npu(CACHE, device)
        device.failing_allocation = device.counts.allocations + number
        state = machine.new_state("main")
        with pytest.raises(ExecutionError, match="device `npu:0` cannot allocate"):
            steps(machine, state)
        state.reset()
        np.testing.assert_array_equal(steps(machine, state), want)
        del machine, state
        check_freed([device])


def test_a_failure_on_the_device_spoils_the_state_and_a_reset_repairs_it() -> None:
    device = npu()
    module_on = OnDevices(dict.fromkeys(TRAITS, device.domain), failing=[])
    source = COUNTER.with_attrs(**{EXTERNAL_MODULES: (module_on,)})
    machine = run_on(executable_of(source), device)
    machine["main"](X)
    module_on.failing = ["add_in_place"]
    with pytest.raises(ExecutionError, match="add_in_place fails on the device"):
        machine["main"](X)
    module_on.failing = []
    state = machine.state("main")
    for use in (partial(machine["main"], X), partial(state.__getitem__, "h"), state.fork):
        with pytest.raises(CallError, match="is spoiled"):
            use()
    state.reset()
    machine["main"](X)
    np.testing.assert_array_equal(state["h"], X)
    del machine, state, use
    check_freed([device])


class FailingCopies(ProtectedDevice):
    """A device with failing copies of one kind."""

    failing_copy = ""

    def _check(self, kind: str) -> None:
        if kind == self.failing_copy:
            raise RuntimeError(f"{kind} fails")

    def copy_in(self, source: NDArray, target: DeviceTensor, stream: object) -> None:
        self._check("copy_in")
        super().copy_in(source, target, stream)

    def copy_out(self, source: DeviceTensor, target: NDArray, stream: object) -> None:
        self._check("copy_out")
        super().copy_out(source, target, stream)

    def copy_within(self, source: DeviceTensor, target: DeviceTensor, stream: object) -> None:
        self._check("copy_within")
        super().copy_within(source, target, stream)


def test_failures_of_copies_travel_and_leave_the_state_as_it_was(tmp_path: Path) -> None:
    device = FailingCopies("npu", is_lazy=True)
    machine = on_npu(COUNTER, device)
    state = machine.state("main")
    machine["main"](X)
    state.save(tmp_path / "h.npz")
    machine["main"](X)
    uses: list[tuple[str, Any]] = [
        ("copy_out", partial(state.__getitem__, "h")),
        ("copy_out", partial(state.save, tmp_path / "other.npz")),
        ("copy_in", partial(state.load, tmp_path / "h.npz")),
        ("copy_within", state.fork),
    ]
    for kind, use in uses:
        device.failing_copy = kind
        with pytest.raises(ExecutionError, match=f"device `npu:0` failed with RuntimeError: {kind} fails"):
            use()
        device.failing_copy = ""
        np.testing.assert_array_equal(state["h"], 2 * X)
    assert not (tmp_path / "other.npz").exists()
    del machine, state, uses, use
    check_freed([device])


def test_eight_threads_with_sequences_of_their_own() -> None:
    device = ProtectedDevice("npu", max_delay=0.0005)
    machine = on_npu(CACHE, device)

    def sequence(machine: VirtualMachine, seed: int) -> None:
        rng = np.random.default_rng(seed)
        state = machine.new_state("main")
        rows = np.zeros((0, 4), np.float32)
        for _ in range(6):
            new = rng.integers(-9, 9, (int(rng.integers(0, 9)), 4)).astype(np.float32)
            rows = np.concatenate([rows, new + 1])
            np.testing.assert_array_equal(machine.run("main", {"r": new}, state=state), rows + 1)
        np.testing.assert_array_equal(state["m"], rows)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(partial(sequence, machine), range(8)))
    del machine
    check_freed([device])


def test_a_state_belongs_to_its_device() -> None:
    executable = executable_of(placed(COUNTER, dict.fromkeys(TRAITS, MemoryDomain("npu"))))
    first, second = npu(), ProtectedDevice("npu", 1, is_lazy=True)
    state = run_on(executable, first).new_state("main")
    with pytest.raises(CallError) as caught:
        run_on(executable, second).run("main", {"x": X}, state=state)
    assert str(caught.value) == (
        "state of function `main`, `h`: lies on another device than the machine's; got npu:0, expected npu:1. "
        "save() the values, and load() them into a state of the machine."
    )


def test_a_session_profiles_states_on_devices_and_leaves_its_own_alone() -> None:
    device = npu()
    text = f"""
    @R.function
    def main(x: {t(4)}, h: {t(4)}):
        R.func_attr({{"input_names": ("x", "h"), "output_names": ("y", "k"), "states": (("h", "k"),)}})
        k = R.add(h, x)
        y = R.multiply(k, k)
        return y, k
    """
    session = byoc_core.Session(
        build_on(byoc_core.script.parse(text.replace("\n    ", "\n")), toy_of(device)), device=device
    )
    session.run(None, {"x": X})
    session.profile({"x": X}, num_calls=3)
    np.testing.assert_array_equal(session.state["h"], X)
