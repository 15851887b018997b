"""The whole road: an ONNX model of this module, compiled, saved, loaded and run, with the counts of each step."""

from __future__ import annotations

import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import byoc_core
import numpy as np
import onnx
import onnx.parser
from byoc_core.ir import IRModule
from byoc_core.transform import PassRun
from numpy.typing import NDArray

from docs.drawings.svg import COLOURS, GREY, Canvas

__all__ = ["draw_road", "make_model"]

BACKENDS = ("examplejson", "ccompiler")
GRAPH = """
digits (float[1,1,12,12] image) => (float[2,5] scores, int64[2,m] likely) {
  centred = Sub(image, mean)
  scaled = Mul(centred, contrast)
  c1 = Conv<pads=[1,1,1,1]>(scaled, w1)
  n1 = BatchNormalization(c1, gamma, beta, running_mean, running_variance)
  r1 = Relu(n1)
  p1 = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r1)
  c2 = Conv<pads=[1,1,1,1]>(p1, w2, b2)
  r2 = Relu(c2)
  p2 = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r2)
  flat = Reshape(p2, flat_shape)
  w3 = Transpose(stored_w3)
  logits = Gemm(flat, w3, b3)
  probabilities = Softmax(logits)
  scores = Reshape(probabilities, scores_shape)
  is_likely = Greater(probabilities, threshold)
  likely = NonZero(is_likely)
}
"""
WEIGHTS = {"w1": (8, 1, 3, 3), "w2": (16, 8, 3, 3), "b2": (16,), "stored_w3": (10, 144), "b3": (10,)}
NORM = ("gamma", "beta", "running_mean", "running_variance")
CENTRE, STEP = 220, 78


def make_model() -> onnx.ModelProto:
    """Return a classifier of 12x12 images with seeded weights; the second result lists the likely classes."""
    generator = np.random.default_rng(0)
    graph = onnx.parser.parse_graph(GRAPH)
    arrays: dict[str, NDArray[np.generic]] = {}
    arrays |= {name: generator.standard_normal(shape, np.float32) / 10 for name, shape in WEIGHTS.items()}
    arrays |= {name: np.ones(8, np.float32) for name in NORM}
    arrays |= {name: np.full((1, 1, 12, 12), 0.9, np.float32) for name in ("mean", "contrast")}
    arrays |= {
        "threshold": np.array(0.1, np.float32),
        "flat_shape": np.array([-1, 144]),
        "scores_shape": np.array([2, 5]),
    }
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return model


def draw_road() -> str:
    """Return the drawing, as SVG."""
    model = make_model()
    imported = byoc_core.from_onnx(model)
    runs: list[PassRun] = []
    executable = byoc_core.build(imported, BACKENDS, on_pass=runs.append)
    modules = {run.name: run.module for run in runs}
    prepare = [run.name for run in runs[: list(modules).index("partition")]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.byoc"
        executable.save(path)
        members = Counter(name.partition("/")[0] for name in zipfile.ZipFile(path).namelist())
        machine = byoc_core.VirtualMachine(byoc_core.load(path, allow_native=True))
        scores, likely = machine["main"](np.ones((1, 1, 12, 12), np.float32))
    function = executable.program.functions[0]
    functions = ", ".join(f"{module.type_key} ({len(module.function_names)})" for module in executable.modules)
    steps = (
        ("ONNX model", f"{len(model.graph.node)} nodes, {len(model.graph.initializer)} initializers", "from_onnx"),
        ("IRModule", f"{_num_ops(imported)} ops", f"prepare: {len(prepare)} passes simplify"),
        ("IRModule, simplified", f"{_num_ops(modules[prepare[-1]])} ops", "partition: claims, then regions"),
        ("IRModule, partitioned", _regions(modules["partition_host"]), "PeelViews: views leave regions"),
        ("IRModule, views outside", _regions(modules["PeelViews"]), "byoc_codegen of each backend"),
        ("RuntimeModules (functions)", functions, "lower: registers, storage plan"),
        ("Executable", f"{len(function.code)} instructions, {len(executable.constants)} constants", "save"),
        ("model.byoc", ", ".join(f"{count} {name}" for name, count in sorted(members.items())), "load"),
        ("VirtualMachine", "needs no compiler and no compile half", "call"),
        ("results", f"scores {_size(scores)}, likely {_size(likely)}", ""),
    )
    canvas = Canvas("The whole road", "The steps from an ONNX model to results, with the counts of a small classifier.")
    for number, (title, facts, action) in enumerate(steps):
        is_data = title in ("ONNX model", "model.byoc", "results")
        box = canvas.box(CENTRE, 12 + number * STEP, (title, facts), GREY if is_data else COLOURS[1], width=400)
        if action:
            canvas.arrow((CENTRE, box.bottom), (CENTRE, box.bottom + STEP - box.height))
            canvas.text(CENTRE + 12, box.bottom + (STEP - box.height) / 2, (action,), anchor="start")
    _bracket(canvas, 0, 6, "compile side:", "byoc-core", "and backends")
    _bracket(canvas, 7, 9, "run side:", "byoc-core", "and runtimes")
    return canvas.to_svg()


def _num_ops(module: IRModule) -> int:
    return sum(len(function.bindings) for function in module.functions.values())


def _regions(module: IRModule) -> str:
    functions = module.functions.values()
    counts = Counter(str(function.attrs["Codegen"]) for function in functions if "Codegen" in function.attrs)
    num_views = sum(binding.op.name != "call" for binding in module["main"].bindings)
    regions = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
    return f"regions: {regions}" + f", views ({num_views})" * bool(num_views)


def _size(array: NDArray[np.generic]) -> str:
    return "x".join(map(str, array.shape))


def _bracket(canvas: Canvas, first: int, last: int, *lines: str) -> None:
    top, bottom, x = 12 + first * STEP, 12 + last * STEP + 36, CENTRE + 240
    canvas.line((x, top + 4), (x + 8, top + 4), (x + 8, bottom), (x, bottom))
    canvas.text(x + 16, (top + bottom) / 2 - 8, lines, anchor="start")
