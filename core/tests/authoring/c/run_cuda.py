"""Run printed CUDA on the first device, and compare with the interpreter and the reference kernels.

    python -m core.tests.authoring.c.run_cuda --nests 200

Needs numpy, ml_dtypes and hypothesis, no other package and no network: NVRTC comes from a package of PyPI or from a
CUDA toolkit. The exit status is 1 after a wrong result, and 2 without NVRTC or device.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from core.tests.authoring.c.cuda import Device, Nvrtc, find_device, find_nvrtc
from core.tests.authoring.c.cuda_runs import Run, all_runs, source_of

__all__ = ["find_faults"]


def find_faults(device: Device, nvrtc: Nvrtc, runs: Sequence[Run]) -> list[str]:
    """Return the wrong results of runs on a device, up to the first failing run."""
    module = device.load(nvrtc, source_of(runs))
    faults = []
    for run in runs:
        arrays = {buffer: array.copy() for buffer, array in run.arrays.items()}
        try:
            device.run(module, run.grid, arrays, run.sizes)
            run.check(arrays)
        except AssertionError as error:
            faults.append(str(error))
        except RuntimeError as error:
            # After an access out of bounds the driver refuses all else.
            return [*faults, f"{run.grid.launches[0].kernel.name}: {error}"]
    return faults


def main() -> int:
    """Run everything once, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nests", type=int, default=100, help="the number of random nests")
    options = parser.parse_args()
    nvrtc = find_nvrtc()
    print(f"NVRTC: {'none' if nvrtc is None else f'{nvrtc.version}, {nvrtc.path}'}")
    device = find_device()
    print(f"device: {'none' if device is None else f'{device.name}, driver for CUDA {device.version}'}", flush=True)
    if nvrtc is None or device is None:
        return 2
    began = time.monotonic()
    runs = all_runs(options.nests)
    print(f"{len(runs)} functions, {sum(len(run.grid.launches) for run in runs)} launches", flush=True)
    faults = find_faults(device, nvrtc, runs)
    print(*faults, sep="\n\n")
    print(f"{len(faults)} functions are wrong; {time.monotonic() - began:.0f} seconds")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
