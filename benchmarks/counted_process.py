"""What runs under callgrind: every way of one engine to call saved models, N times and then 2 N times.

    valgrind --tool=callgrind --dump-before=getppid python -m benchmarks.counted_process ENGINE FOLDER MODEL...

Before each of both, and behind them, it calls the marked C function: callgrind writes down what it has counted since
the last time. The difference of the two counts over N is one call, without the loop's start, the process's, or the
compiler's. Prints way and model of each, in order.
"""

from __future__ import annotations

import gc
import os
import sys
import timeit
from pathlib import Path

import numpy as np
from byoc_core.artifact.loading import load

from benchmarks.calls import Call, byoc_calls, numpy_call, peer_calls, peer_session

__all__ = ["BYOC", "DUMPS_PER_CALL", "MARK", "NUM_CALLS", "PEER"]

MARK = "getppid"
"""A C function that nothing else calls."""
NUM_CALLS = 100
NUM_WARM_CALLS = 100
BYOC, PEER = "byoc", "ORT"
DUMPS_PER_CALL = 3


def list_calls(engine: str, folder: Path, model: str) -> dict[str, Call]:
    """Gives the ways of an engine to call a model that :func:`benchmarks.instructions.save_models` saved.

    numpy's is with byoc's, which has loaded numpy anyway.
    """
    inputs = dict(np.load(folder / f"{model}.npz"))
    if engine == BYOC:
        arithmetic = (folder / f"{model}.numpy").read_text(encoding="utf-8")
        calls = byoc_calls(load(folder / f"{model}.byoc", allow_native=True), inputs)
        return calls | {"numpy": numpy_call(arithmetic, inputs)}
    return peer_calls(peer_session((folder / f"{model}.onnx").read_bytes(), num_threads=1), inputs)


def main(engine: str, folder: str, *models: str) -> None:
    """Runs everything once."""
    gc.disable()
    for model in models:
        for way, call in list_calls(engine, Path(folder), model).items():
            timer = timeit.Timer(call.statement, globals=dict(call.names))
            timer.timeit(NUM_WARM_CALLS)
            os.getppid()
            timer.timeit(NUM_CALLS)
            os.getppid()
            timer.timeit(2 * NUM_CALLS)
            os.getppid()
            print(way, model, sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:])
