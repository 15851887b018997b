"""States in the memory of an OpenCL device: updated there from call to call, saved, forked and reset."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine
from byoc_core.artifact import Executable
from byoc_core.ir import IRModule
from byoc_core.transform import KeepStates

from plugins.opencl.tests.counted_devices import CountedDevice

pytestmark = pytest.mark.usefixtures("needs_device")

X = np.array([[1.5, -2.0, 0.25], [3.0, -1.0, 8.0]], np.float32)


def parsed(params: str, body: str, *pairs: tuple[str, str]) -> IRModule:
    return KeepStates(pairs)(byoc_core.parse(f"def main({params}):\n{body}"))


MEAN = parsed(
    "x: R.Tensor((2, 3)), h: R.Tensor((2, 3))",
    "    k = R.add(h, x)\n    y = R.multiply(k, k)\n    return y, k",
    ("h", "output1"),
)
CACHE = parsed(
    'r: R.Tensor((1, 1, "n", 4)), past: R.Tensor((1, 1, "p", 4))',
    "    present = R.concat(past, r, axis=2)\n"
    "    turned = R.permute_dims(present, axes=(0, 1, 3, 2))\n"
    "    scores = R.matmul(r, turned)\n"
    "    y = R.matmul(scores, present)\n"
    "    return y, present",
    ("past", "output1"),
)


def build(module: IRModule) -> Executable:
    return byoc_core.build(module, ["opencl"])


def test_a_state_stays_on_the_device() -> None:
    device = CountedDevice()
    executable = build(MEAN)
    assert [state.domain for state in executable.states["main"]] == ["opencl"]
    machine = VirtualMachine(executable, devices={"opencl": device})
    for step in range(1, 5):
        np.testing.assert_array_equal(machine["main"](X), (step * X) ** 2)
    # The input of each call, and zeros before the first; the result of each call.
    assert (device.counts.copies_in, device.counts.copies_out) == (5, 4)
    np.testing.assert_array_equal(machine.state("main")["h"], 4 * X)
    del machine
    gc.collect()
    assert (device.counts.live_buffers, device.counts.live_streams) == (0, 0)


def cache_of(rows: np.ndarray[tuple[int, ...], np.dtype[np.float32]], new: int) -> object:
    last = rows[-new:]
    return (last @ rows.T) @ rows


def test_a_cache_grows_on_the_device(tmp_path: Path) -> None:
    device = CountedDevice()
    machine = VirtualMachine(build(CACHE), devices={"opencl": device})
    state = machine.new_state("main", capacity=64)
    rng = np.random.default_rng(0)
    rows = np.zeros((0, 4), np.float32)
    for step in range(12):
        new = rng.integers(-2, 3, (1 + 4 * (step == 0), 4)).astype(np.float32)
        rows = np.concatenate([rows, new])
        found = machine.run("main", {"r": new[None, None]}, state=state)
        np.testing.assert_array_equal(np.asarray(found)[0, 0], cache_of(rows, len(new)))
    assert (device.counts.copies_in, device.counts.copies_out, state.moved_nbytes) == (12, 12, 0)
    state.save(tmp_path / "cache.npz")
    branch = state.fork()
    again = machine.new_state("main")
    again.load(tmp_path / "cache.npz")
    one = np.ones((1, 1, 1, 4), np.float32)
    results = [machine.run("main", {"r": one}, state=each) for each in (state, branch, again)]
    for result in results:
        np.testing.assert_array_equal(np.asarray(result)[0, 0], cache_of(np.concatenate([rows, one[0, 0]]), 1))
    assert branch.length == state.length == again.length == 17


def test_threads_have_sequences_of_their_own() -> None:
    machine = VirtualMachine(build(MEAN), devices={"opencl": CountedDevice()})

    def sequence(machine: VirtualMachine, number: int) -> None:
        state = machine.new_state("main")
        for step in range(1, 5):
            found = machine.run("main", {"x": X * number}, state=state)
            np.testing.assert_array_equal(found, (step * number * X) ** 2)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(partial(sequence, machine), range(8)))


def test_states_of_an_artifact_stay_on_the_device(tmp_path: Path) -> None:
    build(MEAN).save(tmp_path / "mean.byoc")
    loaded = byoc_core.load(tmp_path / "mean.byoc", allow_native=True)
    assert loaded.states["main"][0].domain == "opencl"
    device = CountedDevice()
    session = byoc_core.Session(loaded, device=device)
    for _ in range(3):
        session.run(None, {"x": X})
    assert (device.counts.copies_in, device.counts.copies_out) == (4, 3)
    np.testing.assert_array_equal(session.state["h"], 3 * X)
