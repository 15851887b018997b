"""Milliseconds from the start of a process to the first result, stage by stage, in fresh processes.

Stages: ``python`` (an empty process), ``numpy``, ``byoc_core`` (the imports), ``imports`` (further imports of ``load``
and running), ``load``, ``machine`` (making the virtual machine), ``first`` and ``steady`` (a call, on one thread; the
median of the calls after the first). ``byoc run`` is the whole command, and ``rest`` the time beyond these stages: the
command line, random inputs, the table of outputs. ONNX Runtime is measured with the same model: ``imports`` is the
import of ONNX Runtime, ``load`` the making of the session.

All times are processor time, including the system's. On an idle machine this equals elapsed time, because nothing here
waits, and other processes disturb processor time less. Files are warm: each process has run once before. Artifacts and
modules are in the system's cache, and modules are compiled, as by pip. After a cold start of the machine, the same
pages come from the disk first; ``load`` then reads all but large constants (a hundredth of ResNet-50), and the first
call reads the large constants.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.compile_time import compiling_backends
from benchmarks.pairing import Samples, measure
from benchmarks.synthetic import make_model
from benchmarks.zoo.light import load_light_model

Stages = dict[str, float]

_HEAD = """
import json, statistics, sys, time
marks = [("", time.process_time())]

def mark(stage):
    marks.append((stage, time.process_time()))

def finish(call):
    call()
    mark("first")
    stages = {stage: (end - start) * 1e3 for (_, start), (stage, end) in zip(marks, marks[1:])}
    calls = []
    for _ in range(5):
        start = time.process_time()
        call()
        calls.append((time.process_time() - start) * 1e3)
    print(json.dumps({**stages, "steady": statistics.median(calls)}))

import numpy
mark("numpy")
"""
_BYOC = (
    _HEAD
    + """
import byoc_core
mark("byoc_core")
load, VirtualMachine = byoc_core.load, byoc_core.VirtualMachine
mark("imports")
executable = load(sys.argv[1], allow_native=True)
mark("load")
main = VirtualMachine(executable)["main"]
mark("machine")
inputs = [numpy.ones(spec.shape, spec.dtype) for spec in main.params]
marks[-1] = ("machine", time.process_time())
finish(lambda: main(*inputs))
"""
)
_PEER = (
    _HEAD
    + """
import onnxruntime
mark("imports")
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.log_severity_level = 3
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
mark("load")
inputs = {value.name: numpy.ones(value.shape, numpy.float32) for value in session.get_inputs()}
marks[-1] = ("load", time.process_time())
finish(lambda: session.run(None, inputs))
"""
)
_COMMAND = "import sys; sys.argv[0] = 'byoc'; from byoc_core.cli.main import main; main()"

MANY_OPS = 20_000
"""Ops of the model with thousands of small constants: every fifth op scales by a separate constant."""


def run(num_rounds: int) -> dict[str, Any]:
    """Return the stages of each model with the host, with each backend able to compile here, and with ONNX Runtime."""
    models = {
        "resnet50": load_light_model("light_resnet50").SerializeToString(),
        "mlp": make_mlp(),
        "constants": make_model("layers", MANY_OPS),
    }
    figures: dict[str, Any] = {"unit": "ms"}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models.items():
            figures[name] = measure_model(name, model, Path(folder), num_rounds)
    return figures


def make_mlp() -> bytes:
    """Return three dense layers of 64 to 128 to 128 to 10 features, seeded."""
    rng = np.random.default_rng(0)
    sizes, value = (64, 128, 128, 10), "x"
    nodes, weights = [], []
    for index, (rows, columns) in enumerate(pairwise(sizes)):
        weights.append(numpy_helper.from_array(rng.standard_normal((rows, columns), np.float32), f"w{index}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{index}"], [f"m{index}"]))
        nodes.append(helper.make_node("Relu", [f"m{index}"], [f"r{index}"]))
        value = f"r{index}"
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, size)) for name, size in (("x", 64), (value, 10))
    ]
    graph = helper.make_graph(nodes, "mlp", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def measure_model(name: str, model: bytes, folder: Path, num_rounds: int) -> dict[str, Any]:
    """Return the stages of a model by contestant."""
    module = byoc_core.from_onnx(model)
    contestants: dict[str, Callable[[], Stages]] = {}
    for backend in ("host", *compiling_backends()):
        path = folder / f"{name}-{backend}.byoc"
        byoc_core.build(module, [backend]).save(path)
        print(f"  {name}, {backend}: artifact of {path.stat().st_size:,} bytes")
        contestants[backend] = lambda path=path: measure_artifact(path, folder)  # type: ignore[misc]
    if name != "constants":
        peer = folder / f"{name}.onnx"
        peer.write_bytes(model)
        contestants["onnxruntime"] = lambda: run_stages(_PEER, peer, folder)
    found = measure_stages(contestants, num_rounds)
    for contestant, stages in found.items():
        for stage, samples in stages.items():
            print(f"  {name}, {contestant}, {stage}: {samples}", flush=True)
    return {
        contestant: {stage: samples.to_json() for stage, samples in stages.items()}
        for contestant, stages in found.items()
    }


def measure_stages(contestants: Mapping[str, Callable[[], Stages]], num_rounds: int) -> dict[str, dict[str, Samples]]:
    """Run contestants interleaved; return samples of each stage, of the sum, and of first over later calls."""
    rounds: dict[str, list[Stages]] = {name: [] for name in contestants}

    def total(name: str) -> Callable[[], float]:
        def contestant() -> float:
            stages = contestants[name]()
            stages["to first result"] = sum(stages[stage] for stage in stages if stage not in _BESIDE)
            stages["first / steady"] = stages["first"] / stages["steady"]
            rounds[name].append(stages)
            return stages["to first result"]

        return contestant

    measure({name: total(name) for name in contestants}, num_rounds=num_rounds)
    # The first round of `measure` is a warm-up.
    return {
        name: {stage: Samples(tuple(values[stage] for values in found[1:])) for stage in found[0]}
        for name, found in rounds.items()
    }


_BESIDE = ("steady", "byoc run", "rest")


def measure_artifact(path: Path, folder: Path) -> Stages:
    """Return the stages of a process loading and running an artifact, and the time of ``byoc run``."""
    stages = run_stages(_BYOC, path, folder)
    command = [sys.executable, "-c", _COMMAND, "run", "--allow-native", "--random-inputs", str(path)]
    stages["byoc run"] = time_process(command, folder)
    stages["rest"] = stages["byoc run"] - sum(stages[stage] for stage in stages if stage not in _BESIDE)
    return stages


def run_stages(script: str, path: Path, folder: Path) -> Stages:
    """Return the stages of a process, as printed by a script."""
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(folder))
    stages: Stages = json.loads(done.stdout)
    return {"python": time_process([sys.executable, "-c", "pass"], folder), **stages}


def time_process(command: list[str], folder: Path) -> float:
    """Return the milliseconds of processor time of a process from start to end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True, env=environment(folder))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of the processes: one thread, and compiled modules kept in a separate folder."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**inherited, **threads, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
