"""Sequences of strings and optional strings, against the package ``onnx``, ONNX Runtime and lists.

The evaluator of the package inserts at the end of a list one place too early, runs no round of a loop without a
condition, and has no slices along other axes; there ONNX Runtime or a list is the oracle.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
import onnxruntime
import pytest
from byoc_core import onnx_backend
from byoc_core import script as R
from byoc_core.errors import ByocError, CallError, FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.verifier import verify
from byoc_core.runtime.sequences import pack_string_sequence, unpack_string_sequence
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator


def _texts(*shape: int, word: str = "wörd") -> Any:
    """Return different strings: the first empty, the others of different numbers of bytes."""
    count = int(np.prod(shape))
    return np.array([f"{word * (index % 3)}{index or ''}" for index in range(count)], object).reshape(shape)


TENSORS = [_texts(2, 3), _texts(1, 3, word="日本"), _texts(4, 3, word="")]


def _model(graph: str, opset: int = 20) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {graph}')


def _same(result: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(result, list)
        assert len(result) == len(expected)
        for item, other in zip(result, expected, strict=True):
            _same(item, other)
    elif expected is None:
        assert result is None
    else:
        array = np.asarray(expected)
        assert result.shape == array.shape
        assert (result.dtype == object) == (array.dtype.kind in "OU")
        assert result.tolist() == array.tolist()


def _by_reference(model: onnx.ModelProto, feeds: dict[str, Any]) -> Sequence[Any]:
    return list(ReferenceEvaluator(model).run(None, feeds))


def _by_onnxruntime(model: onnx.ModelProto, feeds: dict[str, Any]) -> Sequence[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def _check(
    graph: str | onnx.ModelProto,
    feeds: dict[str, Any],
    oracle: Callable[[onnx.ModelProto, dict[str, Any]], Sequence[Any]] = _by_reference,
) -> byoc_core.IRModule:
    """Check the results of a model on the host, its IR, and its printed form."""
    model = _model(graph) if isinstance(graph, str) else graph
    module = from_onnx(model)
    verify(module)
    assert R.parse(str(module), constants=module.constants) == module
    results = onnx_backend.prepare(model, backends=[]).run(feeds)
    for result, expected in zip(results, oracle(model, feeds), strict=True):
        _same(result, expected)
    return module


@pytest.mark.parametrize("position", [0, 2, 3, -1, -3])
def test_a_tensor_is_inserted(position: int) -> None:
    graph = """g (seq(string[m, n]) s, string[p, q] x, int64 i) => (seq(string[a, b]) y, seq(string[a, b]) z, int64 n) {
        y = SequenceInsert(s, x, i) z = SequenceInsert(s, x) n = SequenceLength(y) }"""
    _check(graph, {"s": TENSORS, "x": _texts(5, 3, word="new"), "i": np.array(position)}, _by_onnxruntime)


@pytest.mark.parametrize("position", [0, 2, -1, -3])
def test_a_tensor_is_read_and_erased(position: int) -> None:
    graph = """g (seq(string[m, n]) s, int64 i) => (string[a, b] x, seq(string[a, b]) y, seq(string[a, b]) z) {
        x = SequenceAt(s, i) y = SequenceErase(s, i) z = SequenceErase(s) }"""
    _check(graph, {"s": TENSORS, "i": np.array(position)})


@pytest.mark.parametrize("position", [3, -4])
@pytest.mark.parametrize("op", ["SequenceAt", "SequenceErase"])
def test_a_position_out_of_range_is_an_error_of_the_call(op: str, position: int) -> None:
    result = "string[a, b] y" if op == "SequenceAt" else "seq(string[a, b]) y"
    prepared = onnx_backend.prepare(
        _model(f"g (seq(string[m, n]) s, int64 i) => ({result}) {{ y = {op}(s, i) }}"), backends=[]
    )
    with pytest.raises(ByocError, match="an index lies outside axis 0"):
        prepared.run({"s": TENSORS, "i": np.array(position)})


@pytest.mark.parametrize("sizes", ["2, 3", "n, m"])
def test_lists_known_during_import_leave_no_ops_of_sequences(sizes: str) -> None:
    graph = f"""g (string[{sizes}] x, string[{sizes}] k) => (string[{sizes}] y, string[{sizes}] z, int64 n)
        <int64 one = {{1}}> {{
        e = SequenceEmpty<dtype = 8>() a = SequenceInsert(e, x) b = SequenceInsert(a, k) s = SequenceInsert(b, x, one)
        t = SequenceErase(s, one) y = SequenceAt(t, one) z = SequenceAt(s, one) n = SequenceLength(s) }}"""
    module = _check(graph, {"x": _texts(2, 3), "k": _texts(2, 3, word="k")})
    assert module["main"].bindings == ()


def test_constructed_sequences_are_results() -> None:
    graph = """g (string[n] x, string[m] k) => (seq(string[a]) y, seq(string[b]) z, seq(string[c]) w)
        <int64[2] i = {1, 0}> {
        g = Gather(x, i) y = SequenceConstruct(x, g, k) z = SequenceEmpty<dtype = 8>() w = SequenceConstruct(k) }"""
    _check(graph, {"x": _texts(3), "k": _texts(2, word="k")})


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("is_listed", [True, False])
def test_tensors_are_joined(axis: int, *, is_listed: bool) -> None:
    shapes = [(1, 3), (2, 3), (0, 3)] if axis == 0 else [(2, 1), (2, 3), (2, 0)]
    feeds: dict[str, Any] = {f"x{i}": _texts(*shape, word="abc"[i]) for i, shape in enumerate(shapes)}
    if is_listed:
        head = "g (string[a, b] x0, string[c, d] x1, string[e, f] x2) => (string[u, v] y) {"
        head += " s = SequenceConstruct(x0, x1, x2)"
    else:
        head, feeds = "g (seq(string[m, n]) s) => (string[u, v] y) {", {"s": list(feeds.values())}
    _check(f"{head} y = ConcatFromSequence<axis = {axis}>(s) }}", feeds)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("is_listed", [True, False])
def test_tensors_are_stacked(axis: int, *, is_listed: bool) -> None:
    tensors = [_texts(2, 3, word=word) for word in ("é", "", "long text ")]
    feeds: dict[str, Any] = {"s": tensors}
    head = "g (seq(string[m, n]) s) => (string[u, v, w] y) {"
    if is_listed:
        feeds = {f"x{index}": tensor for index, tensor in enumerate(tensors)}
        head = "g (string[a, b] x0, string[a, b] x1, string[a, b] x2) => (string[u, v, w] y) {"
        head += " s = SequenceConstruct(x0, x1, x2)"
    _check(f"{head} y = ConcatFromSequence<axis = {axis}, new_axis = 1>(s) }}", feeds)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("sizes", ["4, 4", "a, b"])
def test_a_tensor_is_split(axis: int, sizes: str) -> None:
    x = _texts(4, 4)
    head = f"g (string[{sizes}] x, int64[3] s) => (seq(string[d, e]) y)"
    _check(f"{head} {{ y = SplitToSequence<axis = {axis}>(x, s) }}", {"x": x, "s": np.array([1, 0, 3])})
    _check(
        f"g (string[{sizes}] x) => (seq(string[d, e]) y) <int64[2] s = {{3, 1}}> "
        f"{{ y = SplitToSequence<axis = {axis}>(x, s) }}",
        {"x": x},
    )
    for keeps, result in ((1, "seq(string[d, e]) y"), (0, "seq(string[d]) y")):
        graph = f"g (string[{sizes}] x) => ({result}) {{ y = SplitToSequence<axis = {axis}, keepdims = {keeps}>(x) }}"
        found = onnx_backend.prepare(_model(graph), backends=[]).run([x])[0]
        _same(found, [part if keeps else part.squeeze(axis) for part in np.split(x, 4, axis)])


@pytest.mark.parametrize("size", [1, 3, 4, 9])
def test_a_tensor_is_split_into_equal_parts(size: int) -> None:
    graph = "g (string[n, 2] x, int64 s) => (seq(string[d, e]) y) { y = SplitToSequence(x, s) }"
    x = _texts(4, 2)
    found = onnx_backend.prepare(_model(graph), backends=[]).run([x, np.array(size)])[0]
    _same(found, np.split(x, range(size, 4, size)))


def test_parts_of_nothing_are_an_empty_list_of_strings() -> None:
    """Also where the list becomes empty by erasure: the dtype stays."""
    graph = """g (string[0, 2] x, string[n] k, int64 i) => (seq(string[a, b]) y, seq(string[c]) z, seq(string[c]) w) {
        y = SplitToSequence(x) s = SequenceConstruct(k) z = SequenceErase(s) w = SequenceErase(s, i) }"""
    feeds = {"x": _texts(0, 2), "k": _texts(3), "i": np.array(0)}
    module = from_onnx(_model(graph))
    assert [name for name in module["main"].output_names if name.startswith("z.")] == [
        "z.elements.bytes",
        "z.elements.lengths",
        "z.shapes",
    ]
    assert list(onnx_backend.prepare(_model(graph), backends=[]).run(feeds)) == [[], [], []]


@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_the_rounds_of_a_loop_gather_a_list(rounds: int) -> None:
    graph = """g (string[n, 3] x, int64 m) => (seq(string[p, q]) s, int64 n) { e = SequenceEmpty<dtype = 8>()
        s = Loop(m, , e) <body = b (int64 i, bool t, seq(string[u, v]) v_in) => (bool c_out, seq(string[u, v]) v_out) {
            c_out = Identity(t) f = Cast<to = 8>(i) z = StringConcat(x, f) v_out = SequenceInsert(v_in, z) }>
        n = SequenceLength(s) }"""
    _check(graph, {"x": _texts(2, 3), "m": np.array(rounds)}, _by_onnxruntime)


def test_a_list_shrinks_in_a_loop() -> None:
    graph = """g (seq(string[m]) s, int64 k) => (seq(string[n]) y, string[a] last) {
        e = Constant<value_strings = ["-"]>()
        y, last = Loop(k, , s, e) <body = b (int64 i, bool t, seq(string[u]) v_in, string[v] w_in)
            => (bool c_out, seq(string[u]) v_out, string[v] w_out) {
            c_out = Identity(t) w_out = SequenceAt(v_in, i) v_out = SequenceErase(v_in, i) }> }"""
    tensors = [_texts(3), _texts(1, word="日"), _texts(0), _texts(2, word="ab")]
    _check(graph, {"s": tensors, "k": np.array(2)}, _by_onnxruntime)


@pytest.mark.parametrize("condition", [True, False])
def test_lists_from_branches(condition: bool) -> None:
    graph = """g (bool c, string[n] x, seq(string[m]) s) => (seq(string[p]) y, seq(string[q]) z) { y, z = If(c) <
        then_branch = t () => (seq(string[p]) a, seq(string[q]) d) { a = SequenceConstruct(x, x) d = Identity(s) },
        else_branch = e () => (seq(string[p]) b, seq(string[q]) f) {
            b = SequenceEmpty<dtype = 8>() f = SequenceInsert(s, x) }> }"""
    _check(graph, {"c": np.array(condition), "x": _texts(3), "s": [_texts(2), _texts(4, word="")]})


def test_a_list_of_branches_is_read_later() -> None:
    """The rank of the tensors is known after the branches, though a branch has an empty list."""
    graph = """g (bool c, string[n] x) => (string[p] y) { s = If(c) <
        then_branch = t () => (seq(string[p]) a) { a = SequenceConstruct(x, x) },
        else_branch = e () => (seq(string[p]) b) { e0 = SequenceEmpty<dtype = 8>() b = SequenceInsert(e0, x) }>
        y = ConcatFromSequence<axis = 0>(s) }"""
    for condition in (True, False):
        _check(graph, {"c": np.array(condition), "x": _texts(3)})


@pytest.mark.parametrize("kind", ["seq(string[m])", "listed"])
def test_a_graph_is_mapped_over_lists(kind: str) -> None:
    """Of strings to strings with a further input, and to numbers."""
    body = """y, z, e = SequenceMap<body = b (string[u] v, string[1] w) => (string[r] o, int64[1] p, bool[q] h) {
        o = StringConcat(v, w) p = Shape(v) h = Equal(v, w) }>(s, x)"""
    results = "(seq(string[a]) y, seq(int64[1]) z, seq(bool[b]) e)"
    tensors, x = [_texts(3), np.array(["!"], object), _texts(2)], np.array(["!"], object)
    if kind == "listed":
        head = f"g (string[a] x0, string[b] x1, string[c] x2, string[1] x) => {results} {{"
        feeds = {**{f"x{index}": tensor for index, tensor in enumerate(tensors)}, "x": x}
        _check(f"{head} s = SequenceConstruct(x0, x1, x2) {body} }}", feeds)
    else:
        _check(f"g (seq(string[m]) s, string[1] x) => {results} {{ {body} }}", {"s": tensors, "x": x})


def test_two_lists_are_mapped_together() -> None:
    graph = """g (seq(string[m]) s, seq(string[m]) t) => (seq(string[a]) y) {
        y = SequenceMap<body = b (string[u] v, string[u] w) => (string[r] o) { o = Concat<axis = 0>(w, v) }>(s, t) }"""
    _check(graph, {"s": [_texts(3), _texts(2)], "t": [_texts(1, word="t"), _texts(4, word="ü")]})


def test_a_mapped_graph_reads_names_around() -> None:
    """The graph belongs to the operator sets of the model, newer than those of the operator's function."""
    graph = """g (seq(string[m]) s, string[1] x) => (seq(string[a]) y) { k = StringConcat(x, x)
        y = SequenceMap<body = b (string[u] v) => (string[r] o) { o = StringConcat(v, k) }>(s) }"""
    s, x = [_texts(3), _texts(2)], np.array(["!"], object)
    _check(graph, {"s": s, "x": x}, lambda *_: [[tensor + x + x for tensor in s]])


def test_an_empty_list_is_mapped() -> None:
    graph = """g (string[1] x) => (seq(string[a]) y) { s = SequenceEmpty<dtype = 8>()
        y = SequenceMap<body = b (string[u] v, string[1] w) => (string[r] o) { o = Concat<axis = 0>(v, w) }>(s, x) }"""
    assert list(onnx_backend.prepare(_model(graph), backends=[]).run([_texts(1)])) == [[]]


def test_a_called_function_takes_and_returns_lists() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 20, "f" : 1]>
        g (seq(string[m]) s, string[n] x) => (seq(string[a]) y) { y = f.Twice(s, x) }
        <domain: "f", opset_import: ["" : 20]> Twice (s, x) => (y) { a = SequenceInsert(s, x) y = SequenceInsert(a, x) }
    """)
    _check(model, {"s": [_texts(2)], "x": _texts(3, word="x")})


# Optional values


def _optional(element: onnx.TypeProto, op: str, result: onnx.TypeProto) -> onnx.ModelProto:
    """Return a model of an operator on an optional input."""
    graph = helper.make_graph(
        [helper.make_node(op, ["o"], ["y"])],
        "g",
        [helper.make_value_info("o", helper.make_optional_type_proto(element))],
        [helper.make_value_info("y", result)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


TEXTS = helper.make_tensor_type_proto(TensorProto.STRING, ["n", "m"])
SCALAR = helper.make_tensor_type_proto(TensorProto.STRING, [])
LIST = helper.make_sequence_type_proto(TEXTS)


@pytest.mark.parametrize(
    ("element", "value"),
    [(TEXTS, _texts(2, 3)), (SCALAR, np.array("ä", object)), (LIST, TENSORS), (LIST, [])],
)
def test_optional_inputs(element: onnx.TypeProto, value: Any) -> None:
    flag = helper.make_tensor_type_proto(TensorProto.BOOL, [])
    has = onnx_backend.prepare(_optional(element, "OptionalHasElement", flag), backends=[])
    assert [bool(has.run({"o": given})[0]) for given in (value, None)] == [True, False]
    get = onnx_backend.prepare(_optional(element, "OptionalGetElement", element), backends=[])
    _same(get.run({"o": value})[0], value)
    with pytest.raises(ByocError, match="an index lies outside axis 0"):
        get.run({"o": None})
    same = onnx_backend.prepare(_optional(element, "Identity", helper.make_optional_type_proto(element)), backends=[])
    _same(same.run({"o": value})[0], value)
    assert same.run({"o": None})[0] is None


def _branches(
    element: onnx.TypeProto, present: onnx.NodeProto, feeds: Sequence[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    """Return a model whose branches return a present and an absent optional value."""
    optional = helper.make_value_info("o", helper.make_optional_type_proto(element))
    then = helper.make_graph([present, helper.make_node("Optional", ["p"], ["o"])], "t", [], [optional])
    other = helper.make_graph([helper.make_node("Optional", [], ["o"], type=element)], "e", [], [optional])
    graph = helper.make_graph(
        [
            helper.make_node("If", ["c"], ["v"], then_branch=then, else_branch=other),
            helper.make_node("OptionalHasElement", ["v"], ["h"]),
        ],
        "g",
        [helper.make_value_info("c", helper.make_tensor_type_proto(TensorProto.BOOL, [])), *feeds],
        [
            helper.make_value_info("v", helper.make_optional_type_proto(element)),
            helper.make_value_info("h", helper.make_tensor_type_proto(TensorProto.BOOL, [])),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("condition", [True, False])
def test_optional_strings_of_branches(condition: bool) -> None:
    """The strings are moved before, so the absent value stands for numbers in a pool."""
    x = helper.make_value_info("x", TEXTS)
    model = _branches(TEXTS, helper.make_node("Transpose", ["x"], ["p"]), [x])
    value, has = onnx_backend.prepare(model, backends=[]).run({"c": np.array(condition), "x": _texts(2, 3)})
    assert bool(has) == condition
    _same(value, _texts(2, 3).T if condition else None)


@pytest.mark.parametrize("condition", [True, False])
def test_optional_lists_of_branches(condition: bool) -> None:
    x = helper.make_value_info("x", TEXTS)
    model = _branches(LIST, helper.make_node("SequenceConstruct", ["x", "x"], ["p"]), [x])
    value, has = onnx_backend.prepare(model, backends=[]).run({"c": np.array(condition), "x": _texts(2, 3)})
    assert bool(has) == condition
    _same(value, [_texts(2, 3)] * 2 if condition else None)


def test_an_optional_list_of_branches_is_read() -> None:
    """The rank of the tensors is that of the present list."""
    model = _branches(
        LIST, helper.make_node("SequenceConstruct", ["x", "x"], ["p"]), [helper.make_value_info("x", TEXTS)]
    )
    model.graph.node.append(helper.make_node("OptionalGetElement", ["v"], ["l"]))
    model.graph.node.append(helper.make_node("SequenceAt", ["l", "i"], ["y"]))
    model.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, []))
    model.graph.output.append(helper.make_value_info("y", TEXTS))
    prepared = onnx_backend.prepare(model, backends=[])
    feeds = {"c": np.array(True), "x": _texts(2, 3), "i": np.array(1)}
    _same(prepared.run(feeds)[2], _texts(2, 3))
    with pytest.raises(ByocError, match="an index lies outside axis 0"):
        prepared.run({**feeds, "c": np.array(False)})


@pytest.mark.parametrize("element", [TEXTS, LIST])
def test_an_output_that_is_never_present(element: onnx.TypeProto) -> None:
    graph = helper.make_graph(
        [helper.make_node("Optional", [], ["o"], type=element), helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_value_info("x", TEXTS)],
        [helper.make_value_info("o", helper.make_optional_type_proto(element)), helper.make_value_info("y", TEXTS)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    results = onnx_backend.prepare(model, backends=[]).run({"x": _texts(2, 3)})
    _same(list(results), [None, _texts(2, 3)])


# Scan outputs and inputs


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("limit", ["initializer", "input"])
def test_rounds_stack_strings(rounds: int, limit: str) -> None:
    """Of a known number of rounds, unrolled, and of a number known only at run time."""
    head = "g (string[n] x, int64 m)" if limit == "input" else "g (string[n] x)"
    weights = "" if limit == "input" else f"<int64 m = {{{rounds}}}>"
    graph = f"""{head} => (string[a, b] y, string[c] z) {weights} {{ z, y = Loop(m, , x) <
        body = b (int64 i, bool t, string[u] v_in) => (bool c_out, string[u] v_out, string[u] o) {{
            c_out = Identity(t) f = Cast<to = 8>(i) v_out = StringConcat(v_in, f) o = StringConcat(f, v_in) }}> }}"""
    feeds = {"x": _texts(3), **({"m": np.array(rounds)} if limit == "input" else {})}
    _check(graph, feeds, _by_onnxruntime)


def test_no_rounds_stack_no_strings() -> None:
    graph = """g (string[n] x) => (string[a, b] y, string[c] z) <int64 m = {0}> { z, y = Loop(m, , x) <
        body = b (int64 i, bool t, string[u] v_in) => (bool c_out, string[u] v_out, string[u] o) {
            c_out = Identity(t) v_out = Identity(v_in) o = Identity(v_in) }> }"""
    y, z = onnx_backend.prepare(_model(graph), backends=[]).run([_texts(3)])
    assert (y.shape, y.dtype) == ((0, 3), np.dtype(object))
    _same(z, _texts(3))


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("length", ["4", "n"])
def test_slices_of_strings_are_scanned(axis: int, backward: int, length: str) -> None:
    sizes = f"{length}, 2" if axis == 0 else f"2, {length}"
    graph = f"""g (string[2] x, string[{sizes}] k) => (string[2] y, string[a, b] z) {{
        y, z = Scan<num_scan_inputs = 1, scan_input_axes = [{axis}], scan_input_directions = [{backward}],
            scan_output_axes = [{axis}], scan_output_directions = [{backward}],
            body = b (string[2] state, string[2] item) => (string[2] next, string[2] o) {{
                next = StringConcat(state, item) o = StringConcat(item, state) }}>(x, k) }}"""
    x, k = _texts(2), _texts(4, 2, word="ß")
    state, outputs = x, []
    for item in k[::-1] if backward else k:
        outputs.append(item + state)
        state = state + item
    z = np.array(outputs[::-1] if backward else outputs, object)
    _check(graph, {"x": x, "k": k if axis == 0 else k.T}, lambda *_: [state, z if axis == 0 else z.T])


def test_many_slices_of_strings_are_scanned() -> None:
    """Too many rounds to be unrolled."""
    graph = """g (string[300] k) => (string y, string[300] z) { e = Constant<value_string = "">()
        y, z = Scan<num_scan_inputs = 1, body = b (string state, string item) => (string next, string o) {
            next = Identity(item) o = StringConcat(state, item) }>(e, k) }"""
    k = _texts(300)
    expected = [np.array(k[-1], object), np.array(["", *k[:-1]], object) + k]
    _check(graph, {"k": k}, lambda *_: expected)


def test_batches_of_strings_are_scanned() -> None:
    """The operator in the form of operator set 8."""
    graph = """g (string[2, 3] x, string[2, 4, 3] k) => (string[2, 3] y, string[2, 4, 3] z) {
        y, z = Scan<num_scan_inputs = 1, body = b (string[3] state, string[3] item) => (string[3] next, string[3] o) {
            next = Identity(item) o = Identity(state) }>(, x, k) }"""
    x, k = _texts(2, 3, word="x"), _texts(2, 4, 3)
    y, z = onnx_backend.prepare(_model(graph, 8), backends=[]).run([x, k])
    _same(y, k[:, -1])
    _same(z, np.concatenate([x[:, None], k[:, :-1]], axis=1))


# Inputs and outputs of compiled models


def test_what_a_model_takes_and_gives(tmp_path: Path) -> None:
    module = from_onnx(_model("g (seq(string[m, n]) s, string[k] x) => (seq(string[a, b]) y) { y = Identity(s) }"))
    main = module["main"]
    assert main.input_names == ("s.elements.bytes", "s.elements.lengths", "s.shapes", "x.bytes", "x.lengths")
    assert main.output_names == ("y.elements.bytes", "y.elements.lengths", "y.shapes")
    assert [str(param.type) for param in main.params[:3]] == [
        'R.Tensor(("s_elements_bytes",), "uint8")',
        'R.Tensor(("s_elements",), "int64")',
        'R.Tensor(("s_length", 2), "int64")',
    ]
    executable = byoc_core.build(module, [])
    assert executable.report_data["value_forms"] == {
        "main": {
            "input_forms": [["s", "sequence of strings"], ["x", "strings"]],
            "output_forms": [["y", "sequence of strings"]],
        }
    }
    executable.save(tmp_path / "model.byoc")
    data, lengths, shapes = pack_string_sequence(TENSORS)
    script = f"""
import numpy as np, byoc_core
machine = byoc_core.VirtualMachine(byoc_core.load({str(tmp_path / "model.byoc")!r}))
feeds = {{
    "s.elements.bytes": np.array({data.tolist()}, "uint8"), "s.elements.lengths": np.array({lengths.tolist()}),
    "s.shapes": np.array({shapes.tolist()}), "x.bytes": np.zeros(0, "uint8"), "x.lengths": np.zeros(0, "int64"),
}}
results = machine.run("main", feeds)
from byoc_core.runtime.sequences import unpack_string_sequence
assert [part.tolist() for part in unpack_string_sequence(*results)] == {[part.tolist() for part in TENSORS]}
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (
            "g (seq(string[n]) s, int64[n] x) => (seq(string[n]) y) { y = SequenceInsert(s, x) }",
            "node `y` (SequenceInsert): inserts a tensor of another dtype; got int64, expected string",
        ),
        (
            "g (seq(int64[n]) s, string[n] x) => (seq(int64[n]) y) { y = SequenceInsert(s, x) }",
            "node `y` (SequenceInsert): inserts a tensor of another dtype; got string, expected int64",
        ),
        (
            "g (string[n] x, int64[n] k, int64 i) => (string y) { s = SequenceConstruct(x, k) y = SequenceAt(s, i) }",
            (
                "node `y` (SequenceAt): has a sequence of tensors that differ in dtype or rank; "
                'got R.Tensor(("n",), "int64"), expected like a tensor of strings'
            ),
        ),
        (
            (
                "g (string[n] x, int64[n] k) => (string[m] y) { s = SequenceConstruct(x, k) "
                "y = ConcatFromSequence<axis = 0>(s) }"
            ),
            "node `y` (ConcatFromSequence): joins strings and numbers",
        ),
        (
            "g (seq(string[n]) s) => (string[n] y) { y = Neg(s) }",
            "node `y` (Neg): needs `s` as a tensor; got a sequence",
        ),
        (
            "g (seq(string) s, int64 i) => (string y) { y = SequenceAt(s, i) }",
            (
                "node `y` (SequenceAt): needs the rank of the tensors in a sequence, but the rank is only known at run "
                "time. State the element type of the sequence with its axes in the model's input."
            ),
        ),
        (
            (
                "g (bool c, seq(string[n]) s, seq(float[n]) t) => (seq(string[n]) y) { y = If(c) <"
                "then_branch = t () => (u) { u = Identity(s) }, else_branch = e () => (v) { v = Identity(t) }> }"
            ),
            "node `y` (If): has output `y` as a sequence of strings in one place, and of numbers in another",
        ),
        (
            "g (string[n] x, int64[n] k) => (string[m] y) { y = Concat<axis = 0>(x, k) }",
            "node `y` (Concat): needs `k` as a tensor of strings",
        ),
    ],
)
def test_what_is_refused(graph: str, text: str) -> None:
    model = _model(graph)
    if "seq(string) s" in graph:
        model.graph.input[0].type.sequence_type.elem_type.tensor_type.ClearField("shape")
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert str(caught.value) == f"ONNX model, {text}"


def test_a_sequence_of_sequences_is_refused() -> None:
    """ONNX has no operator on such a value."""
    model = _model("g (seq(string[n]) s) => (seq(string[n]) y) { y = Identity(s) }")
    outer = helper.make_sequence_type_proto(helper.make_sequence_type_proto(TEXTS))
    model.graph.input[0].type.CopyFrom(outer)
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert str(caught.value) == (
        "ONNX model, input `s`: is neither a tensor, nor a sequence of tensors, nor one of these as optional value, "
        "nor a map; got sequence"
    )


def test_tensors_of_several_ranks_pass_through() -> None:
    model = _model("g (seq(string) s, string[n] x) => (seq(string) y) { y = SequenceInsert(s, x) }")
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.sequence_type.elem_type.tensor_type.ClearField("shape")
    prepared = onnx_backend.prepare(model, backends=[])
    _same(prepared.run([[_texts(2, 3)], _texts(4)])[0], [_texts(2, 3), _texts(4)])
    _same(prepared.run([[], _texts(4)])[0], [_texts(4)])


# Laws

_ARRAYS = hnp.arrays(
    object, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=3), elements=st.text(max_size=3)
)


@given(st.lists(_ARRAYS, max_size=4))
def test_packing_loses_nothing(tensors: list[Any]) -> None:
    data, lengths, shapes = pack_string_sequence(tensors, rank=2)
    assert (data.dtype, data.ndim, lengths.ndim, shapes.shape) == (np.dtype(np.uint8), 1, 1, (len(tensors), 2))
    assert data.tobytes().decode() == "".join(text for tensor in tensors for text in tensor.reshape(-1))
    _same(unpack_string_sequence(data, lengths, shapes), tensors)


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        (([104, 105], [1], [[1]]), "have lengths that do not fit the bytes"),
        (([104, 105], [1, 1], [[1]]), "has shapes that do not fit the elements"),
        (([104, 105], [1, 1], [2]), "has shapes that do not fit the elements"),
    ],
)
def test_arrays_that_do_not_fit(arrays: Any, text: str) -> None:
    data, lengths, shapes = arrays
    with pytest.raises(CallError, match=text):
        unpack_string_sequence(np.array(data, np.uint8), np.array(lengths), np.array(shapes))


def test_tensors_of_another_rank_are_refused() -> None:
    with pytest.raises(CallError, match="sequence, tensor 1: has another dtype or rank"):
        pack_string_sequence([_texts(2), _texts(2, 2)])


@given(st.lists(_ARRAYS, min_size=1, max_size=3), st.data())
@settings(max_examples=40)
def test_chains_of_ops_equal_a_list(tensors: list[Any], data: st.DataObject) -> None:
    feeds: dict[str, Any] = {"s": tensors, "x": np.array([["ü", ""]], object)}
    expected, body = list(tensors), "s0 = Identity(s)"
    count = data.draw(st.integers(1, 4))
    for index in range(count):
        position = data.draw(st.integers(-len(expected), len(expected) - 1)) if expected else 0
        feeds[f"i{index}"] = np.array(position)
        op = data.draw(st.sampled_from(["insert", "erase", "copy"])) if expected else "insert"
        if op == "erase":
            del expected[position]
            body += f" s{index + 1} = SequenceErase(s{index}, i{index})"
        elif op == "insert":
            expected.insert(position, feeds["x"])
            body += f" s{index + 1} = SequenceInsert(s{index}, x, i{index})"
        else:
            expected.append(expected[position])
            body += f" t{index} = SequenceAt(s{index}, i{index}) s{index + 1} = SequenceInsert(s{index}, t{index})"
    positions = "".join(f", int64 i{index}" for index in range(count))
    graph = f"g (seq(string[m, n]) s, string[p, q] x{positions}) => (seq(string[a, b]) s{count}) {{ {body} }}"
    _same(onnx_backend.prepare(_model(graph), backends=[]).run(feeds)[0], expected)


_MATRICES = hnp.arrays(object, st.tuples(st.integers(1, 3), st.integers(1, 4)), elements=st.text(max_size=3))


@pytest.fixture(scope="module")
def split_and_join() -> onnx_backend.PreparedModel:
    graph = """g (string[n, m] x, int64[k] sizes) => (string[a, b] y, seq(string[c, d]) s) {
        s = SplitToSequence<axis = 1>(x, sizes) y = ConcatFromSequence<axis = 1>(s) }"""
    return onnx_backend.prepare(_model(graph), backends=[])


@given(_MATRICES, st.data())
def test_parts_join_to_the_whole(split_and_join: onnx_backend.PreparedModel, x: Any, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, x.shape[1]), max_size=3)))
    sizes = np.diff([0, *cuts, x.shape[1]])
    y, parts = split_and_join.run([x, sizes])
    _same(y, x)
    _same(parts, np.split(x, cuts, axis=1))
