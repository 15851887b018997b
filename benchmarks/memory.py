"""Peak memory of running ResNet-50 from its artifact in a fresh process, over what it cannot do without.

That is the weights, the arena that was planned for intermediates, the inputs and the outputs. What numpy and the run
side take by themselves is not counted. Linux only: peaks are read from ``/proc`` (``ru_maxrss`` of a child starts at
its parent's).
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
from byoc_core.dims import evaluate
from byoc_core.vm.program import nbytes_of

from benchmarks.compile_time import compiling_backends
from benchmarks.pairing import Samples, measure
from benchmarks.zoo.light import SEED, draw_inputs, load_light_model

MODEL = "light_resnet50"
SCRIPT = """
import json, sys, numpy as np, byoc_core, byoc_core.artifact.loading, byoc_core.kernels, byoc_core.vm

def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))

before = status("VmRSS")
executable = byoc_core.load(sys.argv[1], allow_native=True)
inputs = dict(np.load(sys.argv[2]))
byoc_core.VirtualMachine(executable).run("main", inputs)
print(json.dumps({"peak": status("VmHWM") - before}))
"""


def run(num_rounds: int) -> dict[str, Any]:
    """Gives, for the host and for each backend that compiles here, the peak and its ratio to what is needed."""
    model = load_light_model(MODEL)
    module, inputs = byoc_core.from_onnx(model), draw_inputs(model, SEED)
    figures: dict[str, Any] = {"unit": "bytes"}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "inputs.npz", **inputs)  # type: ignore[arg-type]  # no input is called `allow_pickle`
        for name in ("host", *compiling_backends()):
            path = Path(folder) / f"{name}.byoc"
            byoc_core.build(module, [name]).save(path)
            figures[name] = measure_peak(path, Path(folder) / "inputs.npz", num_rounds)
            needed, ratio = figures[name]["needed"], figures[name]["peak"]["median"] / figures[name]["needed"]
            print(f"  {name}: peak {figures[name]['peak']['median']:,.0f}, {ratio:.2f} times the {needed:,} needed")
    return figures


def measure_peak(path: Path, inputs: Path, num_rounds: int) -> dict[str, Any]:
    """Gives the peaks of running an artifact in fresh processes, and the bytes that it needs."""

    def peak() -> float:
        command = [sys.executable, "-c", SCRIPT, str(path), str(inputs)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(json.loads(done.stdout)["peak"])

    summary = byoc_core.inspect(path)
    signature = summary.functions["main"]
    in_and_out = [nbytes_of(spec.shape, spec.dtype) for spec in (*signature.inputs, *signature.outputs)]
    sizes = [summary.constants_nbytes, summary.arena_nbytes["main"], *in_and_out]
    needed = sum(evaluate(size, {}) for size in sizes)
    samples: Samples = measure({"peak": peak}, num_rounds=num_rounds)["peak"]
    return {"needed": needed, "peak": samples.to_json()}
