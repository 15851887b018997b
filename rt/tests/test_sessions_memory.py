"""The resident memory of a process after many calls of a session by this library."""

from __future__ import annotations

import os
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.native.toolchain import Toolchain
from byoc_core.plugin.installation import using

from core.tests.native_machine_installation import installation_with_machines
from rt.tests.test_machine_programs import joined
from rt.tests.test_states import decoder, inputs

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

STATM = Path("/proc/self/statm")


def resident_nbytes() -> int:
    return int(STATM.read_text("utf-8").split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(not STATM.exists(), reason="the system does not tell the memory of a process")
def test_calls_leave_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.byoc"
    joined().save(path)
    with using(installation_with_machines({"rt": "rt.tests.machine_under_test:find_library"})):
        session = byoc_core.Session(path, machine="native", casting="same_kind")
    large, small = np.ones((10_000, 4), np.float32), np.ones((1, 4))
    wrong = -large

    def call() -> None:
        session.run(None, {"x": large})
        session.run(None, {"x": large}, out={"y": np.empty((10_000, 8), np.float32)})
        session.run(None, {"x": small})  # converted
        with pytest.raises(byoc_core.errors.ExecutionError):
            session.run(None, {"x": wrong})

    for _ in range(20):
        call()
    before = resident_nbytes()
    for _ in range(500):  # 320 MB of results
        call()
    assert resident_nbytes() - before < 20_000_000


@pytest.mark.skipif(not STATM.exists(), reason="the system does not tell the memory of a process")
def test_states_leave_no_memory(tmp_path: Path) -> None:
    """Buffers pass between the machines, are copied by forks, and replaced by larger buffers."""
    path = tmp_path / "decoder.byoc"
    decoder().save(path)
    with using(installation_with_machines({"rt": "rt.tests.machine_under_test:find_library"})):
        machine = byoc_core.VirtualMachine(byoc_core.load(path), machine="native")
    first, later = (inputs(np.random.default_rng(1), 2, rows) for rows in (5_000, 5_001))

    def call() -> None:
        state = machine.new_state()
        for x, rows in (first, later):
            machine.run("main", {"x": x, "rows": rows}, state=state)
            assert len(state["past"]) == state.length
        machine.run("main", {"x": later[0], "rows": later[1]}, state=state.fork())
        with pytest.raises(byoc_core.errors.CallError):
            machine.run("main", {"x": first[0], "rows": later[1]}, state=state)
        state.reset()

    for _ in range(20):
        call()
    before = resident_nbytes()
    for _ in range(200):  # more than 200 MB of values
        call()
    assert resident_nbytes() - before < 20_000_000
