"""``byoc inspect`` of ONNX models: tables, JSON, missing operators, plugins; and the JSON of artifacts."""

from __future__ import annotations

import json
from pathlib import Path

import byoc_core
import onnx
import pytest
from onnx import TensorProto, helper, parser

from core.tests.cli.conftest import RunByoc
from core.tests.plugin.conftest import Site

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]


def rows_of(text: str, title: str) -> list[list[str]]:
    """Return the rows of the table with a title."""
    lines = text.partition(f"\n{title}")[2].splitlines()[4:]
    end = next((index for index, line in enumerate(lines) if not line.strip()), len(lines))
    return [line.split() for line in lines[:end]]


def test_tables(byoc: RunByoc, model: Path) -> None:
    done = byoc("inspect", model, "--dim", "n=8", "--top", "1")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[:9] == [
        f"file         m.onnx ({model.stat().st_size:,} bytes)",
        "producer     unknown, IR version 9",
        "opsets       ai.onnx 17",
        "nodes        4, of 3 operators",
        "weights      2 tensors, 136 elements, 544 bytes",
        "FLOPs        2,240 (2.24k), for all sizes 280*n",
        "memory       1,824 bytes for a call, estimated",
        "counting     n = 8 (--dim NAME=SIZE for others)",
        "import       possible",
    ]
    assert rows_of(done.out, "Inputs and outputs") == [
        ["in", "x", "float32", "(n,", "16)"],
        ["in", "m", "float32", "(n,", "8)"],
        ["out", "y", "float32", "(n,", "8)"],
        ["out", "z", "float32", "(n,", "8)"],
    ]
    assert rows_of(done.out, "Operators of ONNX") == [
        ["Add", "2", "core"],
        ["MatMul", "1", "core"],
        ["Relu", "1", "core"],
    ]
    assert rows_of(done.out, "Weights by dtype") == [["float32", "2", "136", "544"]]
    assert rows_of(done.out, "Largest weights, 1 of 2") == [["w", "float32", "(16,", "8)", "512"]]
    assert rows_of(done.out, "Ops of byoc") == [
        ["matmul", "1", "2,048", "91.4%"],
        ["add", "2", "128", "5.7%"],
        ["nn.relu", "1", "64", "2.9%"],
    ]
    assert rows_of(done.out, "Nodes with the most FLOPs") == [["h", "MatMul", "2,048", "91.4%"]]
    assert rows_of(done.out, "Estimated bytes") == [["544", "0", "768", "512", "1,824"]]
    assert rows_of(done.out, "Dynamic sizes") == [["n", "input", "input", "`x`,", "axis", "0"]]


def test_flops_are_those_of_the_explanation(byoc: RunByoc, model: Path) -> None:
    inspected = json.loads(byoc("inspect", model, "--json").out)
    explained = json.loads(byoc("explain", model, "--json").out)
    assert inspected["work"]["total_flops"] == explained["total_flops"] == "280*n"
    assert inspected["work"]["sizes"] == explained["sizes"]


def test_json(byoc: RunByoc, model: Path) -> None:
    done = byoc("inspect", model, "--json", "--top", "1", "--dim", "n=8")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert list(found) == [
        *("schema", "kind", "file", "nbytes", "producer", "ir_version", "opsets", "num_nodes", "can_be_imported"),
        *("inputs", "outputs", "operators", "missing", "error", "weights", "work"),
    ]
    assert (found["schema"], found["kind"], found["can_be_imported"]) == (1, "model", True)
    assert found["inputs"][0] == {"name": "x", "dtype": "float32", "shape": ["n", 16]}
    assert found["operators"][0] == {"operator": "Add", "nodes": 2, "imported": "core", "origin": ""}
    assert found["weights"] == {
        "tensors": 2,
        "elements": 136,
        "nbytes": 544,
        "by_dtype": [{"dtype": "float32", "tensors": 2, "elements": 136, "nbytes": 544}],
        "largest": [{"name": "w", "dtype": "float32", "shape": [16, 8], "nbytes": 512}],
    }
    work = found["work"]
    assert (work["total_flops"], work["counted_flops"], work["counted_sizes"]) == ("280*n", 2240, {"n": 8})
    assert sum(row["share"] for row in work["ops"]) == pytest.approx(1)
    assert work["heaviest_nodes"] == [
        {"node": "h", "operator": "MatMul", "counted_flops": 2048, "share": pytest.approx(2048 / 2240)}
    ]
    assert work["memory"]["needed_nbytes"] == 1824


def save(text: str) -> Path:
    onnx.save(parser.parse_model(text), "other.onnx")
    return Path("other.onnx")


def test_a_model_with_missing_operators_is_shown(byoc: RunByoc) -> None:
    path = save("""<ir_version: 9, opset_import: ["": 17, "com.example": 1]> g (float[n] x) => (y) {
      a = Relu(x) b = com.example.Scale<factor = 2.0>(a) y = com.example.Scale(b)
    }""")
    done = byoc("inspect", path)
    assert (done.code, done.err) == (0, "")
    mark = "import       NOT POSSIBLE: 2 of 3 nodes have operators without importer: com.example.Scale (2x)"
    assert mark in done.out.splitlines()
    assert rows_of(done.out, "Operators of ONNX") == [["com.example.Scale", "2", "MISSING"], ["Relu", "1", "core"]]
    assert "FLOPs" not in done.out
    assert done.out.endswith(
        "To import `com.example.Scale`, run this code before `from_onnx`, with the outputs of the node in the last "
        "line:\nimport byoc_core\n\n@byoc_core.register_op('com.example', 'Scale')\ndef import_node(node):\n"
        "    node.ignore_attrs('factor')  # read each instead: node.attr_float(name)\n"
        "    return [node.value(0)] * node.num_outputs  # stands for the outputs: node.emit(op, node.value(0))\n"
    )
    found = json.loads(byoc("inspect", path, "--json").out)
    assert (found["can_be_imported"], found["missing"], found["work"]) == (False, ["com.example.Scale"], None)


def test_a_model_with_an_unsupported_variant_is_shown(byoc: RunByoc) -> None:
    path = save('<ir_version: 9, opset_import: ["": 17]> g (float[n] x) => (y) { y = Softmax<axis = 3>(x) }')
    done = byoc("inspect", path)
    assert (done.code, done.err) == (0, "")
    assert "import       NOT POSSIBLE: other.onnx, node `y` (Softmax): names no axis" in done.out
    assert rows_of(done.out, "Operators of ONNX") == [["Softmax", "1", "core"]]


def test_importer_plugins_are_named(byoc: RunByoc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path / "site")
    site.folder.mkdir()
    importers = """
        from byoc_core.frontend.hooks import OnnxImporters, hookimpl

        @hookimpl
        def byoc_onnx_importers():
            return OnnxImporters({("com.inspecting", "Twice"): lambda node: [node.emit("add", *2 * [node.value(0)])]})
    """
    site.install("byoc-toy", "[byoc.importers]\ntoy = inspected_importers\n", {"inspected_importers": importers})
    monkeypatch.syspath_prepend(str(site.folder))
    path = save('<ir_version: 9, opset_import: ["": 17, "com.inspecting": 1]> g (float[n] x) => (y) {'
                " y = com.inspecting.Twice(x) }")  # fmt: skip
    done = byoc("inspect", path)
    assert (done.code, done.err) == (0, "")
    assert rows_of(done.out, "Operators of ONNX") == [
        ["com.inspecting.Twice", "1", "plugin", "plugin", "`toy`", "(byoc-toy", "1.0)"]
    ]
    assert rows_of(done.out, "Ops of byoc") == [["add", "1", "1", "100.0%"]]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("m.onnx", "--program"), "--program: does not apply to the ONNX model `m.onnx`; expected an artifact"),
        (("m.onnx", "--members"), "--members: does not apply to the ONNX model `m.onnx`; expected an artifact"),
        (("m.onnx", "--dim", "k=3"), "size `k`: is no symbolic size of the model; expected n"),
        (("m.byoc", "--top", "3"), "--top: does not apply to the compiled model `m.byoc`"),
        (("m.byoc", "--max-nodes", "3"), "--max-nodes: does not apply to the compiled model `m.byoc`"),
        (("text.txt",), "text.txt: is not an ONNX model, or is truncated; got 243 bytes, rejected by protobuf"),
        (("empty",), "empty: is not an ONNX model: the file is empty"),
        (("nothing.onnx",), "nothing.onnx: No such file or directory"),
    ],
)
def test_errors(byoc: RunByoc, artifact: Path, arguments: tuple[str, ...], error: str) -> None:
    Path("text.txt").write_text("this is text, and no model\n" * 9)
    Path("empty").write_bytes(b"")
    done = byoc("inspect", *arguments)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"error: {error}")


def test_a_damaged_artifact_is_no_model(byoc: RunByoc, artifact: Path) -> None:
    artifact.write_bytes(artifact.read_bytes()[7:])
    done = byoc("inspect", artifact)
    assert (done.code, done.out) == (1, "")
    assert "artifact" in done.err
    assert "ONNX" not in done.err


def test_the_nodes_of_a_model_are_bounded(byoc: RunByoc) -> None:
    path = save('<ir_version: 9, opset_import: ["": 17]> g (float[n] x) => (y) { a = Exp(x) b = Exp(a) y = Exp(b) }')
    done = byoc("inspect", path, "--max-nodes", "2")
    assert done.code == 0
    assert "NOT POSSIBLE: other.onnx: functions, loops and sequences expand to too many nodes" in done.out


def test_a_model_without_nodes_and_weights(byoc: RunByoc) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [onnx.ValueInfoProto(name="y")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "other.onnx")
    done = byoc("inspect", "other.onnx")
    assert (done.code, done.err) == (0, "")
    assert "weights      0 tensors, 0 elements, 0 bytes" in done.out
    assert "Not counted: 2 values of unknown rank." in done.out


def test_artifacts_as_json(byoc: RunByoc, artifact: Path) -> None:
    done = byoc("inspect", artifact, "--json", "--dim", "n=8")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    inspected = byoc_core.inspect(artifact)
    assert (found["schema"], found["kind"], found["digest"]) == (1, "artifact", inspected.digest)
    main = found["functions"]["main"]
    assert main["inputs"][0] == {"name": "x", "dtype": "float32", "shape": ["n", 16]}
    need = inspected.memory["main"].at({"n": 8})
    assert main["memory"]["needed_nbytes"] == need.needed_nbytes
    assert found["sizes"] == {"n": 8}
    assert found["report"]["counted_sizes"] == {"n": 8}
    assert [module["runtime"] for module in found["modules"]] == ["graph"]
    assert found["members"] == dict(inspected.members)
