"""Tensors of strings, and operators left to the package ``onnx``, against ONNX Runtime and ONNX's test cases."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
import onnxruntime
import pytest
from byoc_core import onnx_backend
from byoc_core import script as R
from byoc_core.errors import CallError, ExecutionError, FrontendError, UnsupportedOpsError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.verifier import verify
from byoc_core.kernels.delegated import DELEGATED, node_text
from byoc_core.ops import default_ops
from byoc_core.runtime.strings import pack_strings, unpack_strings
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

ORACLES = {"ragged_take": "numpy.split"}

WORDS = np.array([["näh", "", "b c"], ["日本", "x", "longer text"]], object)


def _model(graph: str, opset: int = 20) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, "ai.onnx.ml" : 4]> {graph}')


def _check(model: onnx.ModelProto, feeds: dict[str, Any]) -> byoc_core.IRModule:
    module = from_onnx(model)
    verify(module)
    assert R.parse(str(module), constants=module.constants) == module
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = onnx_backend.prepare(model, backends=[]).run(feeds)
    for result, expected in zip(results, session.run(None, feeds), strict=True):
        expected = np.asarray(expected)
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(result, expected)
    return module


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("y = Identity(x)", "string[a, b] y"),
        ("y = Transpose(x)", "string[a, b] y"),
        ("y = Concat<axis = 1>(x, x)", "string[a, b] y"),
        ("y = Concat<axis = 0>(x, k, x)", "string[a, b] y"),
        ("y = Gather<axis = 1>(x, i)", "string[a, b] y"),
        ("y = Reshape(x, s)", "string[a] y"),
        ("z = Unsqueeze(x, i) y = Tile(z, r)", "string[a, b, c] y"),
        ("y = Shape(x)", "int64[a] y"),
        ("y = Size(x)", "int64 y"),
        ("y = Slice(x, one, two, one)", "string[a, b] y"),
        ("y, w = Split<axis = 0, num_outputs = 2>(x)", "string[a, b] y, string[c, d] w"),
        ("n = Equal(x, x) y = Where(n, x, k)", "string[a, b] y"),
        ("n = Equal(x, k) y = Cast<to = 6>(n)", "int32[a, b] y"),
    ],
)
@pytest.mark.parametrize("sizes", ["2, 3", "n, m"])
def test_elements_move(body: str, result: str, sizes: str) -> None:
    weights = "<int64[1] i = {1}, int64[1] s = {-1}, int64[3] r = {1, 2, 1}, int64[1] one = {1}, int64[1] two = {2}>"
    model = _model(f"g (string[{sizes}] x, string[1, 3] k) => ({result}) {weights} {{ {body} }}")
    used = {name for node in model.graph.node for name in node.input}
    feeds = {"x": WORDS, "k": np.array([["b c", "", "q"]], object)}
    for value in list(model.graph.input):
        if value.name not in used:
            model.graph.input.remove(value)
    _check(model, {name: array for name, array in feeds.items() if name in used})


NUMBERED = np.array(
    ["", "a", "bé", "日本", "d e", "long text", "g", "h", "ii", "j", "k", "l", "m", "n", "o", "p"], object
)


@pytest.mark.parametrize(
    ("graph", "shapes", "opset"),
    [
        ("g (T[1, 4, 2, 2] x) => (T[a, b, c, d] y) { y = DepthToSpace<blocksize = 2>(x) }", {"x": (1, 4, 2, 2)}, 20),
        ("g (T[1, 1, 4, 4] x) => (T[a, b, c, d] y) { y = SpaceToDepth<blocksize = 2>(x) }", {"x": (1, 1, 4, 4)}, 20),
        (
            (
                "g (T[n, 4] x) => (T[n, 4] y) <int64[2] k = {2, 4}> "
                "{ y = ReverseSequence<batch_axis = 0, time_axis = 1>(x, k) }"
            ),
            {"x": (2, 4)},
            20,
        ),
        ("g (T[2] x) => (T[a, b] y) <int64[3] i = {1, 0, 5}, int64 d = {3}> { y = OneHot(i, d, x) }", {"x": (2,)}, 20),
        (
            "g (T[3] x, T[2] k) => (T[3] y) <int64[2] i = {2, 0}> { y = Scatter(x, i, k) }",
            {"x": (3,), "k": (2,)},
            10,
        ),
        (
            "g (T[2, 3] x, T[2, 1] k) => (T[2, 3] y) <int64[2] i = {2, 0}> { y = TensorScatter<axis = 1>(x, k, i) }",
            {"x": (2, 3), "k": (2, 1)},
            24,
        ),
        ("g (T[n, 3] x) => (T[a, b] y) <int64[4] p = {1, 0, 0, 2}> { y = Pad(x, p) }", {"x": (2, 3)}, 20),
        (
            "g (T[n, 3] x, T k) => (T[a, b] y) <int64[4] p = {1, 0, 0, 2}> { y = Pad(x, p, k) }",
            {"x": (2, 3), "k": ()},
            20,
        ),
        (
            'g (T[n, 3] x) => (T[a, b] y) <int64[4] p = {1, 0, 0, 2}> { y = Pad<mode = "edge">(x, p) }',
            {"x": (2, 3)},
            20,
        ),
        ("g (T[3, 3] x) => (T[a, b] y) <int64[2] s = {5, 1}> { y = CenterCropPad(x, s) }", {"x": (3, 3)}, 20),
        ("g (T[3, 3] x) => (T[a, b] y) { y = Trilu<upper = 0>(x) }", {"x": (3, 3)}, 20),
        ("g (T[2, 3] x) => (T[a, b] y) <int64[2] s = {4, 2}> { y = Resize(x, , , s) }", {"x": (2, 3)}, 20),
        ("g (T[2, 3] x) => (T[a, b] y) <float[2] s = {2, 1}> { y = Upsample(x, s) }", {"x": (2, 3)}, 9),
    ],
)
def test_strings_move_like_their_numbers(graph: str, shapes: dict[str, tuple[int, ...]], opset: int) -> None:
    """Zero is the number of the empty string."""
    numbers = {
        name: np.arange(index, index + int(np.prod(shape)))[::-1].reshape(shape)
        for index, (name, shape) in enumerate(shapes.items())
    }
    numbered, numbered_opset = _typed(graph, "int64"), opset
    if "Scatter(" in graph:  # the former name of ScatterElements, unknown to the evaluator
        numbered, numbered_opset = numbered.replace("Scatter(", "ScatterElements("), 11
    places: Any = ReferenceEvaluator(_model(numbered, numbered_opset)).run(None, numbers)[0]  # type: ignore[index]
    (found,) = onnx_backend.prepare(_model(_typed(graph, "string"), opset), backends=[]).run(
        {name: NUMBERED[array] if array.ndim else np.array(NUMBERED[array], object) for name, array in numbers.items()}
    )
    assert found.tolist() == NUMBERED[places].tolist()


def _typed(graph: str, dtype: str) -> str:
    return re.sub(r"\bT\b", dtype, graph)


ROWS = np.array([["b", "é"], ["", "z"], ["b", "é"], ["a", "日本"]], object)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("sizes", ["4, 2", "n, m"])
def test_unique_slices(axis: int, is_sorted: int, sizes: str) -> None:
    graph = f"""g (string[{sizes}] x) => (string[a, b] y, int64[c] i, int64[d] j, int64[e] k) {{
        y, i, j, k = Unique<axis = {axis}, sorted = {is_sorted}>(x) }}"""
    rows = ROWS if axis == 0 else ROWS.reshape(2, 4)
    if sizes == "4, 2" and axis != 0:
        rows = np.array([["b", "b"], ["", ""], ["b", "b"], ["a", "a"]], object)
    _check(_model(graph), {"x": rows})


def test_random_numbers_like_strings() -> None:
    """Of the strings, only the shape is read."""
    graph = "g (string[n, 2] x) => (float[n, 2] y) { y = RandomUniformLike<dtype = 1, low = 3.0, high = 4.0>(x) }"
    (found,) = onnx_backend.prepare(_model(graph), backends=[]).run([WORDS[:, :2]])
    assert found.shape == (2, 2)
    assert found.dtype == np.float32
    assert ((found >= 3) & (found <= 4)).all()


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        ("g (string[n] x, int64[n] k) => (string[m] y) { y = Concat<axis = 0>(x, k) }", "node `y` (Concat): needs `k`"),
        (
            "g (bool[n] c, string[n] x, float[n] k) => (string[n] y) { y = Where(c, k, x) }",
            "node `y` (Where): needs `k`",
        ),
    ],
)
def test_strings_and_numbers_are_not_mixed(graph: str, text: str) -> None:
    with pytest.raises(FrontendError) as caught:
        from_onnx(_model(graph))
    assert str(caught.value) == f"ONNX model, {text} as a tensor of strings"


@pytest.mark.parametrize("condition", [True, False])
def test_strings_pass_through_branches_and_rounds(condition: bool) -> None:
    graph = """g (bool c, string[n] x, string[m] k) => (string[a] y, string[b] z) { y = If(c) <
        then_branch = t () => (u) { u = Concat<axis = 0>(x, k) }, else_branch = e () => (v) { v = Identity(k) }>
        z = Concat<axis = 0>(y, x) }"""
    feeds = {"c": np.array(condition), "x": WORDS[0], "k": np.array(["only"], object)}
    _check(_model(graph), feeds)


def test_constant_strings() -> None:
    words = numpy_helper.from_array(np.array(["ä", "b"], object), "w")
    model = _model("""g (string[2] x) => (string[2] y, string[2] z, string[2] u) {
        y = StringConcat(x, w) a = Constant<value_strings = ["p", "q"]>() z = StringConcat(x, a)
        b = Constant<value_string = "s">() u = StringConcat(x, b) }""")
    model.graph.initializer.append(words)
    _check(model, {"x": np.array(["1", "2"], object)})


def test_numbers_become_strings_and_back() -> None:
    model = _model(
        "g (int64[3] x, string[3] t) => (string[3] s, float[3] f) { s = Cast<to = 8>(x) f = Cast<to = 1>(t) }"
    )
    _check(model, {"x": np.array([1, -20, 300]), "t": np.array(["1.5", "-2", "3e4"], object)})


def test_a_text_pipeline(tmp_path: Path) -> None:
    """Words are normalised, split and counted; a linear layer scores the counts; the parts share an artifact."""
    graph = """g (string[n] x) => (float[p, 2] y) <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
        t = StringNormalizer<case_change_action = "LOWER", is_case_sensitive = 1>(x)
        v = TfIdfVectorizer<max_gram_length = 1, min_gram_length = 1, max_skip_count = 0, mode = "TF",
            ngram_counts = [0], ngram_indexes = [0, 1, 2, 3], pool_strings = ["a", "b", "c", "d"]>(t)
        r = Unsqueeze(v, zero) y = MatMul(r, w) }"""
    model = _model(graph.replace("w = {1", "w = {1").replace("> {", ", int64[1] zero = {0}> {", 1))
    feeds = {"x": np.array(["B", "a", "A", "zz", "d"], object)}
    # ONNX Runtime normalises strings only where the locale en_US.UTF-8 is installed.
    expected: Any = ReferenceEvaluator(model).run(None, feeds)[0]  # type: ignore[index]
    np.testing.assert_array_equal(onnx_backend.prepare(model, backends=[]).run(feeds)[0], expected)
    executable = byoc_core.build(from_onnx(model), [])
    assert "delegated" not in executable.report()
    executable.save(tmp_path / "text.byoc")
    data, lengths = pack_strings(feeds["x"])
    script = f"""
import sys
sys.modules["onnx"] = None
import numpy as np, byoc_core
machine = byoc_core.VirtualMachine(byoc_core.load({str(tmp_path / "text.byoc")!r}))
y = machine.run("main", {{"x.bytes": np.array({data.tolist()}, "uint8"), "x.lengths": np.array({lengths.tolist()})}})
assert y.tolist() == {expected.tolist()}, y
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    node = node_text(b"another node")
    with pytest.raises(ExecutionError) as caught:
        DELEGATED(np.zeros(1), node=node, opset=20, ml_opset=4, inputs="t", outputs="t")
    assert str(caught.value) == (
        "a delegated op: is computed by the package `onnx`, not installed here. pip install 'byoc-core[onnx]'."
    )


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ("%%%", "a delegated op: has an attribute `node` that is no node of ONNX"),
        (node_text(b"\xff\xff"), "a delegated op: has an attribute `node` that is no node of ONNX"),
        (
            node_text(helper.make_node("Foo", ["x"], ["y"], domain="com.x").SerializeToString()),
            "a delegated op: is of a domain that is not evaluated; got com.x",
        ),
    ],
)
def test_damaged_nodes_are_refused(node: str, text: str) -> None:
    with pytest.raises(ExecutionError) as caught:
        DELEGATED(np.zeros(1), node=node, opset=20, ml_opset=4, inputs="t", outputs="t")
    assert str(caught.value) == text


def test_an_error_of_the_package_names_the_operator() -> None:
    prepared = onnx_backend.prepare(_model("g (string[2] x) => (float[2] y) { y = Cast<to = 1>(x) }"), backends=[])
    with pytest.raises(ExecutionError, match="op `Cast` of ONNX: the package `onnx` failed: ValueError"):
        prepared.run([np.array(["1", "word"], object)])


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (
            "g (string[n] x) => (float[n] y) { y = Neg(x) }",
            "ONNX model, node `y` (Neg): needs `x` as a tensor of numbers; got a tensor of strings",
        ),
        (
            (
                "g (bool c, string[n] x, float[n] k) => (float[n] y) { y = If(c) <then_branch = t () => (u) "
                "{ u = Identity(x) }, else_branch = e () => (v) { v = Identity(k) }> }"
            ),
            "ONNX model, node `y` (If): has output `y` as strings in one place, and as another kind of value",
        ),
    ],
)
def test_what_is_refused(graph: str, text: str) -> None:
    with pytest.raises(FrontendError) as caught:
        from_onnx(_model(graph))
    assert str(caught.value).startswith(text)


def test_an_operator_of_a_later_set() -> None:
    with pytest.raises(UnsupportedOpsError, match=r"got StringConcat \(1x\)"):
        from_onnx(_model("g (string[n] x) => (string[n] y) { y = StringConcat(x, x) }", 7))


def test_what_a_model_takes_and_gives() -> None:
    main = from_onnx(_model("g (string[n, 3] x) => (string[a, b] y) { y = Transpose(x) }"))["main"]
    assert main.input_names == ("x.bytes", "x.lengths")
    assert main.output_names == ("y.bytes", "y.lengths")
    assert [str(param.type) for param in main.params] == [
        'R.Tensor(("x_bytes",), "uint8")',
        'R.Tensor(("n", 3), "int64")',
    ]


@given(st.lists(st.text(max_size=5), max_size=6), st.data())
def test_packing_and_gathering_lose_nothing(texts: list[str], data: st.DataObject) -> None:
    bytes_, lengths = pack_strings(np.array(texts, object))
    assert unpack_strings(bytes_, lengths).tolist() == texts
    indices: list[int] = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=5)) if texts else []
    kernel = default_ops()["ragged_take"].kernel
    assert kernel is not None
    found: Any = kernel(bytes_, lengths, np.array(indices, np.int64))
    assert unpack_strings(found, lengths[np.array(indices, np.int64)]).tolist() == [texts[i] for i in indices]


@pytest.mark.parametrize(
    ("lengths", "indices", "text"),
    [
        ([2, 2], [0], "has rows beyond the elements"),
        ([-1], [0], "has rows beyond the elements"),
        ([3], [1], "has an index outside the rows"),
        ([3], [-1], "has an index outside"),
    ],
)
def test_rows_that_do_not_fit(lengths: list[int], indices: list[int], text: str) -> None:
    kernel = default_ops()["ragged_take"].kernel
    assert kernel is not None
    with pytest.raises(ExecutionError, match=text):
        kernel(np.zeros(3), np.array(lengths), np.array(indices))


@pytest.mark.parametrize("lengths", [[1], [-1, 4], [4]])
def test_lengths_that_do_not_fit(lengths: list[int]) -> None:
    with pytest.raises(CallError, match="have lengths that do not fit the bytes"):
        unpack_strings(np.zeros(3, np.uint8), np.array(lengths))


def test_every_registry_knows_delegated_ops_without_listing_them() -> None:
    assert "onnx.StringConcat" in default_ops()
    assert "onnx.StringConcat" not in list(default_ops())
    assert default_ops()["onnx.StringConcat"] is default_ops().find("onnx.StringConcat")
