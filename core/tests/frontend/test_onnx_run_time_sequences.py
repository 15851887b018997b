"""Sequences and optional values known only at run time, against ONNX Runtime and Python's lists."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import onnx
import onnxruntime
import pytest
from byoc_core import onnx_backend
from byoc_core.errors import ByocError, CallError, FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.verifier import verify
from byoc_core.runtime.sequences import pack_sequence, unpack_sequence
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import parser


def _model(graph: str, opset: int = 17) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {graph}')


def _ints(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


def _same(result: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(result, list)
        assert len(result) == len(expected)
        for item, other in zip(result, expected, strict=True):
            _same(item, other)
    elif expected is None:
        assert result is None
    else:
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == np.asarray(expected).dtype


def _check(graph: str, feeds: dict[str, Any], opset: int = 17) -> None:
    model = _model(graph, opset)
    verify(from_onnx(model))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = onnx_backend.prepare(model, backends=[]).run(feeds)
    for result, expected in zip(results, session.run(None, feeds), strict=True):
        _same(result, expected)


TENSORS = [_ints(2, 3), _ints(1, 3, seed=1), _ints(4, 3, seed=2)]


@pytest.mark.parametrize("position", [0, 2, 3, -1, -3])
def test_a_tensor_is_inserted(position: int) -> None:
    graph = "g (seq(float[m, n]) s, float[p, q] x, int64 i) => (seq(float[a, b]) y, seq(float[a, b]) z, int64 n) {"
    _check(
        graph + " y = SequenceInsert(s, x, i) z = SequenceInsert(s, x) n = SequenceLength(y) }",
        {"s": TENSORS, "x": _ints(5, 3), "i": np.array(position)},
    )


@pytest.mark.parametrize("position", [0, 2, -1, -3])
def test_a_tensor_is_read_and_erased(position: int) -> None:
    graph = "g (seq(float[m, n]) s, int64 i) => (float[a, b] x, seq(float[a, b]) y, seq(float[a, b]) z) {"
    graph += " x = SequenceAt(s, i) y = SequenceErase(s, i) z = SequenceErase(s) }"
    _check(graph, {"s": TENSORS, "i": np.array(position)})


@pytest.mark.parametrize("position", [3, -4])
@pytest.mark.parametrize("op", ["SequenceAt", "SequenceErase"])
def test_a_position_out_of_range_is_an_error_of_the_call(op: str, position: int) -> None:
    result = "float[a, b] y" if op == "SequenceAt" else "seq(float[a, b]) y"
    prepared = onnx_backend.prepare(_model(f"g (seq(float[m, n]) s, int64 i) => ({result}) {{ y = {op}(s, i) }}"))
    with pytest.raises(ByocError, match="an index lies outside axis 0"):
        prepared.run({"s": TENSORS, "i": np.array(position)})


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_tensors_are_joined(axis: int) -> None:
    shapes = [(2, 3, 4)] * 3
    for index, shape in enumerate(shapes):
        shapes[index] = tuple(size + index * (axis % 3 == i) for i, size in enumerate(shape))  # type: ignore[assignment]
    graph = f"g (seq(float[m, n, o]) s) => (float[a, b, c] y) {{ y = ConcatFromSequence<axis = {axis}>(s) }}"
    _check(graph, {"s": [_ints(*shape, seed=index) for index, shape in enumerate(shapes)]})


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_tensors_are_stacked(axis: int) -> None:
    graph = f"g (seq(float[m, n]) s) => (float[a, b, c] y) {{ y = ConcatFromSequence<axis = {axis}, new_axis = 1>(s) }}"
    _check(graph, {"s": [_ints(2, 3, seed=seed) for seed in range(4)]})


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_a_tensor_is_split_at_run_time(axis: int) -> None:
    """By a list of sizes, by one size with a smaller rest, and into slices of one."""
    x = _ints(4, 4, 4)
    head = "float[a, b, c] x, int64"
    lists = f"g ({head}[k] s) => (seq(float[d, e, f]) y) {{ y = SplitToSequence<axis = {axis}>(x, s) }}"
    _check(lists, {"x": x, "s": np.array([1, 0, 3])})
    _check(lists.replace("[k]", "[3]"), {"x": x, "s": np.array([2, 1, 1])})
    scalar = lists.replace("int64[k] s", "int64 s")
    for size in (1, 3, 4, 9):
        _check(scalar, {"x": x, "s": np.array(size)})
    for keeps in (0, 1):
        kept = f"g (float[a, b, c] x) => (y) {{ y = SplitToSequence<axis = {axis}, keepdims = {keeps}>(x) }}"
        model = _model(kept)
        model.graph.output[0].type.sequence_type.elem_type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        (result,) = onnx_backend.prepare(model, backends=[]).run([x])
        parts = [part if keeps else part.squeeze(axis) for part in np.split(x, 4, axis)]
        _same(result, parts)


def test_the_rounds_of_a_loop_gather_a_list() -> None:
    """The usual form of a list in PyTorch: an empty sequence, grown in a loop, then joined."""
    graph = """g (float[n, 3] x, int64 m) => (float[p, q] y, int64 n) { e = SequenceEmpty() s = Loop(m, , e) <
        body = b (int64 i, bool t, seq(float[u, v]) v_in) => (c_out, v_out) { c_out = Identity(t)
            f = Cast<to = 1>(i) z = Mul(x, f) v_out = SequenceInsert(v_in, z) }>
        y = ConcatFromSequence<axis = 0>(s) n = SequenceLength(s) }"""
    for rounds in (1, 4):
        _check(graph, {"x": _ints(2, 3), "m": np.array(rounds)})


@pytest.mark.parametrize("condition", [True, False])
def test_lists_from_branches(condition: bool) -> None:
    graph = """g (bool c, float[n] x, seq(float[m]) s) => (seq(float[p]) y, seq(float[q]) z) { y, z = If(c) <
        then_branch = t () => (a, d) { a = SequenceConstruct(x, x) d = Identity(s) },
        else_branch = e () => (b, f) { b = SequenceEmpty() f = SequenceInsert(s, x) }> }"""
    _check(graph, {"c": np.array(condition), "x": _ints(3), "s": [_ints(2), _ints(4)]})


def test_a_graph_is_mapped_over_lists() -> None:
    graph = """g (seq(float[m]) s, float[1] x) => (seq(float[p]) y) { y = SequenceMap<
        body = b (float[u] v, float[1] w) => (float[r] z) { z = Mul(v, w) }>(s, x) }"""
    _check(graph, {"s": [_ints(3), _ints(2, seed=1)], "x": np.array([2], "float32")})


@pytest.mark.parametrize("value", [None, _ints(2, 3)])
def test_an_optional_tensor(value: Any) -> None:
    graph = """g (bool c, float[n, k] x) => (float[a, b] y, bool h) { o = If(c) <
        then_branch = t () => (p) { p = Optional(x) },
        else_branch = e () => (q) { q = Optional<type = tensor(float)>() }>
        h = OptionalHasElement(o) y = If(h) <
            then_branch = t2 () => (u) { u = OptionalGetElement(o) }, else_branch = e2 () => (w) { w = Neg(x) }> }"""
    graph = graph.replace("Optional<type = tensor(float)>()", "Optional(x)") if value is None else graph
    model = _model(graph.replace("<type = tensor(float)>", ""), 18)
    for node in model.graph.node[0].attribute[1].g.node:
        if not node.input:
            node.attribute.append(
                onnx.helper.make_attribute("type", onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None))
            )
    prepared = onnx_backend.prepare(model, backends=[])
    x = _ints(2, 3)
    y, has = prepared.run([np.array(True), x])
    assert has
    np.testing.assert_array_equal(y, x)
    y, has = prepared.run([np.array(False), x])
    assert bool(has) == (value is None)
    np.testing.assert_array_equal(y, x if value is None else -x)


def _optional_input(op: str, result: onnx.TypeProto) -> onnx.ModelProto:
    """Return a model of an optional input of floats with two axes."""
    tensor = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ["n", "m"])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, ["o"], ["y"])],
        "g",
        [onnx.helper.make_value_info("o", onnx.helper.make_optional_type_proto(tensor))],
        [onnx.helper.make_value_info("y", result)],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])


def test_an_optional_input() -> None:
    x = _ints(2, 3)
    flag = onnx.helper.make_tensor_type_proto(onnx.TensorProto.BOOL, [])
    tensor = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
    has = onnx_backend.prepare(_optional_input("OptionalHasElement", flag), backends=[])
    assert [bool(has.run([value])[0]) for value in (x, None)] == [True, False]
    get = onnx_backend.prepare(_optional_input("OptionalGetElement", tensor), backends=[])
    np.testing.assert_array_equal(get.run([x])[0], x)
    with pytest.raises(ByocError, match="an index lies outside axis 0"):
        get.run([None])
    same = onnx_backend.prepare(_optional_input("Identity", onnx.helper.make_optional_type_proto(tensor)), backends=[])
    np.testing.assert_array_equal(same.run([x])[0], x)
    assert same.run([None])[0] is None


def test_an_absent_value_known_during_import() -> None:
    with pytest.raises(FrontendError, match="reads an optional value that is absent"):
        from_onnx(_model("g (float[n] x) => (float[n] y) { o = Optional() y = OptionalGetElement(o) }", 18))


def test_what_a_model_takes_and_gives() -> None:
    module = from_onnx(
        _model("g (seq(float[m, n]) s, float[k] x) => (seq(float[a, b]) y, z) { y = Identity(s) z = Neg(x) }")
    )
    main = module["main"]
    assert main.input_names == ("s.elements", "s.shapes", "x")
    assert main.output_names == ("y.elements", "y.shapes", "z")
    machine = byoc_core.VirtualMachine(byoc_core.build(module, []))
    elements, shapes = pack_sequence(TENSORS)
    results = machine.run("main", {"s.elements": elements, "s.shapes": shapes, "x": _ints(2)})
    _same(unpack_sequence(*results[:2]), TENSORS)


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (
            "g (seq(float[n]) s, int64[n] x) => (seq(float[n]) y) { y = SequenceInsert(s, x) }",
            "node `y` (SequenceInsert): inserts a tensor of another dtype; got int64, expected float32",
        ),
        (
            "g (seq(float) s, int64 i) => (float y) { y = SequenceAt(s, i) }",
            "",
        ),
        (
            "g (seq(float[n]) s) => (float[n] y) { y = Neg(s) }",
            "node `y` (Neg): needs `s` as a tensor; got a sequence",
        ),
    ],
)
def test_what_is_refused(graph: str, text: str) -> None:
    model = _model(graph)
    if not text:
        model.graph.input[0].type.sequence_type.elem_type.tensor_type.ClearField("shape")
        text = (
            "node `y` (SequenceAt): needs the rank of the tensors in a sequence, but the rank is only known at run "
            "time. "
            "State the element type of the sequence with its axes in the model's input."
        )
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert str(caught.value) == f"ONNX model, {text}"


def test_tensors_of_several_ranks_pass_through() -> None:
    model = _model("g (seq(float) s, float[n] x) => (seq(float) y) { y = SequenceInsert(s, x) }")
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.sequence_type.elem_type.tensor_type.ClearField("shape")
    prepared = onnx_backend.prepare(model, backends=[])
    _same(prepared.run([[_ints(2, 3)], _ints(4)])[0], [_ints(2, 3), _ints(4)])
    _same(prepared.run([[], _ints(4)])[0], [_ints(4)])


_ARRAYS = hnp.arrays(
    "float32", hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=3), elements=st.integers(-9, 9)
)


@given(st.lists(_ARRAYS, max_size=4))
def test_packing_loses_nothing(tensors: list[Any]) -> None:
    elements, shapes = pack_sequence(tensors, dtype="float32", rank=2)
    assert (shapes.shape, elements.ndim) == ((len(tensors), 2), 1)
    _same(unpack_sequence(elements, shapes), tensors)


@pytest.mark.parametrize(
    ("tensors", "options"),
    [([_ints(2), _ints(2, 2)], {}), ([_ints(2)], {"dtype": "int64"}), ([_ints(2)], {"rank": 2})],
)
def test_tensors_that_do_not_fit(tensors: list[Any], options: dict[str, Any]) -> None:
    with pytest.raises(CallError, match="has another dtype or rank"):
        pack_sequence(tensors, **options)


@pytest.mark.parametrize("shapes", [[[2, 2]], [3], [[-1, 7]]])
def test_shapes_that_do_not_fit(shapes: Any) -> None:
    with pytest.raises(CallError, match="has shapes that do not fit the elements"):
        unpack_sequence(np.zeros(3, "float32"), np.array(shapes))


@given(st.lists(_ARRAYS, min_size=1, max_size=3), st.data())
def test_chains_of_ops_equal_a_list(tensors: list[Any], data: st.DataObject) -> None:
    feeds: dict[str, Any] = {"s": tensors, "x": _ints(1, 2)}
    expected, body = list(tensors), "s0 = Identity(s)"
    count = data.draw(st.integers(1, 4))
    for index in range(count):
        position = data.draw(st.integers(-len(expected), len(expected) - 1)) if expected else 0
        feeds[f"i{index}"] = np.array(position)
        is_erased: bool = data.draw(st.booleans())
        if expected and is_erased:
            del expected[position]
            body += f" s{index + 1} = SequenceErase(s{index}, i{index})"
        else:
            expected.insert(position, feeds["x"])
            body += f" s{index + 1} = SequenceInsert(s{index}, x, i{index})"
    positions = "".join(f", int64 i{index}" for index in range(count))
    graph = f"g (seq(float[m, n]) s, float[p, q] x{positions}) => (seq(float[a, b]) s{count}) {{ {body} }}"
    _same(onnx_backend.prepare(_model(graph), backends=[]).run(feeds)[0], expected)
