"""The process run under callgrind: every way of an engine to call saved models, N times and then 2 N times.

    valgrind --tool=callgrind --dump-before=getppid python -m benchmarks.counted_process ENGINE FOLDER MODEL...

The process calls the marked C function before each of both series and after the second. At each of these calls,
callgrind writes down its counts since the previous call. The difference of the two counts over N is one call, without
the start of the loop, the process or the compiler. Way and model of each are printed in order.
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
"""A C function called by nothing else."""
NUM_CALLS = 100
NUM_WARM_CALLS = 100
BYOC, PEER = "byoc", "ORT"
DUMPS_PER_CALL = 3


def list_calls(engine: str, folder: Path, model: str) -> dict[str, Call]:
    """Return the ways of an engine to call a model saved by :func:`benchmarks.instructions.save_models`.

    numpy's way is with byoc's, because byoc has loaded numpy anyway.
    """
    inputs = dict(np.load(folder / f"{model}.npz"))
    if engine == BYOC:
        arithmetic = (folder / f"{model}.numpy").read_text(encoding="utf-8")
        calls = byoc_calls(load(folder / f"{model}.byoc", allow_native=True), inputs)
        return calls | {"numpy": numpy_call(arithmetic, inputs)}
    return peer_calls(peer_session((folder / f"{model}.onnx").read_bytes(), num_threads=1), inputs)


def main(engine: str, folder: str, *models: str) -> None:
    """Run every way of each model."""
    gc.disable()
    for model in models:
        for variant, call in list_calls(engine, Path(folder), model).items():
            timer = timeit.Timer(call.statement, globals=dict(call.names))
            timer.timeit(NUM_WARM_CALLS)
            os.getppid()
            timer.timeit(NUM_CALLS)
            os.getppid()
            timer.timeit(2 * NUM_CALLS)
            os.getppid()
            print(variant, model, sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:])
