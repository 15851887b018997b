"""Printed CUDA: compiled by NVRTC; on a device, and as C++ on processors, equal to the interpreter."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from byoc_core.authoring.c import Buffer, symbols_in
from byoc_core.dims import evaluate
from byoc_core.dtypes import to_numpy
from byoc_core.native.toolchain import include_directory

from core.tests.authoring.c.cuda import Nvrtc, find_device, find_nvrtc
from core.tests.authoring.c.cuda_runs import Run, all_runs, source_of
from core.tests.authoring.c.run_cuda import find_faults

_SHIM = """#define __device__
#define __global__
struct Coordinates { unsigned x, y, z; };
extern "C" { Coordinates blockIdx, threadIdx, blockDim, gridDim; }
"""
NUM_BLOCKS, NUM_THREADS = 3, 8


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return all_runs(20)


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    found = find_nvrtc()
    if found is None:
        pytest.skip("no NVRTC: `nox -s cuda` installs it")
    return found


@pytest.mark.cuda
def test_nvrtc_compiles_all_kernels(nvrtc: Nvrtc, runs: list[Run]) -> None:
    assembly = nvrtc.compile(source_of(runs)).decode()
    for run in runs:
        for launch in run.grid.launches:
            assert f".visible .entry {launch.kernel.name}(" in assembly


@pytest.mark.cuda
def test_nvrtc_refuses_what_is_wrong(nvrtc: Nvrtc) -> None:
    with pytest.raises(RuntimeError, match='identifier "nothing" is undefined'):
        nvrtc.compile("__global__ void f() { nothing(); }")


@pytest.mark.cuda
def test_a_device_computes_the_same(nvrtc: Nvrtc, runs: list[Run]) -> None:
    device = find_device()
    if device is None:
        pytest.skip("no CUDA device")
    assert find_faults(device, nvrtc, runs) == []


class _Coordinates(ctypes.Structure):
    _fields_ = tuple((axis, ctypes.c_uint) for axis in "xyz")


def test_the_threads_of_a_grid_one_after_another_compute_the_same(runs: list[Run], tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    source, library = tmp_path / "kernels.cpp", tmp_path / "kernels.so"
    source.write_text(_SHIM + source_of(runs), encoding="utf-8")
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", f"-I{include_directory()}"]
    subprocess.run(["g++", *flags, source, "-o", library], check=True)
    handle = ctypes.CDLL(str(library))
    for run in runs:
        arrays = {buffer: array.copy() for buffer, array in run.arrays.items()}
        for buffer in run.grid.scratch:
            assert buffer.size is not None
            arrays[buffer] = np.full(evaluate(buffer.size, run.sizes), 77, to_numpy(buffer.dtype))
        for launch in run.grid.launches:
            sizes = [run.sizes[name] for name in sorted(symbols_in(launch.kernel.body))]
            arguments = [arrays[item] for item in launch.kernel.parameters if isinstance(item, Buffer)]
            _call_threads(
                handle,
                launch.kernel.name,
                [
                    *(ctypes.c_void_p(array.ctypes.data) for array in arguments),
                    *map(ctypes.c_int64, sizes),
                ],
            )
        run.check(arrays)


def _call_threads(handle: ctypes.CDLL, name: str, arguments: Sequence[object]) -> None:
    """Call a kernel once for each thread of a grid, in any order."""
    places = {axis: _Coordinates.in_dll(handle, axis) for axis in ("blockIdx", "threadIdx", "blockDim", "gridDim")}
    places["gridDim"].x, places["blockDim"].x = NUM_BLOCKS, NUM_THREADS
    numbers = [(block, thread) for block in range(NUM_BLOCKS) for thread in range(NUM_THREADS)]
    for block, thread in random.Random(name).sample(numbers, len(numbers)):
        places["blockIdx"].x, places["threadIdx"].x = block, thread
        handle[name](*arguments)
