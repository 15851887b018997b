"""The plugin: its operators, and models of several operators, built, saved and run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import byoc_core
import byoc_msops.importers as plugin
import numpy as np
import onnx
import onnxruntime
import pytest
from byoc_core.frontend.onnx import from_onnx
from onnx import helper, numpy_helper

from plugins.msops.tests.ms_nodes import Array, check_results, rng

pytestmark = pytest.mark.asks_for_plugins

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_lists_the_operators() -> None:
    rows = README.read_text("utf-8").partition("## Operators")[2].partition("## Limits")[0].splitlines()
    listed = [name for row in rows if row.startswith("| `") for name in row.split("|")[1].split("`")[1::2]]
    assert sorted(listed) == sorted(name for _, name in plugin.IMPORTERS)


def test_each_operator_has_one_importer() -> None:
    names = [name for module in plugin._MODULES for name in module.IMPORTERS]
    assert len(names) == len(set(names))


def _weights(**shapes: tuple[int, ...]) -> dict[str, Array]:
    return {
        name: rng(seed).standard_normal(shape).astype(np.float32) / np.float32(4)
        for seed, (name, shape) in enumerate(shapes.items())
    }


def _encoder() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a layer of an encoder, as written by ONNX Runtime's optimizer, and its inputs."""
    nodes = [
        ("EmbedLayerNormalization", ["ids", "", "words", "places", "", "gamma", "beta", "mask"], ["x", "lengths"], {}),
        ("Attention", ["x", "merged", "merged_bias", "lengths"], ["attended"], {"num_heads": 4}),
        ("MatMul", ["attended", "out"], ["projected"], {}),
        ("SkipLayerNormalization", ["x", "projected", "gamma", "beta", "out_bias"], ["y"], {}),
        ("MatMul", ["y", "wide"], ["h"], {}),
        ("BiasGelu", ["h", "wide_bias"], ["g"], {}),
        ("FusedMatMul", ["g", "narrow"], ["n"], {"transB": 1}),
        ("SkipLayerNormalization", ["y", "n", "gamma", "beta"], ["output"], {}),
    ]
    weights = _weights(
        words=(50, 32), places=(16, 32), gamma=(32,), beta=(32,), merged=(32, 96), merged_bias=(96,), out=(32, 32),
        out_bias=(32,), wide=(32, 64), wide_bias=(64,), narrow=(32, 64),
    )  # fmt: skip
    ids = rng().integers(0, 50, (2, 7)).astype(np.int32)
    mask = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0]], np.int32)
    return _model(nodes, weights, {"ids": ["batch", "steps"], "mask": ["batch", "steps"]}), {"ids": ids, "mask": mask}


def _model(nodes: Any, weights: dict[str, Array], inputs: dict[str, list[str]]) -> onnx.ModelProto:
    protos = [
        helper.make_node(
            op_type, given, found, name=f"n{index}", domain="" if op_type == "MatMul" else plugin.DOMAIN, **attrs
        )
        for index, (op_type, given, found, attrs) in enumerate(nodes)
    ]
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.INT32, shape) for name, shape in inputs.items()]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(protos, "g", infos, [onnx.ValueInfoProto(name="output")], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(plugin.DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("backends", [["ccompiler"], []])
def test_an_encoder(backends: list[str], tmp_path: Path) -> None:
    model, inputs = _encoder()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = [np.asarray(array) for array in session.run(None, inputs)]
    executable = byoc_core.build(from_onnx(model), backends)
    outcomes = {op["outcome"] for op in executable.report_data["ops"]}
    assert ("ccompiler" in outcomes) is bool(backends)
    assert ("host" in outcomes) is not bool(backends)
    executable.save(tmp_path / "model.byoc")
    main = byoc_core.VirtualMachine(byoc_core.load(tmp_path / "model.byoc"))["main"]
    check_results([np.asarray(main(*inputs.values()))], expected, error=2.0**-14)


HEADS, GROUPS, SIZE, WIDTH = 4, 2, 16, 64


def _linear(name: str, rows: int, columns: int, seed: int) -> tuple[dict[str, Array], dict[str, int]]:
    """Return random weights ``(rows, columns)`` of 4 bits in blocks of 32, and the attributes of the product."""
    weights: dict[str, Array] = {
        f"{name}_bytes": rng(seed).integers(0, 256, (rows, columns // 32, 16)).astype(np.uint8),
        f"{name}_scales": rng(seed).uniform(0.01, 0.02, (rows, columns // 32)).astype(np.float32),
    }
    return weights, {"N": rows, "K": columns, "bits": 4, "block_size": 32}


def _decoder() -> onnx.ModelProto:
    """Return a layer of a decoder, as written by the builder of ONNX Runtime's generative models."""
    weights: dict[str, Array] = {
        "gamma": rng(1).uniform(0.5, 1, WIDTH).astype(np.float32),
        "one": np.array(1, np.int64),
        "axis": np.array([1], np.int64),
    }
    angles = np.outer(np.arange(16), 1 / 100 ** (np.arange(SIZE // 2) / (SIZE // 2))).astype(np.float32)
    weights |= {"cos": np.cos(angles), "sin": np.sin(angles)}
    attrs: dict[str, dict[str, Any]] = {}
    for seed, (name, heads) in enumerate((("query", HEADS), ("key", GROUPS), ("value", GROUPS), ("out", HEADS))):
        added, attrs[name] = _linear(name, heads * SIZE, WIDTH, seed)
        weights |= added
    attrs["grouped"] = {"num_heads": HEADS, "kv_num_heads": GROUPS, "do_rotary": 1}
    operands = ["query", "key", "value", "past_key", "past_value", "lengths", "total", "cos", "sin"]
    caches = ["present_key", "present_value"]

    def node(op_type: str, inputs: list[str], outputs: list[str], domain: str = "", **given: Any) -> onnx.NodeProto:
        return helper.make_node(op_type, inputs, outputs, domain=domain, name=outputs[0], **given)

    def linear(name: str, x: str) -> onnx.NodeProto:
        inputs = [x, f"{name}_bytes", f"{name}_scales"]
        return node("MatMulNBits", inputs, [name], plugin.DOMAIN, **attrs[name])

    nodes = [
        node("ReduceSum", ["mask", "axis"], ["counts"], keepdims=0),
        node("Sub", ["counts", "one"], ["wide_lengths"]),
        node("Cast", ["wide_lengths"], ["lengths"], to=onnx.TensorProto.INT32),
        node("Shape", ["mask"], ["mask_shape"]),
        node("Gather", ["mask_shape", "one"], ["wide_total"]),
        node("Cast", ["wide_total"], ["total"], to=onnx.TensorProto.INT32),
        node("SimplifiedLayerNormalization", ["x", "gamma"], ["normal"], axis=-1, epsilon=1e-5),
        *(linear(name, "normal") for name in ("query", "key", "value")),
        node("GroupQueryAttention", operands, ["attended", *caches], plugin.DOMAIN, **attrs["grouped"]),
        linear("out", "attended"),
        node("SkipSimplifiedLayerNormalization", ["x", "out", "gamma"], ["output", "", "", "sum"], plugin.DOMAIN),
    ]
    cache: list[Any] = ["batch", GROUPS, "past", SIZE]
    infos = [
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", "steps", WIDTH]),
        helper.make_tensor_value_info("mask", onnx.TensorProto.INT64, ["batch", "total_steps"]),
        *(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, cache) for name in ("past_key", "past_value")),
    ]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("output", "sum", *caches)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(plugin.DOMAIN, 1)]
    return helper.make_model(helper.make_graph(nodes, "g", infos, outputs, stored), opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("backends", [["ccompiler"], []])
@pytest.mark.parametrize("rows", [0, 12])
def test_a_decoder(backends: list[str], rows: int) -> None:
    """A prompt and two steps, with a growing cache and with a cache of 12 rows: a single build runs all."""
    model = _decoder()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    executable = byoc_core.build(from_onnx(model), backends)
    outcomes = [op["outcome"] for op in executable.report_data["ops"]]
    assert ("host" not in outcomes) is bool(backends)
    assert ("ccompiler" in outcomes) is bool(backends)
    main = byoc_core.VirtualMachine(executable)["main"]
    cache = [np.zeros((2, GROUPS, rows, SIZE), np.float32)] * 2
    seen = 0
    for steps in (5, 1, 1):
        seen += steps
        x, mask = rng(seen).standard_normal((2, steps, WIDTH)).astype(np.float32), np.ones((2, seen), np.int64)
        feeds = {"x": x, "mask": mask, "past_key": cache[0], "past_value": cache[1]}
        expected = [np.asarray(array) for array in session.run(None, feeds)]
        check_results([np.asarray(array) for array in main(*feeds.values())], expected, error=2.0**-14)
        cache = expected[2:]
