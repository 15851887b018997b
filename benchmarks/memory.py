"""Peak memory of running models from artifacts in fresh processes, over the memory needed at least.

The need is :class:`byoc_core.artifact.MemoryNeed`: constants, the modules' payloads, and for each call in progress the
planned arena, the inputs and the outputs; with dnnl also the intermediates of a call reported by the regions. The
memory of Python, numpy and the run side is not counted: each process has run a small model of the same kind before.
If numpy computes, this process has multiplied matrices too, because BLAS packs matrices into some MB kept per thread,
independent of the model. ``np.load`` reads each input from a separate file into an array without further memory (an
``.npz`` needs more than the inputs). Linux only: peaks are read from ``/proc`` (``ru_maxrss`` of a child starts at the
value of the parent).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
from byoc_core.dims import evaluate
from byoc_core.runtime.arguments import bind_symbols

from benchmarks.compile_time import compiling_backends
from benchmarks.pairing import Samples, measure
from benchmarks.zoo.light import SEED, draw_inputs, load_light_model
from benchmarks.zoo.networks import NETWORKS

LIGHT_MODELS = ("light_resnet50", "light_squeezenet", "light_densenet121")
BERT_SIZES = {"batch": 1, "sequence": 128}
WARM_UP = """
@R.function
def main(x: R.Tensor((1, 8, 32, 32), "float32"), w: R.Tensor((8, 8, 3, 3), "float32")):
    y = R.nn.conv2d(x, w, padding=(1, 1, 1, 1))
    z = R.nn.relu(y)
    total = R.add(y, z)
    pooled = R.nn.max_pool2d(total, pool_size=(2, 2), strides=(2, 2))
    shares = R.nn.softmax(pooled)
    return shares
"""
SCRIPT = """
import gc, json, mmap, sys, threading, numpy as np, byoc_core

def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))

def multiply():
    sizes = [(1024, 1024), (1024, 4096), (1024, 4096)]
    # Mapped memory goes back to the system; memory of an allocator might serve the measured call.
    rooms = [mmap.mmap(-1, 4 * rows * columns) for rows, columns in sizes]
    x, y, out = (np.frombuffer(room, np.float32).reshape(size) for room, size in zip(rooms, sizes))
    np.matmul(x, y, out=out)

def run(artifact, inputs, num_threads, *, is_warm_up=False):
    executable = byoc_core.load(artifact, allow_native=True)
    machine = byoc_core.VirtualMachine(executable)
    computes_by_numpy = any(module.type_key == "graph" for module in executable.modules)
    ready = threading.Barrier(num_threads)
    def call():
        feeds = {name: np.load(file) for name, file in json.loads(inputs).items()}
        ready.wait()
        if is_warm_up and computes_by_numpy:
            multiply()
        machine.run("main", feeds)
    threads = [threading.Thread(target=call) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

warm_up, warm_up_inputs, artifact, inputs, num_threads = sys.argv[1:]
run(warm_up, warm_up_inputs, int(num_threads), is_warm_up=True)
gc.collect()
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = status("VmRSS")
run(artifact, inputs, int(num_threads))
print(json.dumps({"peak": status("VmHWM") - before}))
"""

Inputs = Mapping[str, npt.NDArray[Any]]


def run(num_rounds: int) -> dict[str, Any]:
    """Return peak and needed bytes of each model on the host and each backend compiling here, with 1 and 2 threads."""
    return _run(num_rounds, ("host", *compiling_backends()))


def run_dnnl(num_rounds: int) -> dict[str, Any]:
    """Return the same for dnnl alone."""
    return _run(num_rounds, ("dnnl",))


def _run(num_rounds: int, backends: Sequence[str]) -> dict[str, Any]:
    figures: dict[str, Any] = {"unit": "bytes"}
    for name, model, inputs in draw_models():
        module = byoc_core.from_onnx(model)
        figures[name] = {}
        for backend in backends:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder)
                save_warm_up(path, backend)
                byoc_core.build(module, [backend]).save(path / "model.byoc")
                for num_threads in (1, 2):
                    figure = measure_peak(path, inputs, num_threads, num_rounds)
                    figures[name][f"{backend}, {num_threads} threads"] = figure
                    needed, peak = figure["needed"], figure["peak"]["median"]
                    print(
                        f"  {name}, {backend}, {num_threads} threads: peak {peak:,.0f}, {peak / needed:.3f} times the "
                        f"{needed:,} needed",
                        flush=True,
                    )
    return figures


def draw_models() -> Iterator[tuple[str, onnx.ModelProto, Inputs]]:
    """Yield names, models and inputs."""
    for name in LIGHT_MODELS:
        model = load_light_model(name)
        yield name, model, draw_inputs(model, SEED)
    bert = NETWORKS["bert"]
    yield "bert", bert.build("real", "exported17"), bert.draw("real", BERT_SIZES, SEED)


def save_warm_up(folder: Path, backend: str) -> None:
    """Write a small model for loading everything needed by a backend's artifacts, OpenMP if loops are parallel."""
    byoc_core.build(byoc_core.parse(WARM_UP), [backend]).save(folder / "warm_up.byoc")


def save_inputs(folder: Path, inputs: Inputs) -> str:
    """Write a file for each input; return the JSON of the file names, as read by the script."""
    folder.mkdir(exist_ok=True)
    files = {name: str(folder / f"{index}.npy") for index, name in enumerate(inputs)}
    for name, file in files.items():
        np.save(file, inputs[name])
    return json.dumps(files)


def count_frames(artifact: Path, inputs: Inputs) -> int:
    """Return the bytes of a call beyond the planned arena, as reported by the modules after a call here."""
    executable = byoc_core.load(artifact, allow_native=True)
    telling = [module for module in executable.modules if hasattr(module, "frame_nbytes")]
    if telling:
        byoc_core.VirtualMachine(executable).run("main", inputs)
    return sum(module.frame_nbytes for module in telling)


def measure_peak(folder: Path, inputs: Inputs, num_threads: int, num_rounds: int) -> dict[str, Any]:
    """Return the needed bytes, and the peaks of fresh processes calling the model in a folder from threads at once."""
    ones = {name: np.ones(shape, np.float32) for name, shape in (("x", (1, 8, 32, 32)), ("w", (8, 8, 3, 3)))}
    warm_up = save_inputs(folder / "warm_up", ones)
    files = [str(folder / "warm_up.byoc"), warm_up, str(folder / "model.byoc"), save_inputs(folder / "model", inputs)]

    def peak() -> float:
        command = [sys.executable, "-c", SCRIPT, *files, str(num_threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(json.loads(done.stdout)["peak"])

    summary = byoc_core.inspect(folder / "model.byoc")
    specs = summary.functions["main"].inputs
    need = summary.memory["main"].at(bind_symbols(specs, [inputs[spec.name] for spec in specs]))
    shared = need.constants_nbytes + need.payload_nbytes
    each = evaluate(need.needed_nbytes, {}) - shared + count_frames(folder / "model.byoc", inputs)
    needed = shared + num_threads * each
    samples: Samples = measure({"peak": peak}, num_rounds=num_rounds)["peak"]
    return {"needed": needed, "peak": samples.to_json()}
