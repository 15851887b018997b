"""Sequences of strings, against the package ``onnx``, ONNX Runtime and lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core import onnx_backend
from byoc_core.errors import ByocError, CallError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.runtime.sequences import pack_string_sequence, unpack_string_sequence
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import parser

from core.tests.frontend.string_models import (
    TENSORS,
    assert_same,
    by_onnxruntime,
    check,
    draw_texts,
    parse,
)


@pytest.mark.parametrize("position", [0, 2, 3, -1, -3])
def test_a_tensor_is_inserted(position: int) -> None:
    graph = """g (seq(string[m, n]) s, string[p, q] x, int64 i) => (seq(string[a, b]) y, seq(string[a, b]) z, int64 n) {
        y = SequenceInsert(s, x, i) z = SequenceInsert(s, x) n = SequenceLength(y) }"""
    check(graph, {"s": TENSORS, "x": draw_texts(5, 3, word="new"), "i": np.array(position)}, by_onnxruntime)


@pytest.mark.parametrize("position", [0, 2, -1, -3])
def test_a_tensor_is_read_and_erased(position: int) -> None:
    graph = """g (seq(string[m, n]) s, int64 i) => (string[a, b] x, seq(string[a, b]) y, seq(string[a, b]) z) {
        x = SequenceAt(s, i) y = SequenceErase(s, i) z = SequenceErase(s) }"""
    check(graph, {"s": TENSORS, "i": np.array(position)})


@pytest.mark.parametrize("position", [3, -4])
@pytest.mark.parametrize("op", ["SequenceAt", "SequenceErase"])
def test_a_position_out_of_range_is_an_error_of_the_call(op: str, position: int) -> None:
    result = "string[a, b] y" if op == "SequenceAt" else "seq(string[a, b]) y"
    prepared = onnx_backend.prepare(
        parse(f"g (seq(string[m, n]) s, int64 i) => ({result}) {{ y = {op}(s, i) }}"), backends=[]
    )
    with pytest.raises(ByocError, match="an index lies outside axis 0"):
        prepared.run({"s": TENSORS, "i": np.array(position)})


@pytest.mark.parametrize("sizes", ["2, 3", "n, m"])
def test_lists_known_during_import_leave_no_ops_of_sequences(sizes: str) -> None:
    graph = f"""g (string[{sizes}] x, string[{sizes}] k) => (string[{sizes}] y, string[{sizes}] z, int64 n)
        <int64 one = {{1}}> {{
        e = SequenceEmpty<dtype = 8>() a = SequenceInsert(e, x) b = SequenceInsert(a, k) s = SequenceInsert(b, x, one)
        t = SequenceErase(s, one) y = SequenceAt(t, one) z = SequenceAt(s, one) n = SequenceLength(s) }}"""
    module = check(graph, {"x": draw_texts(2, 3), "k": draw_texts(2, 3, word="k")})
    assert module["main"].bindings == ()


def test_constructed_sequences_are_results() -> None:
    graph = """g (string[n] x, string[m] k) => (seq(string[a]) y, seq(string[b]) z, seq(string[c]) w)
        <int64[2] i = {1, 0}> {
        g = Gather(x, i) y = SequenceConstruct(x, g, k) z = SequenceEmpty<dtype = 8>() w = SequenceConstruct(k) }"""
    check(graph, {"x": draw_texts(3), "k": draw_texts(2, word="k")})


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("is_listed", [True, False])
def test_tensors_are_joined(axis: int, *, is_listed: bool) -> None:
    shapes = [(1, 3), (2, 3), (0, 3)] if axis == 0 else [(2, 1), (2, 3), (2, 0)]
    feeds: dict[str, Any] = {f"x{i}": draw_texts(*shape, word="abc"[i]) for i, shape in enumerate(shapes)}
    if is_listed:
        head = "g (string[a, b] x0, string[c, d] x1, string[e, f] x2) => (string[u, v] y) {"
        head += " s = SequenceConstruct(x0, x1, x2)"
    else:
        head, feeds = "g (seq(string[m, n]) s) => (string[u, v] y) {", {"s": list(feeds.values())}
    check(f"{head} y = ConcatFromSequence<axis = {axis}>(s) }}", feeds)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("is_listed", [True, False])
def test_tensors_are_stacked(axis: int, *, is_listed: bool) -> None:
    tensors = [draw_texts(2, 3, word=word) for word in ("é", "", "long text ")]
    feeds: dict[str, Any] = {"s": tensors}
    head = "g (seq(string[m, n]) s) => (string[u, v, w] y) {"
    if is_listed:
        feeds = {f"x{index}": tensor for index, tensor in enumerate(tensors)}
        head = "g (string[a, b] x0, string[a, b] x1, string[a, b] x2) => (string[u, v, w] y) {"
        head += " s = SequenceConstruct(x0, x1, x2)"
    check(f"{head} y = ConcatFromSequence<axis = {axis}, new_axis = 1>(s) }}", feeds)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("sizes", ["4, 4", "a, b"])
def test_a_tensor_is_split(axis: int, sizes: str) -> None:
    x = draw_texts(4, 4)
    head = f"g (string[{sizes}] x, int64[3] s) => (seq(string[d, e]) y)"
    check(f"{head} {{ y = SplitToSequence<axis = {axis}>(x, s) }}", {"x": x, "s": np.array([1, 0, 3])})
    check(
        f"g (string[{sizes}] x) => (seq(string[d, e]) y) <int64[2] s = {{3, 1}}> "
        f"{{ y = SplitToSequence<axis = {axis}>(x, s) }}",
        {"x": x},
    )
    for keeps, result in ((1, "seq(string[d, e]) y"), (0, "seq(string[d]) y")):
        graph = f"g (string[{sizes}] x) => ({result}) {{ y = SplitToSequence<axis = {axis}, keepdims = {keeps}>(x) }}"
        found = onnx_backend.prepare(parse(graph), backends=[]).run([x])[0]
        assert_same(found, [part if keeps else part.squeeze(axis) for part in np.split(x, 4, axis)])


@pytest.mark.parametrize("size", [1, 3, 4, 9])
def test_a_tensor_is_split_into_equal_parts(size: int) -> None:
    graph = "g (string[n, 2] x, int64 s) => (seq(string[d, e]) y) { y = SplitToSequence(x, s) }"
    x = draw_texts(4, 2)
    found = onnx_backend.prepare(parse(graph), backends=[]).run([x, np.array(size)])[0]
    assert_same(found, np.split(x, range(size, 4, size)))


def test_parts_of_nothing_are_an_empty_list_of_strings() -> None:
    """Also where the list becomes empty by erasure: the dtype stays."""
    graph = """g (string[0, 2] x, string[n] k, int64 i) => (seq(string[a, b]) y, seq(string[c]) z, seq(string[c]) w) {
        y = SplitToSequence(x) s = SequenceConstruct(k) z = SequenceErase(s) w = SequenceErase(s, i) }"""
    feeds = {"x": draw_texts(0, 2), "k": draw_texts(3), "i": np.array(0)}
    module = from_onnx(parse(graph))
    assert [name for name in module["main"].output_names if name.startswith("z.")] == [
        "z.elements.bytes",
        "z.elements.lengths",
        "z.shapes",
    ]
    assert list(onnx_backend.prepare(parse(graph), backends=[]).run(feeds)) == [[], [], []]


@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_the_rounds_of_a_loop_gather_a_list(rounds: int) -> None:
    graph = """g (string[n, 3] x, int64 m) => (seq(string[p, q]) s, int64 n) { e = SequenceEmpty<dtype = 8>()
        s = Loop(m, , e) <body = b (int64 i, bool t, seq(string[u, v]) v_in) => (bool c_out, seq(string[u, v]) v_out) {
            c_out = Identity(t) f = Cast<to = 8>(i) z = StringConcat(x, f) v_out = SequenceInsert(v_in, z) }>
        n = SequenceLength(s) }"""
    check(graph, {"x": draw_texts(2, 3), "m": np.array(rounds)}, by_onnxruntime)


def test_a_list_shrinks_in_a_loop() -> None:
    graph = """g (seq(string[m]) s, int64 k) => (seq(string[n]) y, string[a] last) {
        e = Constant<value_strings = ["-"]>()
        y, last = Loop(k, , s, e) <body = b (int64 i, bool t, seq(string[u]) v_in, string[v] w_in)
            => (bool c_out, seq(string[u]) v_out, string[v] w_out) {
            c_out = Identity(t) w_out = SequenceAt(v_in, i) v_out = SequenceErase(v_in, i) }> }"""
    tensors = [draw_texts(3), draw_texts(1, word="日"), draw_texts(0), draw_texts(2, word="ab")]
    check(graph, {"s": tensors, "k": np.array(2)}, by_onnxruntime)


@pytest.mark.parametrize("condition", [True, False])
def test_lists_from_branches(condition: bool) -> None:
    graph = """g (bool c, string[n] x, seq(string[m]) s) => (seq(string[p]) y, seq(string[q]) z) { y, z = If(c) <
        then_branch = t () => (seq(string[p]) a, seq(string[q]) d) { a = SequenceConstruct(x, x) d = Identity(s) },
        else_branch = e () => (seq(string[p]) b, seq(string[q]) f) {
            b = SequenceEmpty<dtype = 8>() f = SequenceInsert(s, x) }> }"""
    check(graph, {"c": np.array(condition), "x": draw_texts(3), "s": [draw_texts(2), draw_texts(4, word="")]})


def test_a_list_of_branches_is_read_later() -> None:
    """The rank of the tensors is known after the branches, though a branch has an empty list."""
    graph = """g (bool c, string[n] x) => (string[p] y) { s = If(c) <
        then_branch = t () => (seq(string[p]) a) { a = SequenceConstruct(x, x) },
        else_branch = e () => (seq(string[p]) b) { e0 = SequenceEmpty<dtype = 8>() b = SequenceInsert(e0, x) }>
        y = ConcatFromSequence<axis = 0>(s) }"""
    for condition in (True, False):
        check(graph, {"c": np.array(condition), "x": draw_texts(3)})


@pytest.mark.parametrize("kind", ["seq(string[m])", "listed"])
def test_a_graph_is_mapped_over_lists(kind: str) -> None:
    """Of strings to strings with a further input, and to numbers."""
    body = """y, z, e = SequenceMap<body = b (string[u] v, string[1] w) => (string[r] o, int64[1] p, bool[q] h) {
        o = StringConcat(v, w) p = Shape(v) h = Equal(v, w) }>(s, x)"""
    results = "(seq(string[a]) y, seq(int64[1]) z, seq(bool[b]) e)"
    tensors, x = [draw_texts(3), np.array(["!"], object), draw_texts(2)], np.array(["!"], object)
    if kind == "listed":
        head = f"g (string[a] x0, string[b] x1, string[c] x2, string[1] x) => {results} {{"
        feeds = {**{f"x{index}": tensor for index, tensor in enumerate(tensors)}, "x": x}
        check(f"{head} s = SequenceConstruct(x0, x1, x2) {body} }}", feeds)
    else:
        check(f"g (seq(string[m]) s, string[1] x) => {results} {{ {body} }}", {"s": tensors, "x": x})


def test_two_lists_are_mapped_together() -> None:
    graph = """g (seq(string[m]) s, seq(string[m]) t) => (seq(string[a]) y) {
        y = SequenceMap<body = b (string[u] v, string[u] w) => (string[r] o) { o = Concat<axis = 0>(w, v) }>(s, t) }"""
    check(graph, {"s": [draw_texts(3), draw_texts(2)], "t": [draw_texts(1, word="t"), draw_texts(4, word="ü")]})


def test_a_mapped_graph_reads_names_around() -> None:
    """The graph belongs to the operator sets of the model, newer than those of the operator's function."""
    graph = """g (seq(string[m]) s, string[1] x) => (seq(string[a]) y) { k = StringConcat(x, x)
        y = SequenceMap<body = b (string[u] v) => (string[r] o) { o = StringConcat(v, k) }>(s) }"""
    s, x = [draw_texts(3), draw_texts(2)], np.array(["!"], object)
    check(graph, {"s": s, "x": x}, lambda *_: [[tensor + x + x for tensor in s]])


def test_an_empty_list_is_mapped() -> None:
    graph = """g (string[1] x) => (seq(string[a]) y) { s = SequenceEmpty<dtype = 8>()
        y = SequenceMap<body = b (string[u] v, string[1] w) => (string[r] o) { o = Concat<axis = 0>(v, w) }>(s, x) }"""
    assert list(onnx_backend.prepare(parse(graph), backends=[]).run([draw_texts(1)])) == [[]]


def test_a_called_function_takes_and_returns_lists() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 20, "f" : 1]>
        g (seq(string[m]) s, string[n] x) => (seq(string[a]) y) { y = f.Twice(s, x) }
        <domain: "f", opset_import: ["" : 20]> Twice (s, x) => (y) { a = SequenceInsert(s, x) y = SequenceInsert(a, x) }
    """)
    check(model, {"s": [draw_texts(2)], "x": draw_texts(3, word="x")})


# Laws

_ARRAYS = hnp.arrays(
    object, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=3), elements=st.text(max_size=3)
)


@given(st.lists(_ARRAYS, max_size=4))
def test_packing_loses_nothing(tensors: list[Any]) -> None:
    data, lengths, shapes = pack_string_sequence(tensors, rank=2)
    assert (data.dtype, data.ndim, lengths.ndim, shapes.shape) == (np.dtype(np.uint8), 1, 1, (len(tensors), 2))
    assert data.tobytes().decode() == "".join(text for tensor in tensors for text in tensor.reshape(-1))
    assert_same(unpack_string_sequence(data, lengths, shapes), tensors)


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
        pack_string_sequence([draw_texts(2), draw_texts(2, 2)])


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
    assert_same(onnx_backend.prepare(parse(graph), backends=[]).run(feeds)[0], expected)


_MATRICES = hnp.arrays(object, st.tuples(st.integers(1, 3), st.integers(1, 4)), elements=st.text(max_size=3))


@pytest.fixture(scope="module")
def split_and_join() -> onnx_backend.PreparedModel:
    graph = """g (string[n, m] x, int64[k] sizes) => (string[a, b] y, seq(string[c, d]) s) {
        s = SplitToSequence<axis = 1>(x, sizes) y = ConcatFromSequence<axis = 1>(s) }"""
    return onnx_backend.prepare(parse(graph), backends=[])


@given(_MATRICES, st.data())
def test_parts_join_to_the_whole(split_and_join: onnx_backend.PreparedModel, x: Any, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, x.shape[1]), max_size=3)))
    sizes = np.diff([0, *cuts, x.shape[1]])
    y, parts = split_and_join.run([x, sizes])
    assert_same(y, x)
    assert_same(parts, np.split(x, cuts, axis=1))
