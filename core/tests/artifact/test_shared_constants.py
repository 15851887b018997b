"""Constants are in memory once: machines, frames and modules read constants in the mapped file."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from byoc_core.artifact import Executable, load
from byoc_core.runtime.module import NDArray
from byoc_core.vm import VirtualMachine

pytestmark = pytest.mark.interpreter


def test_machines_and_frames_share_constants(executable: Executable, tmp_path: Path) -> None:
    executable.save(tmp_path / "model.byoc")
    loaded = load(tmp_path / "model.byoc")
    (reference,) = loaded.program.constants
    seen: list[int] = []
    both = threading.Barrier(2)

    def region(x: NDArray, bias: NDArray, y: NDArray) -> None:
        both.wait(timeout=30)  # both calls are under way, so there are two frames
        assert np.shares_memory(bias, loaded.constants[reference.digest])
        seen.append(bias.ctypes.data)
        np.add(x, bias, out=y)

    machines = [VirtualMachine(loaded, externs={"region0": region}) for _ in range(2)]
    for pair in (machines, [machines[0]] * 2):
        threads = [threading.Thread(target=vm["main"], args=(np.ones((2, 4), "float32"),)) for vm in pair]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(seen) == 4
    assert len(set(seen)) == 1


def test_modules_read_constants_where_they_are_mapped(executable: Executable, tmp_path: Path) -> None:
    executable.save(tmp_path / "model.byoc")
    loaded = load(tmp_path / "model.byoc")
    (module,) = loaded.modules
    ((digest, array),) = module.constants.items()
    assert np.shares_memory(array, loaded.constants[digest])
