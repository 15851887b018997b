"""A contestant of ``benchmarks.pauses``: waits for a burst, prints the mean seconds of a call; and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import byoc_core
import numpy as np
import onnxruntime

ONNXRUNTIME = "ONNX Runtime"


def _load(folder: Path, contestant: str, num_threads: int) -> Callable[[], object]:
    inputs = dict(np.load(folder / "inputs.npz"))
    if contestant == ONNXRUNTIME:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
        return lambda: session.run(None, inputs)
    machine = byoc_core.VirtualMachine(byoc_core.load(folder / f"{contestant}.byoc", allow_native=True))
    function = machine["main"]
    arrays = [inputs[param.name] for param in function.params]
    return lambda: function(*arrays)


def _mean_seconds(call: Callable[[], object], pause_s: float, num_calls: int, num_bursts: int) -> float:
    seconds = 0.0
    for _ in range(num_bursts):
        if pause_s:
            time.sleep(pause_s)
        start = time.perf_counter()
        for _ in range(num_calls):
            call()
        seconds += time.perf_counter() - start
    return seconds / (num_calls * num_bursts)


def main() -> None:
    """Answer each line of the input: pause in seconds, calls of a burst, number of bursts."""
    folder, contestant, num_threads = sys.argv[1:]
    call = _load(Path(folder), contestant, int(num_threads))
    for line in sys.stdin:
        pause_s, num_calls, num_bursts = line.split()
        print(_mean_seconds(call, float(pause_s), int(num_calls), int(num_bursts)), flush=True)


if __name__ == "__main__":
    main()
