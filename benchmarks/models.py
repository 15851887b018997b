"""Whole models compiled by ccompiler alone, beside ONNX Runtime, with one and two threads.

Each contestant is a process of its own. Outputs are compared before anything is measured, and the share of FLOPs that
ccompiler took is told beside the times.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx

from benchmarks.pairing import Samples, measure, paired_ratio
from benchmarks.workers import Worker
from benchmarks.zoo.bert import SIZES, build_bert, draw_bert_inputs
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.light import SEED, draw_inputs, load_light_model
from benchmarks.zoo.mobilenet import build_mobilenet_v2, draw_image
from benchmarks.zoo.quantised import build_quantised_convnet, build_quantised_mlp

__all__ = ["MODELS", "QUANTISED", "load_model", "run", "run_quantised"]

MODELS = ("light_resnet50", "light_squeezenet", "light_densenet121", "mobilenet_v2", "bert")
QUANTISED = ("quantised_convnet", "quantised_mlp_1", "quantised_mlp_64")
"""Quantised ones; the numbers are those of rows."""
THREADS = (1, 2)
BERT_SIZES = {"batch": 1, "sequence": 128}


def load_model(name: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Gives a model of the zoo, its sizes fixed, and inputs for it."""
    if name in QUANTISED:
        *_, rows = name.split("_")
        model = build_quantised_mlp(int(rows)) if rows.isdigit() else build_quantised_convnet()
        return model, dict(draw_inputs(model, SEED))
    if name == "mobilenet_v2":
        return build_mobilenet_v2(), dict(draw_image(SEED))
    if name != "bert":
        model = load_light_model(name)
        return model, dict(draw_inputs(model, SEED))
    model = build_bert(SIZES["real"], STYLES["exported17"])
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in BERT_SIZES:
                dim.dim_value = BERT_SIZES[dim.dim_param]
    return model, dict(draw_bert_inputs(SIZES["real"], BERT_SIZES, SEED))


def _run_model(name: str, num_rounds: int) -> dict[str, Any]:
    model, inputs = load_model(name)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        onnx.save(model, str(folder / "model.onnx"))
        np.savez(folder / "inputs.npz", **inputs)
        executable = byoc_core.build(byoc_core.from_onnx(model), ["ccompiler"])
        executable.save(folder / "model.byoc")
        figures: dict[str, Any] = {"offloaded": executable.report_data["offloaded_share"]}
        for num_threads in THREADS:
            workers = {
                engine: Worker("benchmarks.models_process", [text, engine, str(num_threads)], {})
                for engine in ("byoc", "onnxruntime")
            }
            try:
                figures[f"{num_threads} threads"] = _compare(workers, folder, num_rounds)
            finally:
                for worker in workers.values():
                    worker.stop()
    return figures


def _compare(workers: dict[str, Worker], folder: Path, num_rounds: int) -> dict[str, Any]:
    for worker in workers.values():
        worker.ask()
    ours, theirs = (np.load(folder / f"{engine}.npz") for engine in workers)
    pairs = [(ours[name].astype(np.float64), theirs[name].astype(np.float64)) for name in theirs.files]
    error = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)
    seconds = measure({engine: worker.ask for engine, worker in workers.items()}, num_rounds=num_rounds)
    found = {engine: Samples(tuple(1e3 * value for value in s.values)) for engine, s in seconds.items()}
    ratio = paired_ratio(seconds["onnxruntime"], seconds["byoc"])
    milliseconds = {engine: samples.to_json() for engine, samples in found.items()}
    return {"ms": milliseconds, "onnxruntime / byoc": ratio.to_json(), "relative error": error}


def run(num_rounds: int) -> dict[str, Any]:
    """Gives milliseconds of a call, and ONNX Runtime's over ours."""
    return _run_models(MODELS, num_rounds)


def run_quantised(num_rounds: int) -> dict[str, Any]:
    """Gives the same of quantised models."""
    return _run_models(QUANTISED, num_rounds)


def _run_models(names: Sequence[str], num_rounds: int) -> dict[str, Any]:
    figures = {}
    for name in names:
        figures[name] = _run_model(name, num_rounds)
        for num_threads in THREADS:
            found = figures[name][f"{num_threads} threads"]
            ours, theirs = (found["ms"][engine]["median"] for engine in ("byoc", "onnxruntime"))
            ratio = found["onnxruntime / byoc"]
            print(
                f"  {name}, {num_threads} threads: {ours:.2f} ms, ONNX Runtime {theirs:.2f}: "
                f"{ratio['median']:.2f} +- {ratio['spread']:.2f} times as fast; error {found['relative error']:.1e}; "
                f"offloaded {figures[name]['offloaded']:.1%}",
                flush=True,
            )
    return figures
