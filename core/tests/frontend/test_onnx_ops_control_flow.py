"""Control flow, scans and sequences of ONNX, at every changing opset, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core import script as R
from byoc_core.frontend.onnx import from_onnx
from byoc_core.frontend.onnx.ops.rounds import MAX_UNROLLED_NODES
from byoc_core.ir.module import IRModule
from byoc_core.ir.verifier import verify
from onnx import parser

from core.tests.frontend.conftest import Array

NEWEST = 26  # the newest opset of the oracle
MANY = MAX_UNROLLED_NODES + 1  # rounds that are not unrolled

Feeds = dict[str, Any]
Cases = list[tuple[str, Feeds]]


def _model(graph: str, opset: int = 17) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {graph}')


def _ints(*shape: int, seed: int = 0, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def _scalar(value: object, dtype: str = "int64") -> Any:
    return np.array(value, dtype)


_BOTH = (np.array(True), np.array(False))


def _if(opset: int) -> Cases:
    branches = """then_branch = t () => (float[n, 4] a, float[n, 4] b) { a = Neg(x)  b = Add(a, z) },
        else_branch = e () => (float[n, 4] p, float[n, 4] q) { p = Add(z, z)  q = Identity(x) }"""
    runtime = (
        f"g (bool c, float[n, 4] x) => (float[n, 4] y, float[n, 4] s) {{ z = Mul(x, x) y, s = If(c) <{branches}> }}"
    )
    with_axis = runtime.replace("bool c", "bool[1] c")
    nested = """g (bool c, bool d, float[n, 4] x) => (float[n, 4] y) { y = If(c) <
        then_branch = t () => (float[n, 4] a) { a = If(d) <
            then_branch = u () => (float[n, 4] b) { b = Neg(x) },
            else_branch = v () => (float[n, 4] b) { w = Add(x, x) b = Mul(w, x) }> },
        else_branch = e () => (float[n, 4] a) { a = Identity(x) }> }"""
    x = _ints(3, 4)
    return [
        *((runtime, {"c": c, "x": x}) for c in _BOTH),
        *((with_axis, {"c": c.reshape(1), "x": x}) for c in _BOTH),
        *((nested, {"c": c, "d": d, "x": x}) for c in _BOTH for d in _BOTH),
    ]


def _loop(opset: int) -> Cases:
    """All optional parts, both forms of the loop, rounds ending early, and no rounds."""
    x = _ints(3, 4)
    header = "float[3, 4] x, int64 m, bool c"
    rounds = "body = b (int64 i, bool c_in, float[3, 4] v, float[3, 4] w)"
    adding = (
        f"{rounds} => (bool c_out, float[3, 4] p, float[3, 4] q) {{ c_out = Identity(c_in) p = Add(v, x) q = Neg(v) }}"
    )
    ending = adding.replace(
        "c_out = Identity(c_in)", "k = Cast<to = 1>(i) four = Constant<value = float {4}>() c_out = Less(k, four)"
    )
    scanning = f"""{rounds} => (bool c_out, float[3, 4] p, float[3, 4] q, float[3, 4] r, float s) {{
        c_out = Identity(c_in) p = Add(v, x) q = Neg(v) r = Add(w, p) s = Cast<to = 1>(i) }}"""
    two = "float[3, 4] y, float[3, 4] z"
    stacked = "float[k, 3, 4] y_scan, float[k] z_scan"

    def known(count: int) -> str:
        outputs = f"{two}, {stacked}".replace("k,", f"{count},").replace("[k]", f"[{count}]")
        head = f"g (float[3, 4] x) => ({outputs}) <int64 m = {{{count}}}>"
        return f"{head} {{ y, z, y_scan, z_scan = Loop(m, , x, x) <{scanning}> }}"

    both = f"g ({header}) => ({two}) {{ y, z = Loop(m, c, x, x) <{{body}}> }}"
    cases: Cases = []
    for body in (adding, ending):
        text = both.replace("{body}", body)
        cases += [(text, {"x": x, "m": _scalar(m), "c": np.array(c)}) for m in (0, 3, 9) for c in (True, False)]
        no_condition = text.replace("(m, c,", "(m, ,").replace(", bool c)", ")")
        cases += [(no_condition, {"x": x, "m": _scalar(m)}) for m in (0, 9)]
    no_limit = both.replace("{body}", ending).replace("(m, c,", "(, c,").replace("int64 m, ", "")
    cases += [(no_limit, {"x": x, "c": np.array(c)}) for c in (True, False)]
    cases.append((no_limit.replace("(, c,", "(, ,").replace(", bool c)", ")"), {"x": x}))
    cases += [(known(count), {"x": x}) for count in (0, 1, 5, MANY)]
    return [*cases, *(_loop_of_captured_sizes() if opset >= 11 else ())]


def _loop_of_captured_sizes() -> Cases:
    """Sizes computed around the rounds: ``m//2`` in bodies, as number of rounds, and in nested rounds."""
    head = """g (float[n, m] x) => (float[k, q] y) <int64 zero = {0}, int64 one = {1}, int64 two = {2}> {
        yes = Constant<value = bool {1}>() s = Shape(x) n = Gather(s, zero) m = Gather(s, one) half = Div(m, two)"""
    body = "body = b (int64 i, bool c) => (bool d, float[q] w) { d = Identity(c)"
    chain = f"""{head} first = Constant<value = int64[1] {{0}}>() shape = Constant<value = int64[1] {{1}}>()
        end = Reshape(half, shape) y = Loop(n, yes) <{body} row = Gather(x, i) left = Slice(row, first, end, first)
        r = Range(zero, half, one) f = Cast<to = 1>(r) w = Add(left, f) }}> }}"""
    nested = f"""{head} y = Loop(half, yes) <{body} col = Gather<axis = 1>(x, i) w = Loop(n, yes) <
        body = e (int64 j, bool t) => (bool u, float o) {{ u = Identity(t) p = Gather(col, j) f = Cast<to = 1>(j)
            o = Mul(p, f) }}> }}> }}"""
    return [(text, {"x": _ints(*shape)}) for text in (chain, nested) for shape in ((1, 2), (3, 5))]


def _scan(opset: int) -> Cases:
    body = """body = b (float[4] v, float[2] p, float[4] q) => (float[4] w, float[2] r, float[4] s) {
        w = Add(v, q) r = Neg(p) s = Mul(q, q) }"""
    if opset < 9:
        return _scan_of_batches(body)
    cases: Cases = []
    for length in (1, 5, MANY):
        text = f"""g (float[4] v, float[{length}, 2] p, float[{length}, 4] q)
            => (float[4] w, float[{length}, 2] r, float[{length}, 4] s)
            {{ w, r, s = Scan <num_scan_inputs = 2, {body}>(v, p, q) }}"""
        cases.append((text, {"v": _ints(4), "p": _ints(length, 2), "q": _ints(length, 4, seed=1)}))
        attributes = "scan_input_directions = [1, 0], scan_output_directions = [0, 1], scan_input_axes = [1, 0]"
        if opset >= 11:
            attributes = attributes.replace("[1, 0], scan_output", "[1, 0], scan_output").replace(
                "axes = [1, 0]", "axes = [-1, 0]"
            )
        text = f"""g (float[4] v, float[2, {length}] p, float[{length}, 4] q)
            => (float[4] w, float[2, {length}] r, float[{length}, 4] s)
            {{ w, r, s = Scan <num_scan_inputs = 2, {attributes}, scan_output_axes = [1, 0], {body}>(v, p, q) }}"""
        cases.append((text, {"v": _ints(4), "p": _ints(2, length), "q": _ints(length, 4, seed=1)}))
    return [*cases, *_scan_of_dynamic_length()]


def _scan_of_dynamic_length() -> Cases:
    """A scan as long as an input: forwards and backwards, and the same as a loop."""
    cases: Cases = []
    for back in (0, 1):
        text = f"""g (float[4] v, float[n, 2] p, float[n, 4] q) => (float[4] w, float[n, 2] r, float[n, 4] s) {{
            w, r, s = Scan <num_scan_inputs = 2, scan_input_directions = [1, 0], scan_output_directions = [{back}, 0],
                body = b (float[4] v, float[2] p, float[4] q) => (float[4] w, float[2] r, float[4] s) {{
                    w = Add(v, q) r = Neg(p) s = Mul(q, w) }}>(v, p, q) }}"""
        cases += [(text, {"v": _ints(4), "p": _ints(n, 2), "q": _ints(n, 4, seed=1)}) for n in (1, 5)]
    loop = """g (float[n, 4] x) => (float[4] y, float[k, 4] s) <int64 zero = {0}> {
        t = Shape(x) m = Gather(t, zero) z = Gather(x, zero) y, s = Loop(m, , z) <
            body = b (int64 i, bool c, float[4] v) => (bool d, float[4] w, float[4] r) {
                d = Identity(c) u = Gather(x, i) w = Add(v, u) r = Neg(w) }> }"""
    return [*cases, *((loop, {"x": _ints(n, 4)}) for n in (1, 5))]


def _scan_of_batches(body: str) -> Cases:
    cases: Cases = []
    for length in (1, 5, MANY):
        text = f"""g (float[2, 4] v, float[2, {length}, 2] p, float[2, {length}, 4] q)
            => (float[2, 4] w, float[2, {length}, 2] r, float[2, {length}, 4] s)
            <int64[2] lengths = {{{length}, {length}}}>
            {{ w, r, s = Scan <num_scan_inputs = 2, directions = [0, 1], {body}>(, v, p, q) }}"""
        feeds = {"v": _ints(2, 4), "p": _ints(2, length, 2), "q": _ints(2, length, 4, seed=1)}
        cases += [(text, feeds), (text.replace("(, v", "(lengths, v"), feeds)]
    return cases


def _construct(opset: int) -> Cases:
    """Every way to change a sequence, and both ways to join one."""
    x, y = _ints(2, 3), _ints(2, 3, seed=1)
    constants = "<int64 one = {1}, int64 back = {-1}, int64 first = {-3}, int64 end = {3}>"
    changes = [
        "s = SequenceInsert(t, z)",
        "s = SequenceInsert(t, z, one)",
        "s = SequenceInsert(t, z, back)",
        "s = SequenceInsert(t, z, first)",
        "s = SequenceInsert(t, z, end)",
        "s = SequenceErase(t)",
        "s = SequenceErase(t, one)",
        "s = SequenceErase(t, first)",
        "e = SequenceEmpty<dtype = 1>() s = SequenceInsert(e, z)",
    ]
    joins = ["y = ConcatFromSequence<axis = 1>(s)", "y = ConcatFromSequence<axis = -2, new_axis = 1>(s)"]
    return [
        (
            f"""g (float[2, 3] a, float[2, 3] b) => (y, n, k) {constants} {{ z = Neg(a) t = SequenceConstruct(a, b, z)
            {change} {join} n = SequenceLength(s) k = SequenceAt(s, back) }}""",
            {"a": x, "b": y},
        )
        for change in changes
        for join in joins
    ]


def _split_to_sequence(opset: int) -> Cases:
    cases: Cases = []
    constants = "<int64 two = {2}, int64[3] parts = {1, 3, 1}, int64 zero = {0}, int64 last = {-1}>"
    for split, attributes in (
        ("", "axis = 1"),
        ("", "axis = -1, keepdims = 0"),
        (", two", "axis = 1"),
        (", parts", "axis = 1"),
    ):
        text = f"""g (float[2, 5] x) => (a, b, n) {constants} {{ s = SplitToSequence <{attributes}>(x{split})
            a = SequenceAt(s, zero) b = SequenceAt(s, last) n = SequenceLength(s) }}"""
        cases.append((text, {"x": _ints(2, 5)}))
    return cases


def _optional(opset: int) -> Cases:
    text = """g (float[n, 4] x) => (float[n, 4] y, bool h) {
        o = Optional(x) h = OptionalHasElement(o) y = OptionalGetElement(o) }"""
    return [(text, {"x": _ints(3, 4)})]


_CASES: dict[str, Callable[[int], Cases]] = {
    "ConcatFromSequence": _construct,
    "If": _if,
    "Loop": _loop,
    "Optional": _optional,
    "OptionalGetElement": _optional,
    "OptionalHasElement": _optional,
    "Scan": _scan,
    "SequenceAt": _construct,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SequenceErase": _construct,
    "SequenceInsert": _construct,
    "SequenceLength": _construct,
    "SplitToSequence": _split_to_sequence,
}

Check = Callable[..., IRModule]


def test_op_equals_onnx_runtime(op_type: str, opset: int, check_model: Check) -> None:
    for text, feeds in _CASES[op_type](opset):
        module = check_model(_model(text, opset), feeds)
        verify(module)
        assert R.parse(str(module), constants=module.constants) == module


@pytest.mark.parametrize("op_type", ["If", "Loop", "Scan", "SplitToSequence"])
def test_the_machine_runs_what_was_saved(op_type: str, tmp_path: Path, run: Callable[..., Sequence[Array]]) -> None:
    executables: dict[str, byoc_core.Executable] = {}
    for text, feeds in _CASES[op_type](NEWEST):
        model = _model(text, NEWEST)
        if text not in executables:
            byoc_core.build(from_onnx(model), []).save(tmp_path / "model.byoc")
            executables[text] = byoc_core.load(tmp_path / "model.byoc")
        results = byoc_core.VirtualMachine(executables[text]).run("main", feeds)
        pairs = zip(results if isinstance(results, tuple) else (results,), run(model, feeds), strict=True)
        for result, wanted in pairs:
            np.testing.assert_array_equal(result, wanted)


def _ops(module: IRModule) -> list[str]:
    """Return the ops of ``main``, with the ops of a region before the op of the region."""
    return [binding.op.name for binding in module["main"].walk()]


_ADDING = (
    "body = b (int64 i, bool c_in, float[n] v) => (bool c_out, float[n] w) { c_out = Identity(c_in) w = Add(v, x) }"
)


@pytest.mark.parametrize(
    ("condition", "op"),
    [
        ("<bool c = {1}> {", "negative"),
        ("<bool[1] c = {0}> {", "abs"),
        ("<int64 four = {4}, int64 one = {1}> { s = Shape(x) d = Gather(s, one) c = Equal(d, four)", "negative"),
        ("<int64 minus = {-1}, int64 zero = {0}> { s = Shape(x) d = Gather(s, zero) c = Equal(d, minus)", "abs"),
    ],
)
def test_only_the_branch_that_is_taken_is_imported(condition: str, op: str, check_model: Check) -> None:
    text = f"""g (float[n, 4] x) => (y) {condition} y = If(c) <
        then_branch = t () => (a) {{ a = Neg(x) }}, else_branch = e () => (a) {{ a = Abs(x) }}> }}"""
    assert _ops(check_model(_model(text), {"x": _ints(3, 4)})) == [op]


def test_branches_may_differ_where_the_condition_is_known(check_model: Check) -> None:
    text = """g (float[n, 1] x) => (y) <int64 one = {1}, int64[1] axes = {1}> {
        s = Shape(x) d = Gather(s, one) c = Equal(d, one) y = If(c) <
        then_branch = t () => (a) { a = Squeeze(x, axes) }, else_branch = e () => (a) { a = Identity(x) }> }"""
    assert _ops(check_model(_model(text), {"x": _ints(3, 1)})) == ["reshape"]


def test_regions_take_what_they_read_and_nothing_else(check_model: Check) -> None:
    """The loop's body reads ``z`` only inside the branch, and of ``unused`` only the type."""
    text = """g (float[n] x, float[n] z, float[n] unused, int64 m, bool d) => (float[n] y) { o = Loop(m, , x) <
        body = b (int64 i, bool c_in, float[n] v) => (bool c_out, float[n] w) {
            c_out = Identity(c_in) size = Shape(unused) w = If(d) <
                then_branch = t () => (float[n] a) { a = Add(v, z) },
                else_branch = e () => (float[n] a) { one = ConstantOfShape(size) a = Sub(v, one) }> }> y = Neg(o) }"""
    for d in _BOTH:
        feeds = {"x": _ints(3), "z": _ints(3, seed=1), "unused": _ints(3), "m": _scalar(3), "d": d}
        module = check_model(_model(text), feeds)
        verify(module)
    loop = next(binding for binding in module["main"].bindings if binding.op.name == "loop")
    branch = next(binding for binding in loop.regions[0].bindings if binding.op.name == "if")
    assert [operand.name for operand in loop.operands if hasattr(operand, "name")] == ["m", "x", "d", "z"]
    assert [param.name for param in loop.regions[0].params] == ["i", "v", "d", "z"]
    assert [[param.name for param in region.params] for region in branch.regions] == [["v", "z"]] * 2


def test_names_inside_hide_those_around(check_model: Check) -> None:
    """``x`` and ``t`` of the body hide the graph's, ``t`` of the branch hides the body's; the oracle refuses this."""
    text = """g (float[n] x, int64 m, bool d) => (float[n] y) { t = Neg(x) o = Loop(m, , t) <
        body = b (int64 i, bool c_in, float[n] x1) => (bool c_out, float[n] w) {
            c_out = Identity(c_in) t1 = Add(x1, x1) u = If(d) <
                then_branch = p () => (float[n] t2) { t2 = Abs(x1) },
                else_branch = e () => (float[n] a) { a = Identity(t1) }>
            w = Add(u, t1) }> y = Add(o, t) }"""
    hiding = text.replace("x1", "x").replace("t1", "t").replace("t2", "t")
    for d in _BOTH:
        feeds = {"x": _ints(3), "m": _scalar(2), "d": d}
        assert from_onnx(_model(hiding)) == check_model(_model(text), feeds)


def test_nodes_wait_for_what_graphs_inside_read(check_model: Check) -> None:
    text = f"""g (float[n] a, float[n] f, int64 m) => (float[n] y) {{ y = Loop(m, , f) <{_ADDING}> x = Neg(a) }}"""
    model = _model(text)
    nodes = list(model.graph.node)
    module = from_onnx(model)
    del model.graph.node[:]
    model.graph.node.extend(nodes[::-1])
    assert check_model(model, {"a": _ints(3), "f": _ints(3, seed=1), "m": _scalar(3)}) == module


def test_what_is_known_stays_known_inside(check_model: Check) -> None:
    """The target of the body's reshape is computed around the body; weights around and inside are constants."""
    text = """g (float[n, 4] x, int64 m) => (float[n, 4] y) <float[4] weight = {1, 2, 3, 4}, int64[1] two = {2}> {
        s = Shape(x) flat = Mul(s, two) y = Loop(m, , x) <body = b (int64 i, bool c_in, float[n, 4] v)
            => (bool c_out, float[n, 4] w) <int64[2] shape = {4, -1}> {
            c_out = Identity(c_in) p = Add(v, weight) q = Reshape(p, shape) w = Reshape(q, s) }> }"""
    module = check_model(_model(text), {"x": _ints(3, 4), "m": _scalar(2)})
    assert _ops(module) == ["add", "reshape", "reshape", "loop"]


def test_rounds_are_unrolled_up_to_a_limit(check_model: Check) -> None:
    for count, expected in ((MAX_UNROLLED_NODES // 2, ["add"] * (MAX_UNROLLED_NODES // 2)), (MANY, ["add", "loop"])):
        text = f"g (float[n] x) => (float[n] y) <int64 m = {{{count}}}> {{ y = Loop(m, , x) <{_ADDING}> }}"
        assert _ops(check_model(_model(text), {"x": _ints(3)})) == expected


def test_nested_rounds_are_unrolled_up_to_one_limit(check_model: Check) -> None:
    """Ten rounds of twenty rounds of two nodes exceed the limit, though neither does alone."""
    inner = _ADDING.replace("v)", "u)").replace("Add(v", "Add(u")
    text = f"""g (float[n] x) => (float[n] y) <int64 m = {{10}}, int64 k = {{20}}> {{ y = Loop(m, , x) <
        body = b (int64 j, bool d_in, float[n] v) => (bool d_out, float[n] o) {{
            d_out = Identity(d_in) t = Neg(v) o = Loop(k, , t) <{inner}> }}> }}"""
    module = check_model(_model(text), {"x": _ints(3)})
    assert _ops(module) == ["negative", "add", "loop"] * 10


@pytest.mark.parametrize(
    "true",
    [
        "c_out = Identity(c_in)",
        "always = Constant<value = bool {1}>() c_out = Identity(always)",
        "c_out = Identity(yes)",
    ],
)
def test_shapes_may_grow_where_rounds_are_unrolled(true: str, check_model: Check) -> None:
    text = f"""g (float[n, 2] x) => (y, s) <int64 m = {{3}}, bool yes = {{1}}> {{ y, s = Loop(m, yes, x) <
        body = b (int64 i, bool c_in, v) => (c_out, w, k) {{ {true} w = Concat<axis = 1>(v, x) k = Mul(i, i) }}> }}"""
    model = _model(text)
    for graph in (model.graph.node[0].attribute[0].g, model.graph):
        for value in (*graph.input[2:], *graph.output):
            value.type.tensor_type.elem_type = 9 if value.name == "c_out" else 7 if value.name in ("k", "s") else 1
    module = check_model(model, {"x": _ints(3, 2)})
    assert [str(type_) for type_ in module["main"].result_types] == [
        'R.Tensor(("n", 8), "float32")',
        'R.Tensor((3,), "int64")',
    ]


def test_a_round_that_is_never_run_still_gives_its_types(check_model: Check) -> None:
    text = """g (float[3, 2] x) => (float[3, 2] y, float[0, 3, 2] s) <int64 m = {7}, bool no = {0}> {
        y, s = Loop(m, no, x) <body = b (int64 i, bool c_in, float[3, 2] v)
            => (bool c_out, float[3, 2] w, float[3, 2] k) { c_out = Identity(c_in) w = Add(v, x) k = Mul(w, w) }> }"""
    assert _ops(check_model(_model(text), {"x": _ints(3, 2)})) == ["broadcast_to"]


def test_sequences_pass_through_branches_and_rounds(check_model: Check) -> None:
    text = """g (float[n, 2] x) => (float[n, 8] y) <int64 m = {3}, bool yes = {1}> {
        e = SequenceConstruct(x) f = If(yes) <then_branch = t () => (seq(float[n, 2]) p) { p = SequenceInsert(e, x) },
            else_branch = u () => (seq(float[n, 2]) p) { p = Identity(e) }>
        s = Loop(m, yes, f) <body = b (int64 i, bool c_in, seq(float[n, 2]) v) => (bool c_out, seq(float[n, 2]) w) {
            c_out = Identity(c_in) k = Neg(x) w = SequenceInsert(v, k) }>
        d = SequenceErase(s) y = ConcatFromSequence<axis = 1>(d) }"""
    module = check_model(_model(text), {"x": _ints(3, 2)})
    assert _ops(module) == ["negative"] * 3 + ["concat"]


def test_a_sequence_of_sizes_is_a_shape(check_model: Check) -> None:
    text = """g (float[n, 6] x) => (y) <int64 zero = {0}, int64 two = {2}, int64 three = {3}> {
        s = Shape(x) d = Gather(s, zero) q = SequenceConstruct(d, two, three)
        t = ConcatFromSequence<axis = 0, new_axis = 1>(q) y = Reshape(x, t) }"""
    module = check_model(_model(text), {"x": _ints(3, 6)})
    assert str(module["main"].result_types[0]) == 'R.Tensor(("n", 2, 3), "float32")'


def test_locations_name_the_nodes_around() -> None:
    text = f"g (float[n] x, int64 m) => (float[n] y) {{ y = Loop(m, , x) <{_ADDING}> }}"
    loop = from_onnx(_model(text))["main"].bindings[0]
    assert str(loop.location) == "ONNX model:y"
    assert [str(binding.location) for binding in loop.regions[0].bindings] == ["ONNX model:y/w"]
