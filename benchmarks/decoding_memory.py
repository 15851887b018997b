"""Peak memory of decoders: a prompt and 32 steps from one artifact in a fresh process, over the memory needed.

The need is the sum of the constants, the payload of the modules, the buffers of the state, and the largest call: the
planned arena, inputs and outputs, with the logits of all tokens of the prompt. The weights of the ONNX model are in the
constants once for each layout read by kernels: an embedding table that is also a factor of a product is there twice.
The memory of Python, numpy and the run side is not counted: each process has run a small model of the same kind before.
Linux only: peaks are read from ``/proc``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
from onnx import numpy_helper

from benchmarks.decoders import BACKENDS, NUM_STEPS, SHORT_PAST, Decoder, build_decoders
from benchmarks.memory import save_inputs, save_warm_up
from benchmarks.pairing import Samples, measure
from benchmarks.tables import Table, show, table_to_json

THREADS = (1, 2)
_LOGITS = "inputs and logits"
SCRIPT = """
import gc, json, sys, numpy as np, byoc_core

def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))

def run(artifact, calls, num_threads, capacity):
    executable = byoc_core.load(artifact, allow_native=True)
    machine = byoc_core.VirtualMachine(executable, num_threads=num_threads)
    state = machine.new_state(capacity=capacity) if executable.states else None
    for call in calls:
        machine.run("main", {name: np.load(file) for name, file in call.items()}, state=state)

warm_up, warm_up_inputs, artifact, calls, num_threads, capacity = sys.argv[1:]
run(warm_up, [json.loads(warm_up_inputs)], int(num_threads), 0)
gc.collect()
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = status("VmRSS")
run(artifact, json.loads(calls), int(num_threads), int(capacity))
print(json.dumps({"peak": status("VmHWM") - before}))
"""


def run(num_rounds: int) -> dict[str, Any]:
    """Return peak and needed bytes of each decoder, the parts of the need, and the ratio."""
    bytes_table: Table = {}
    ratios: Table = {}
    for name, decoder in build_decoders().items():
        executable = byoc_core.build(byoc_core.from_onnx(decoder.model, states=decoder.caches), BACKENDS)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            save_warm_up(path, BACKENDS[0])
            executable.save(path / "decoder.byoc")
            parts = needed_nbytes(decoder, path / "decoder.byoc")
            weights = sum(numpy_helper.to_array(weight).nbytes for weight in decoder.model.graph.initializer)
            for title, nbytes in {"weights of the ONNX model": weights, **parts}.items():
                bytes_table.setdefault(title, {})[name] = Samples((float(nbytes),) * num_rounds)
            for threads in THREADS:
                peak = measure({"peak": _peak(decoder, path, threads)}, num_rounds=num_rounds)["peak"]
                bytes_table.setdefault(f"peak, {threads} threads", {})[name] = peak
                ratio = Samples(tuple(value / sum(parts.values()) for value in peak.values))
                ratios.setdefault(f"peak over need, {threads} threads", {})[name] = ratio
                rest = weights + parts["caches"] + parts["arena"]
                without_logits = Samples(tuple((value - parts[_LOGITS]) / rest for value in peak.values))
                title = f"peak without logits over weights, caches and arena, {threads} threads"
                ratios.setdefault(title, {})[name] = without_logits
    show(f"bytes, prompt of {SHORT_PAST} tokens and {NUM_STEPS} steps", bytes_table, ",.0f")
    show("ratio", ratios, ".3f")
    return {"unit": "bytes", "bytes": table_to_json(bytes_table), "ratios": table_to_json(ratios)}


def needed_nbytes(decoder: Decoder, artifact: Path) -> dict[str, int]:
    """Return the parts of the need: the arena, inputs and outputs are those of the largest call."""
    need = byoc_core.inspect(artifact).memory["main"]
    machine = byoc_core.VirtualMachine(byoc_core.load(artifact, allow_native=True))
    state = machine.new_state(capacity=SHORT_PAST + NUM_STEPS)
    logits = machine.run("main", decoder.prompt(SHORT_PAST), state=state)
    assert isinstance(logits, np.ndarray)
    call = need.at({"batch": 1, "sequence": SHORT_PAST, "past": 0})
    return {
        "constants": int(str(call.constants_nbytes)),
        "modules": int(str(call.payload_nbytes)),
        "caches": state.nbytes,
        "arena": int(str(call.arena_nbytes)),
        _LOGITS: sum(array.nbytes for array in (*decoder.prompt(SHORT_PAST).values(), logits)),
    }


def _peak(decoder: Decoder, folder: Path, num_threads: int) -> Any:
    """Return a contestant for the peak of a fresh process."""
    ones = {name: np.ones(shape, np.float32) for name, shape in (("x", (1, 8, 32, 32)), ("w", (8, 8, 3, 3)))}
    calls = [decoder.prompt(SHORT_PAST)]
    calls += [decoder.feeds(np.array([[1 + step]]), SHORT_PAST + step) for step in range(NUM_STEPS)]
    saved = [json.loads(save_inputs(folder / f"call{number}", call)) for number, call in enumerate(calls)]
    files = [str(folder / "warm_up.byoc"), save_inputs(folder / "warm_up", ones), str(folder / "decoder.byoc")]
    numbers = [str(num_threads), str(SHORT_PAST + NUM_STEPS)]
    command = [sys.executable, "-c", SCRIPT, *files, json.dumps(saved), *numbers]

    def peak() -> float:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(json.loads(done.stdout)["peak"])

    return peak
