"""The layers of models compiled by dnnl alone, beside ONNX Runtime or OpenVINO: where time is won and lost.

Each engine is a separate process, asked in turn, and measures the times with a built-in profiler. Profilers cost a
little: the sums are above the times of ``benchmarks.models``. Anything not computed layer by layer (a fused attention,
say) counts as ``all else``. ``benchmarks.layers_process`` defines the names of layers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx

from benchmarks.layers_process import OTHER
from benchmarks.models import BFLOAT16_MODELS, DNNL_ALONE, QUANTISED, THREADS, check_names, installed_peers, load_model
from benchmarks.pairing import Samples
from benchmarks.workers import Worker

__all__ = ["run", "run_bfloat16"]

MODELS = ("light_resnet50", "light_squeezenet", "mobilenet_v2", "bert")


def run(num_rounds: int, models: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the microseconds of the layers of models, for all engines."""
    return _run_models(models or MODELS, ("onnxruntime", "openvino"), {}, num_rounds)


def run_bfloat16(num_rounds: int, models: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the same with ``precision="bfloat16"``, beside OpenVINO with OpenVINO's choice of precision."""
    return _run_models(models or BFLOAT16_MODELS, ("openvino as it comes",), {"precision": "bfloat16"}, num_rounds)


def _run_models(
    names: Sequence[str], peers: Sequence[str], options: Mapping[str, Any], num_rounds: int
) -> dict[str, Any]:
    check_names(names)
    installed = installed_peers(peers)
    return {name: _run_model(name, _telling(installed, name), options, num_rounds) for name in names}


def _telling(peers: Sequence[str], name: str) -> list[str]:
    """Return the peers with profilers for the layers of a model; print the name of an omitted peer."""
    if name not in QUANTISED or "onnxruntime" not in peers:
        return list(peers)
    print(f"  {name}: without ONNX Runtime: the profiler reports no sizes of quantised weights")
    return [peer for peer in peers if peer != "onnxruntime"]


def _run_model(name: str, peers: Sequence[str], options: Mapping[str, Any], num_rounds: int) -> dict[str, Any]:
    model, inputs = load_model(name)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        onnx.save(model, str(folder / "model.onnx"))
        np.savez(folder / "inputs.npz", **inputs)
        built = byoc_core.build(byoc_core.from_onnx(model), ["dnnl"], options={"dnnl": dict(options)})
        built.save(folder / "model.byoc")
        for num_threads in THREADS:
            found = _compare(folder, ["byoc", *peers], num_threads, num_rounds)
            _tell(f"{name}, {num_threads} threads", found)
            figures[f"{num_threads} threads"] = {
                layer: {engine: samples.to_json() for engine, samples in row.items()} for layer, row in found.items()
            }
    return figures


def _compare(folder: Path, engines: Sequence[str], num_threads: int, num_rounds: int) -> dict[str, dict[str, Samples]]:
    """Return the microseconds of all layers of a name together, by layer, then by engine."""
    workers: dict[str, Worker] = {}
    answers: dict[str, list[Mapping[str, float]]] = {engine: [] for engine in engines}
    try:
        for engine in engines:
            arguments = [str(folder), engine, str(num_threads)]
            environment = DNNL_ALONE if engine == "byoc" else {}
            workers[engine] = Worker("benchmarks.layers_process", arguments, environment)
            workers[engine].ask()
        for _ in range(num_rounds):
            for engine, worker in workers.items():
                answers[engine].append(worker.ask())
    finally:
        for worker in workers.values():
            worker.stop()
    layers = dict.fromkeys(
        layer for engine_answers in answers.values() for answer in engine_answers for layer in answer if layer != OTHER
    )
    return {
        layer: {
            engine: Samples(tuple(answer[layer] / 1e3 for answer in engine_answers))
            for engine, engine_answers in answers.items()
            if layer in engine_answers[0]
        }
        for layer in (*layers, OTHER)
    }


def _tell(title: str, found: Mapping[str, Mapping[str, Samples]]) -> None:
    """Print the layers, beginning with the largest lead of the fastest peer."""
    engines = list(dict.fromkeys(engine for row in found.values() for engine in row))

    def gain(row: Mapping[str, Samples]) -> float:
        theirs = [samples.median for engine, samples in row.items() if engine != "byoc"]
        return min(theirs) - row["byoc"].median if theirs and "byoc" in row else 0.0

    print(f"  {title + ', microseconds':56}" + "".join(f"{engine:>22}" for engine in engines))
    for layer, row in sorted(found.items(), key=lambda item: gain(item[1])):
        cells = (f"{row[engine].median:22.0f}" if engine in row else " " * 22 for engine in engines)
        print(f"    {layer:54}{''.join(cells)}".rstrip())
    sums = (sum(row[engine].median for row in found.values() if engine in row) for engine in engines)
    print(f"    {'together':54}{''.join(f'{total:22.0f}' for total in sums)}", flush=True)
