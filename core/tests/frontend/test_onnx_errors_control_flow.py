"""Bad control flow, scans and sequences: each gives a single clear error naming the node and the place."""

from __future__ import annotations

import pytest
from byoc_core.errors import FrontendError, UnsupportedOpsError
from byoc_core.frontend.onnx import from_onnx
from onnx import parser


def _refuse(model: str, error: type[FrontendError] = FrontendError) -> str:
    text = '<ir_version: 10, opset_import: ["" : 17, "local" : 1]> ' + model
    with pytest.raises(FrontendError) as caught:
        from_onnx(parser.parse_model(text))
    assert type(caught.value) is error
    if error is UnsupportedOpsError:  # the advice is tested in `test_register_op.py`
        return f"{caught.value.where}: {caught.value.problem}; got {caught.value.got}"
    return str(caught.value)


def _if(then: str, other: str, *, condition: str = "bool c", outputs: str = "y", weights: str = "") -> str:
    return f"""g ({condition}, float[n, 4] x) => (y) {weights} {{ {outputs} = If(c) <
        then_branch = t () => (a) {{ {then} }}, else_branch = e () => (b) {{ {other} }}> }}"""


def _loop(
    body: str,
    *,
    inputs: str = "m, c, x",
    outputs: str = "c_out, w",
    results: str = "y",
    limit: str = "int64 m",
    known: int = 2,
) -> str:
    return f"""g (float[n, 4] x, {limit}, bool c) => (y) <int64 k = {{{known}}}> {{ {results} = Loop({inputs}) <
        body = b (int64 i, bool t, v) => ({outputs}) {{ {body} }}> }}"""


def _scan(n: int = 1, attrs: str = "", ins: str = "v, p", body: str = "w = Add(v, p)", inputs: str = "p, p") -> str:
    return f"""g (float[k, 4] x, float[3, 4] p, float[5, 4] q) => (y) {{ y = Scan<num_scan_inputs = {n}{attrs},
        body = b ({ins}) => (w) {{ {body} }}>({inputs}) }}"""


def _seq(body: str) -> str:
    return f"g (float[n, 4] x, int64 i) => (y) <int64 one = {{1}}, int64 nine = {{9}}> {{ {body} }}"


_KEEP = "c_out = Identity(t) w = Neg(v)"
_GROW = "c_out = Identity(t) w = Concat<axis = 1>(v, x)"
_UNROLL_HINT = (
    "Dtype and rank may change if the rounds are unrolled: at most 256 nodes in all, a constant number of rounds, "
    "and a constantly true condition."
)

_REFUSED: list[tuple[str, str, str]] = [
    (
        "branches of different dtypes",
        _if("a = Neg(x)", "b = Cast<to = 7>(x)"),
        (
            'node `y` (If): the branches disagree on the type of output `y`; got R.Tensor(("n", 4), "float32") '
            'and R.Tensor(("n", 4), "int64"), expected the same dtype and rank, because the '
            "condition is computed at run time"
        ),
    ),
    (
        "branches with other numbers of outputs",
        _if("a = Neg(x)", "b = Neg(x)", outputs="y, z"),
        ("node `y` (If): attribute `then_branch` and the node have different numbers of outputs; got 1, expected 2"),
    ),
    (
        "a condition of several elements",
        _if("a = Neg(x)", "b = Neg(x)", condition="bool[2] c"),
        (
            'node `y` (If): the condition is not a scalar of the right dtype; got R.Tensor((2,), "bool"), '
            'expected R.Tensor((), "bool")'
        ),
    ),
    (
        "a condition that is no bool",
        _if("a = Neg(x)", "b = Neg(x)", condition="float c"),
        (
            'node `y` (If): the condition is not a scalar of the right dtype; got R.Tensor((), "float32"), '
            'expected R.Tensor((), "bool")'
        ),
    ),
    (
        "a known condition that is no bool",
        _if("a = Neg(x)", "b = Neg(x)", condition="float d", weights="<float c = {1}>"),
        ("node `y` (If): the condition is not a scalar of the right dtype; got float32 of shape (), expected bool"),
    ),
    (
        "a branch with inputs",
        _if("a = Neg(x)", "b = Neg(x)").replace("t ()", "t (u)"),
        "node `y` (If), attribute `then_branch`: has the wrong number of inputs; got 1, expected 0",
    ),
    (
        "a branch reads what is not there",
        _if("a = Neg(z)", "b = Neg(x)"),
        (
            "node `y` (If), attribute `then_branch`, node `a` (Neg): reads undefined value `z`: no input, initializer "
            "or node output has this name"
        ),
    ),
    (
        "a branch gives what is not there",
        _if("q = Neg(x)", "b = Neg(x)"),
        (
            "node `y` (If), attribute `then_branch`, output `a`: reads undefined value `a`: no input, initializer or "
            "node output has this name"
        ),
    ),
    (
        "a branch defines a name twice",
        _if("a = Neg(x) a = Abs(x)", "b = Neg(x)"),
        "node `y` (If), attribute `then_branch`, node `a` (Abs): defines `a` a second time",
    ),
    (
        "a cycle in a branch",
        _if("a = Neg(d) d = Neg(a)", "b = Neg(x)"),
        (
            "node `y` (If), attribute `then_branch`: the graph has a cycle; got nodes on or behind the cycle: node "
            "`a` (Neg), node `d` (Neg)"
        ),
    ),
    (
        "an error deep inside",
        _if(
            "a = If(c) <then_branch = p () => (u) { u = Squeeze(x, ax) }, else_branch = q () => (u) { u = Neg(x) }>",
            "b = Neg(x)",
            weights="<int64[1] ax = {7}>",
        ),
        (
            "node `y` (If), attribute `then_branch`, node `a` (If), attribute `then_branch`, node `u` "
            "(Squeeze): names no axis of a tensor of rank 2; got 7"
        ),
    ),
    (
        "a body without the condition",
        _loop(_KEEP, outputs="w"),
        (
            "node `y` (Loop): attribute `body` has the wrong number of outputs; got 1, expected the "
            "condition, 1 carried values, then the scan outputs"
        ),
    ),
    (
        "a body with other inputs",
        _loop(_KEEP, inputs="m, c, x, x", outputs="c_out, w, w"),
        "node `y` (Loop): attribute `body` has the wrong number of inputs; got 3, expected 4",
    ),
    (
        "a carried value of another dtype",
        _loop("c_out = Identity(t) w = Cast<to = 7>(v)", inputs="m, c, x"),
        (
            'node `y` (Loop): carried value `v` changes type from round to round; got R.Tensor(("n", 4), '
            '"int64"), expected R.Tensor(("n", 4), "float32"). '
        )
        + _UNROLL_HINT,
    ),
    (
        "too many rounds to unroll",
        _loop("c_out = Identity(t) w = Cast<to = 7>(v)", inputs="k, , x", known=200),
        (
            'node `y` (Loop): carried value `v` changes type from round to round; got R.Tensor(("n", 4), '
            '"int64"), expected R.Tensor(("n", 4), "float32"). '
        )
        + _UNROLL_HINT,
    ),
    (
        "a scan output of a size that changes",
        _loop(_GROW, inputs="k, , x", outputs="c_out, w, w", results="y, s"),
        (
            'node `y` (Loop): stacks tensors of different types; got R.Tensor(("n", 12), "float32"), '
            'expected R.Tensor(("n", 8), "float32")'
        ),
    ),
    (
        "slices of a scan output whose size a round tells, in no rounds",
        _loop(
            "c_out = Identity(t) w = Neg(v) s = NonZero(w)",
            inputs="k, , x",
            outputs="c_out, w, s",
            results="y, z",
            known=0,
        ),
        (
            "node `y` (Loop): the slices of a scan output have a size computed at run time by the body; got "
            'R.Tensor((2, "nonzero"), "int64"), expected sizes known outside the body'
        ),
    ),
    (
        "conditions that give one another",
        _loop("c_out = Identity(d) d = Identity(c_out) w = Neg(v)", inputs="k, , x"),
        (
            "node `y` (Loop), attribute `body`: the graph has a cycle; got nodes on or behind the cycle: node `c_out` "
            "(Identity), node `d` (Identity)"
        ),
    ),
    (
        "a condition of nothing",
        _loop("c_out = Identity() w = Neg(v)", inputs="k, , x"),
        (
            "node `y` (Loop), attribute `body`, node `c_out` (Identity): has the wrong number of inputs; "
            "got 0, expected 1"
        ),
    ),
    (
        "a number of rounds that is no int64",
        _loop(_KEEP, limit="int32 m"),
        (
            "node `y` (Loop): the number of rounds is not a scalar of the right dtype; got R.Tensor((), "
            '"int32"), expected R.Tensor((), "int64")'
        ),
    ),
    (
        "a body's condition of several elements",
        _loop("c_out = Less(v, x) w = Neg(v)"),
        (
            'node `y` (Loop): the condition is not a scalar of the right dtype; got R.Tensor(("n", 4), "bool"), '
            'expected R.Tensor((), "bool")'
        ),
    ),
    (
        "scan: inputs of two lengths",
        _scan(n=2, ins="v, p, q", body="w = Add(p, q)", inputs="p, p, q"),
        "node `y` (Scan): the scan inputs differ in length; got 5, expected 3",
    ),
    ("scan: no inputs", _scan(n=0), "node `y` (Scan): attribute `num_scan_inputs` does not fit the inputs; got 0"),
    (
        "scan: body",
        _scan(ins="v"),
        (
            "node `y` (Scan): attribute `body` has the wrong number of inputs or outputs; got 1 and 1, "
            "expected 2, and 1 or more"
        ),
    ),
    (
        "scan: too many directions",
        _scan(attrs=", scan_input_directions = [1, 0]"),
        ("node `y` (Scan): attribute `scan_input_directions` has the wrong number of elements; got 2, expected 1"),
    ),
    (
        "scan: no such axis",
        _scan(attrs=", scan_input_axes = [2]"),
        "node `y` (Scan): names no axis of a tensor of rank 2; got 2",
    ),
    (
        "a sequence as a tensor",
        _seq("s = SequenceConstruct(x, x) y = Neg(s)"),
        "node `y` (Neg): needs `s` as a tensor; got a sequence of 2",
    ),
    (
        "a tensor as a sequence",
        _seq("y = SequenceAt(x, one)"),
        'node `y` (SequenceAt): the first input is not a sequence; got <var x: R.Tensor(("n", 4), "float32")>',
    ),
    (
        "no such position",
        _seq("s = SequenceConstruct(x, x) y = SequenceAt(s, nine)"),
        "node `y` (SequenceAt): the position is outside a sequence of 2 elements; got 9",
    ),
    (
        "nothing to join",
        _seq("s = SequenceEmpty() y = ConcatFromSequence<axis = 0>(s)"),
        "node `y` (ConcatFromSequence): joins the elements of an empty sequence",
    ),
    (
        "a sequence from one branch",
        _if("a = SequenceConstruct(x)", "b = Neg(x)"),
        "node `y` (If): has output `y` as a tensor in one place, and as a sequence in another",
    ),
    (
        "elements of several ranks",
        _if("a = SequenceConstruct(x)", "b = SequenceConstruct(x, c)"),
        (
            "node `y` (If): has a sequence of tensors that differ in dtype or rank; "
            'got R.Tensor((), "bool"), expected like R.Tensor(("n", 4), "float32")'
        ),
    ),
    (
        "parts of no size",
        _seq("z = Sub(one, one) s = SplitToSequence<axis = 0>(x, z) y = SequenceAt(s, one)"),
        "node `s` (SplitToSequence): splits an axis into parts of no size; got 0",
    ),
    (
        "joined elements differ",
        _seq("s = SequenceConstruct(x, i) y = ConcatFromSequence<axis = 0, new_axis = 1>(s)"),
        (
            'node `y` (ConcatFromSequence): stacks tensors of different types; got R.Tensor((), "int64"), '
            'expected R.Tensor(("n", 4), "float32")'
        ),
    ),
]


@pytest.mark.parametrize(("model", "expected"), [case[1:] for case in _REFUSED], ids=[case[0] for case in _REFUSED])
def test_what_is_refused(model: str, expected: str) -> None:
    assert _refuse(model) == f"ONNX model, {expected}"


def test_unsupported_ops_inside_are_listed_with_counts() -> None:
    """Nodes of nested graphs count, and nodes of a function once for each call."""
    inner = """then_branch = t () => (a) { p = NoSuchOp(x) a = Neg(p) },
        else_branch = e () => (a) { q = NoSuchOp(x) a = NorThis(q) }"""
    function = '<domain: "local", opset_import: ["" : 17]> F (u) => (v) { w = Neg(u) v = NoSuchOp(w) }'
    text = f"g (bool c, float[4, 4] x) => (y) {{ h = If(c) <{inner}> k = local.F(h) y = local.F(k) }} {function}"
    assert _refuse(text, UnsupportedOpsError) == (
        "ONNX model: 5 of 9 nodes have unsupported ops; got NoSuchOp (4x), NorThis (1x)"
    )
