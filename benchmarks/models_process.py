"""A contestant of ``benchmarks.models``: answers each line with the seconds of a call, the median of some.

Its first answer comes when it has written its outputs to ``<engine>.npz`` in the folder of the model.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["main"]

_BUDGET_S = 0.3
"""Seconds of calls for one answer, at least three calls."""


def _open_byoc(folder: Path, inputs: dict[str, Any], num_threads: int) -> Callable[[], Any]:
    import byoc_core

    artifact = byoc_core.load(folder / "model.byoc", allow_native=True)
    machine = byoc_core.VirtualMachine(artifact, num_threads=num_threads)
    return lambda: machine.run("main", inputs)


def _open_onnxruntime(folder: Path, inputs: dict[str, Any], num_threads: int) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


_ENGINES = {"byoc": _open_byoc, "onnxruntime": _open_onnxruntime}


def _time(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    """Answers each line of the input."""
    folder, engine, num_threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    call = _ENGINES[engine](folder, dict(np.load(folder / "inputs.npz")), num_threads)
    sys.stdin.readline()
    results = call()
    results = results if isinstance(results, (tuple, list)) else [results]
    np.savez(folder / f"{engine}.npz", **{f"output{k}": result for k, result in enumerate(results)})
    seconds = _time(call)
    print(seconds, flush=True)
    for _ in sys.stdin:
        count = max(3, int(_BUDGET_S / max(seconds, 1e-6)))
        seconds = statistics.median(_time(call) for _ in range(count))
        print(seconds, flush=True)


if __name__ == "__main__":
    main()
