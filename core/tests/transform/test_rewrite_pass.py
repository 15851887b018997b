"""Passes of patterns and functions: replacements, combination, and errors."""

from __future__ import annotations

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.errors import IRTypeError, OptionsError, PatternError
from byoc_core.ir import IRModule, OpDef, OperandSpec, Value, Var, tensor, verify
from byoc_core.ops import default_ops
from byoc_core.pattern import Match, is_op, wildcard
from byoc_core.transform import RewritePass, Sequential, evaluate_function, pass_name, pattern_rewrite
from byoc_core.transform.rewriter import RewriteGraph

x, y, z = (wildcard().named(name) for name in "xyz")

MULADD = OpDef(
    "mynpu.muladd",
    tuple(map(OperandSpec, "xyz")),
    infer=lambda context: (context.operands[2],),
    kernel=lambda x, y, z: x * y + z,
)
OPS = default_ops().extended([MULADD])


@pattern_rewrite(is_op("add")(is_op("multiply")(x, y), z), is_op("add")(z, is_op("multiply")(x, y)))
def fuse(match: Match, graph: RewriteGraph) -> Value:
    """Make one op of a product and a sum."""
    return graph.emit("mynpu.muladd", [match["x"], match["y"], match["z"]])


@pattern_rewrite(is_op("negative")(is_op("subtract")(x, y)))
def swap(match: Match, graph: RewriteGraph) -> Value:
    return graph.emit("subtract", [match["y"], match["x"]])


@pattern_rewrite(is_op("mynpu.muladd")(x, y, is_op("exp")(z)))
def drop(match: Match, graph: RewriteGraph) -> Value | None:
    return match["x"] if match["x"].type == match.results[0].type else None


TEXT = """
def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
    a = R.multiply(x, y)
    b = R.add(x, a)
    c = R.subtract(b, x)
    d = R.negative(c)
    return d
"""


def module_of(text: str = TEXT) -> IRModule:
    return R.parse(text, ops=OPS)


def ops_of(module: IRModule) -> list[str]:
    return [binding.op.name for binding in module["main"].bindings]


def test_a_function_becomes_a_pass() -> None:
    module = module_of()
    after = verify(fuse(module))
    assert ops_of(after) == ["mynpu.muladd", "subtract", "negative"]
    assert fuse(after) is after
    assert pass_name(fuse) == "fuse"
    assert fuse.__doc__ == "Make one op of a product and a sum."
    assert [rule.name for rule in fuse.rules] == ["fuse"]
    inputs = [np.arange(3, dtype=np.float32), np.ones(3, np.float32)]
    for name in (module, after):
        np.testing.assert_array_equal(evaluate_function(name, "main", inputs)[0], [0, -1, -2])


def test_passes_are_combined() -> None:
    both = RewritePass(fuse, swap)
    after = Sequential([both])(module_of())
    assert ops_of(after) == ["mynpu.muladd", "subtract"]
    assert str(after) == str(Sequential([fuse, swap])(module_of()))
    assert pass_name(both) == "fuse+swap"
    assert pass_name(RewritePass(both, drop, name="all")) == "all"
    assert RewritePass(both) == both
    assert RewritePass()(after) is after


def test_a_rule_for_a_plugin_s_op_applies_to_it() -> None:
    text = TEXT.replace("b = R.add(x, a)", "e = R.exp(x)\n    b = R.add(e, a)")
    assert ops_of(RewritePass(fuse, drop)(module_of(text))) == ["subtract", "negative"]


def test_the_first_rule_that_gives_something_is_taken() -> None:
    @pattern_rewrite(is_op("negative")(x))
    def leave(match: Match, graph: RewriteGraph) -> None:
        graph.emit("exp", [match["x"]])  # goes, as it is not returned

    assert leave(module := module_of()) is module
    assert ops_of(RewritePass(leave, swap)(module))[-1] == "subtract"


def test_values_for_several_results() -> None:
    text = """
def main(x: R.Tensor((4,), "float32")):
    a, b = R.split(x, sections=(2, 2), axis=0)
    return a, b
"""

    @pattern_rewrite(is_op("split")(x))
    def halve(match: Match, graph: RewriteGraph) -> list[Value]:
        slices = [{"axes": (0,), "begin": (k,), "end": (k + 2,), "strides": (1,)} for k in (0, 2)]
        return [graph.emit("strided_slice", [match["x"]], attrs) for attrs in slices]

    after = verify(halve(module_of(text)))
    assert ops_of(after) == ["strided_slice", "strided_slice"]
    found = evaluate_function(after, "main", [np.arange(4, dtype=np.float32)])
    np.testing.assert_array_equal(np.concatenate(found), np.arange(4))


NO_VALUE = "did not return values; got {}, expected a value of the graph, a sequence of values, or None"
OTHER_TYPES = (
    'returned values with types differing from the results of `negative`; got {}, expected R.Tensor((3,), "float32")'
)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (1, NO_VALUE.format("int")),
        ("x", NO_VALUE.format("str")),
        ("", NO_VALUE.format("str")),
        ([1.5], NO_VALUE.format("float")),
        ((), OTHER_TYPES.format("none")),
        (Var("v", tensor((2,))), OTHER_TYPES.format('R.Tensor((2,), "float32")')),
    ],
)
def test_what_a_function_returns_is_checked(returned: object, message: str) -> None:
    @pattern_rewrite(is_op("negative")(x))
    def wrong(match: Match, graph: RewriteGraph) -> Value:
        return returned  # type: ignore[return-value]

    with pytest.raises(PatternError) as caught:
        wrong(module_of())
    assert str(caught.value) == f"rewrite `wrong`: {message}"


def test_what_a_function_raises_names_the_rule() -> None:
    with pytest.raises(IRTypeError, match=r"op `mynpu\.muladd`: is not known") as caught:
        fuse(R.parse(TEXT))
    assert caught.value.__notes__ == ["raised by rewrite `fuse`"]


def test_rewrites_without_end() -> None:
    @pattern_rewrite(is_op("negative")(x))
    def again(match: Match, graph: RewriteGraph) -> Value:
        return graph.emit("negative", [match["x"]])

    with pytest.raises(PatternError) as caught:
        again(module_of())
    assert str(caught.value) == (
        "rewrite `again`: finds matches without end. Replacements must not match rules again without end: return "
        "None if nothing is "
        "gained."
    )


def test_what_is_no_rule() -> None:
    def build(match: Match, graph: RewriteGraph) -> None: ...

    messages = []
    for patterns in ((), (wildcard(),), ("add",)):
        with pytest.raises(PatternError) as caught:
            pattern_rewrite(*patterns)(build)
        messages.append(str(caught.value))
    assert messages == [
        "rewrite `build`: has no pattern. Pass a pattern: @pattern_rewrite(is_op(...)(...)).",
        "rewrite `build`: has a pattern without an op at the end; got `*`",
        "rewrite `build`: received a value other than a pattern; got 'add'",
    ]
    with pytest.raises(OptionsError, match="pattern_rewrite: does not decorate a function; got 3"):
        pattern_rewrite(is_op("add"))(3)  # type: ignore[arg-type]
    with pytest.raises(OptionsError, match="RewritePass: received a value other than a rewrite; got 3"):
        RewritePass(3)  # type: ignore[arg-type]


def test_what_is_rewritten_runs() -> None:
    main = byoc_core.VirtualMachine(byoc_core.build(swap(R.parse(TEXT)), []))["main"]
    found = main(np.arange(3, dtype=np.float32), np.ones(3, np.float32))
    np.testing.assert_array_equal(np.asarray(found), [0, -1, -2])
