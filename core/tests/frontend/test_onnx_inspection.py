"""The inspection of ONNX models: operators and their import, weights, work, memory, and models without import."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.errors import FrontendError, OptionsError, UnsupportedOpsError
from byoc_core.frontend.onnx.inspection import ImportKind, ModelInspection, TensorRow, Weight, inspect_model
from onnx import TensorProto, helper, numpy_helper, parser

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def save(tmp_path: Path, model: onnx.ModelProto | str) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(model) if isinstance(model, str) else model, path)
    return path


def inspect(tmp_path: Path, model: onnx.ModelProto | str, **sizes: int) -> ModelInspection:
    return inspect_model(save(tmp_path, model), sizes)


def kinds(model: ModelInspection) -> dict[str, tuple[int, str, str]]:
    return {use.operator: (use.nodes, use.kind.value, use.origin) for use in model.operators}


CALLS = """<ir_version: 10, producer_name: "exporter", producer_version: "1.2", opset_import: ["": 18, "local": 3]>
g (float[batch, 8] x, bool c) => (y) {
 a = local.Twice(x)
 b = local.Twice(a)
 f = local.Sevenfold(b)
 y = If(c) <
  then_branch = t () => (float[batch, 8] p) { p = Celu(f) },
  else_branch = e () => (float[batch, 8] q) { h = Neg(f) q = local.Twice(h) }
 >
}
<domain: "local", opset_import: ["": 18]> Twice (q) => (r) { r = Add(q, q) }
<domain: "local", opset_import: ["": 18, "local": 3]> Sevenfold (q) => (r) {
 t = local.Twice(q)
 u = local.Twice(t)
 v = Add(t, u)
 r = Add(v, q)
}
"""


def test_the_nodes_of_functions_count_for_each_call(tmp_path: Path) -> None:
    found = inspect(tmp_path, CALLS, batch=2)
    function = "function", "function of the model"
    assert kinds(found) == {
        "Add": (7, "core", ""),
        "local.Twice": (5, *function),
        "Celu": (1, "core", ""),
        "If": (1, "core", ""),
        "Neg": (1, "core", ""),
        "local.Sevenfold": (1, *function),
    }
    assert [use.operator for use in found.operators][:2] == ["Add", "local.Twice"]
    assert (found.num_nodes, found.producer, found.ir_version) == (10, "exporter 1.2", 10)
    assert found.opsets == {"ai.onnx": 18, "local": 3}
    assert found.work is not None
    assert {row.op: row.count for row in found.work.ops} == {"add": 7, "if": 1, "negative": 1, "nn.celu": 1}
    paths = {"a/r": "Add", "f/t/r": "Add", "f/v": "Add", "y/p": "Celu", "y/h": "Neg", "y/q/r": "Add"}
    operators = {row.node: row.operator for row in found.work.nodes}
    assert {path: operators.get(path) for path in paths} == paths


def test_functions_of_the_standard_and_delegated_operators(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 20]> g (float[n, k] x, int64 k, string[m] t) => (y, u) {
     w = HannWindow(k)
     y = Mul(x, w)
     u = StringConcat(t, t)
    }"""
    found = inspect(tmp_path, text)
    assert kinds(found) == {
        "HannWindow": (1, "function", "function of the standard"),
        "Mul": (1, "core", ""),
        "StringConcat": (1, "delegated", "package onnx"),
    }
    assert found.error is None
    assert found.work is not None
    assert {row.node for row in found.work.nodes if row.operator == "HannWindow"}
    assert all(row.node == "y" or row.node.startswith("w/") for row in found.work.nodes)


def test_registered_operators(tmp_path: Path, look_again: Callable[[], None]) -> None:
    look_again()  # the registration ends with the test
    text = """<ir_version: 10, opset_import: ["": 18, "com.inspected": 1]> g (float[n] x) => (y) {
     y = com.inspected.Double(x)
    }"""
    before = inspect(tmp_path, text)
    byoc_core.register_op("com.inspected", "Double", lambda node: node.emit("add", node.value(0), node.value(0)))
    found = inspect(tmp_path, text)
    assert kinds(before) == {"com.inspected.Double": (1, "missing", "")}
    assert kinds(found) == {"com.inspected.Double": (1, "registered", "`register_op` of `com.inspected.Double`")}
    assert found.work is not None
    assert str(found.work.total_flops) == "n"


def test_missing_operators_come_first_with_the_error(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 18, "com.example": 1]> g (float[n, -1] x) => (y, float[3] z) {
     a = Relu(x) b = Relu(a) y = com.example.Scale <factor = 2.0> (b) z = com.example.Sum(y)
    }"""
    found = inspect(tmp_path, text, nonsense=3)
    assert [(use.operator, use.kind) for use in found.operators] == [
        ("com.example.Scale", ImportKind.MISSING),
        ("com.example.Sum", ImportKind.MISSING),
        ("Relu", ImportKind.CORE),
    ]
    assert found.missing == found.operators[:2]
    assert isinstance(found.error, UnsupportedOpsError)
    assert found.work is None
    assert found.inputs == (TensorRow("x", "float32", ("n", "?")),)
    assert found.outputs == (TensorRow("y", "", None), TensorRow("z", "float32", (3,)))
    data = json.loads(json.dumps(found.to_data(10)))
    assert (data["can_be_imported"], data["missing"]) == (False, ["com.example.Scale", "com.example.Sum"])
    assert "@byoc_core.register_op('com.example', 'Scale')" in data["error"]["detail"]


def test_an_unsupported_variant_is_an_error_of_the_import(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 18]> g (float[n, 4] x) => (y) { y = Softmax<axis = 7>(x) }'
    found = inspect(tmp_path, text)
    assert kinds(found) == {"Softmax": (1, "core", "")}
    assert isinstance(found.error, FrontendError)
    assert "names no axis" in str(found.error)
    assert (found.missing, found.work) == ((), None)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_text("this is text, and no model\n" * 9)
    with pytest.raises(FrontendError, match="is not an ONNX model, or is truncated; got 243 bytes"):
        inspect_model(path)


def test_stored_tensors_are_listed_without_data(tmp_path: Path) -> None:
    def tensor(name: str, element_type: int, *dims: int) -> TensorProto:
        return TensorProto(name=name, data_type=element_type, dims=dims)

    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["d"], value=tensor("", TensorProto.INT4, 7))], "b", [], []
    )
    branch.initializer.append(tensor("inner", TensorProto.BFLOAT16, 5))
    nodes = [
        helper.make_node("If", ["c"], ["y"], domain="com.absent", then_branch=branch),
        helper.make_node("Constant", [], ["k"], value=tensor("", TensorProto.INT64, 2)),
        helper.make_node("Constant", [], ["number"], value_float=3.0),
    ]
    weights = [
        tensor("w", TensorProto.FLOAT, 3, 4),
        tensor("flags", TensorProto.BOOL, 100),
        tensor("empty", TensorProto.DOUBLE, 0),
        tensor("complex", TensorProto.COMPLEX64, 2),
        numpy_helper.from_array(np.array(["ab", "cde"], object), "text"),
    ]
    y = onnx.ValueInfoProto(name="y")
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.absent", 1)]
    found = inspect(tmp_path, helper.make_model(helper.make_graph(nodes, "g", [c], [y], weights), opset_imports=opsets))
    assert found.weights == (
        Weight("flags", "bool", (100,), 100),
        Weight("w", "float32", (3, 4), 48),
        Weight("complex", "complex64", (2,), 16),
        Weight("k", "int64", (2,), 16),
        Weight("inner", "bfloat16", (5,), 10),
        Weight("text", "string", (2,), 5),
        Weight("d", "int4", (7,), 4),
        Weight("empty", "float64", (0,), 0),
    )
    assert found.weights_by_dtype()["float32"] == (1, 12, 48)
    assert list(found.weights_by_dtype())[:2] == ["bool", "float32"]
    assert [row["name"] for row in found.to_data(2)["weights"]["largest"]] == ["flags", "w"]


def test_large_weights_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """External data of 4 GiB, a hole in the file, is mapped only."""
    nbytes = 4 << 30
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(nbytes)
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 15, 1 << 15])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1 << 15])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="y")], [weight])

    def refuse(array: Any) -> str:
        assert array.nbytes < 1 << 16
        return str(id(array))

    monkeypatch.setattr("byoc_core.ir.constants.digest_of", refuse)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    found = inspect_model(tmp_path / "m.onnx", {"n": 2})
    assert found.work is not None
    assert found.work.memory.constants_nbytes == nbytes
    assert found.work.counted_flops == 2 * 2 << 30
    (tmp_path / "w.bin").unlink()
    lost = inspect_model(tmp_path / "m.onnx")
    assert lost.error is not None
    assert "external data `w.bin` cannot be read" in str(lost.error)
    assert lost.weights == found.weights


def test_ops_on_constants_alone_are_left_out(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("Exp", ["t"], ["e"]),
        helper.make_node("MatMul", ["x", "e"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="y")], [weight])
    found = inspect(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert found.work is not None
    assert [row.op for row in found.work.ops] == ["matmul"]
    assert found.work.num_constant_ops == 2
    assert (found.work.memory.constants_nbytes, found.work.memory.arena_nbytes) == (64 * 64 * 4, 0)


def test_sizes_are_counted(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 18]> g (float[n, 4] x) => (y, z) { y = Exp(x) z = NonZero(y) }'
    found = inspect(tmp_path, text, n=8, nonzero=5)
    assert found.work is not None
    assert found.work.counted_sizes == {"n": 8, "nonzero": 5}
    assert (str(found.work.total_flops), found.work.counted_flops) == ("4*n", 32)
    memory = found.work.memory
    assert (memory.input_nbytes, memory.output_nbytes, memory.arena_nbytes) == (128, 128 + 2 * 5 * 8, 0)
    assert memory.needed_nbytes == memory.constants_nbytes + 128 + 208
    assert found.inputs == (TensorRow("x", "float32", (byoc_core.dims.symbol("n"), 4)),)
    assert [(origin.size, origin.kind.value) for origin in found.work.sizes] == [("n", "input"), ("nonzero", "unknown")]
    with pytest.raises(OptionsError, match=r"size `m`: is no symbolic size of the model; expected n, nonzero"):
        inspect(tmp_path, text, m=3)


def test_models_of_old_operator_sets_keep_the_written_version(tmp_path: Path) -> None:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xyz"]
    graph = helper.make_graph([helper.make_node("Sub", ["x", "y"], ["z"])], "g", infos[:2], infos[2:])
    found = inspect(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=3))
    assert (found.opsets, found.ir_version) == ({"ai.onnx": 6}, 3)
    assert found.error is None


@pytest.mark.parametrize(
    ("name", "gflops"), [("resnet50", 8.2), ("vgg19", 39.3), ("squeezenet", 0.7), ("densenet121", 5.7)]
)
def test_networks(name: str, gflops: float) -> None:
    """The multiply-adds of the convolutions of published networks, twice; the FLOPs of ``byoc explain``, save folding.

    Source: the publications give 4.1, 19.6, 0.35 and 2.9 billion multiply-adds.
    """
    path = LIGHT / f"light_{name}.onnx"
    found = inspect_model(path, num_heaviest=3)
    assert found.work is not None
    assert found.work.counted_flops == pytest.approx(gflops * 1e9, rel=0.05)
    assert len(found.work.nodes) == 3
    assert {row.operator for row in found.work.nodes} <= {"Conv", "Gemm"}
    explained = byoc_core.explain(byoc_core.from_onnx(path), []).report_data["total_flops"]
    assert explained == pytest.approx(found.work.counted_flops, rel=0.03)
    arena = byoc_core.build(byoc_core.from_onnx(path), []).arena_nbytes["main"]
    assert isinstance(arena, int)
    assert 0.5 * arena < found.work.memory.arena_nbytes < 1.5 * arena
