"""Rules: names have the meaning of the module's registry."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.errors import IRError, IRTypeError
from byoc_core.ir import Binding, FunctionBuilder, IRModule, OpDef, OperandSpec, TensorType, Trait, Type, Value, tensor
from byoc_core.ops import default_ops
from byoc_core.opset.contexts import TypeContext
from byoc_core.pattern import is_op, wildcard
from byoc_core.transform import Canonicalise
from byoc_core.transform.rewriter import RewriteGraph, pattern_rule, rewrite_module

X, Y = OperandSpec("x"), OperandSpec("y")


def same(context: TypeContext) -> tuple[Type, ...]:
    return (context.operands[0],)


SWISH = OpDef("mynpu.swish", (X,), infer=same)
TWINS = OpDef("mynpu.twins", (X,), infer=lambda context: (context.operands[0], context.operands[0]))
OPS = default_ops().extended([SWISH, TWINS])
ONE_OP = """
def main(x: R.Tensor((2,), "float32")):
    y = R.{op}(x)
    return y
"""


def names_of(module: IRModule) -> list[str]:
    return [binding.op.name for binding in module["main"].bindings]


def rewrite(module: IRModule, op: str, to: str | OpDef) -> IRModule:
    def rule(binding: Binding, graph: RewriteGraph) -> Sequence[Value]:
        return (graph.emit(to, binding.operands),)

    return rewrite_module(module, {op: (rule,)})


def test_a_rule_emits_an_op_of_the_registry_by_name() -> None:
    after = rewrite(R.parse(ONE_OP.format(op="exp"), ops=OPS), "exp", "mynpu.swish")
    assert names_of(after) == ["mynpu.swish"]
    assert after["main"].bindings[0].op is SWISH


def test_a_rule_emits_no_op_that_the_registry_does_not_have() -> None:
    with pytest.raises(IRTypeError) as caught:
        rewrite(R.parse(ONE_OP.format(op="exp")), "exp", "mynpu.swish")
    assert str(caught.value) == "op `mynpu.swish`: is not known. Did you mean 'nn.swish'?"


def test_a_rule_for_a_name_is_about_the_op_that_the_registry_holds() -> None:
    module = R.parse(ONE_OP.format(op="mynpu.swish"), ops=OPS)
    assert names_of(rewrite(module, "mynpu.swish", "exp")) == ["exp"]


def foreign(name: str) -> IRModule:
    """Return a module with an op with a name meaning another op in the registry, or none."""
    builder = FunctionBuilder()
    x = builder.param("x", tensor((2,)))
    y = builder.bind(OpDef(name, (X,), infer=same), [x], {}).result
    return IRModule({"main": builder.finish(y)}, builder.constants, ops=OPS)


@pytest.mark.parametrize("name", ["exp", "mynpu.swish", "mynpu.other"])
def test_an_op_that_the_registry_does_not_hold_is_left_alone(name: str) -> None:
    module = foreign(name)
    assert rewrite(module, name, "negative") is module
    rule = pattern_rule(is_op(name)(wildcard()), lambda match, graph: match.root.operands[0])
    assert rewrite_module(module, {name: (rule,)}) is module

    def look(binding: Binding, graph: RewriteGraph) -> None:
        assert graph.maker(binding.operands[0], name) is None

    builder = FunctionBuilder()
    y = builder.param("y", tensor((2,)))
    inner = builder.bind(module["main"].bindings[0].op, [y], {})
    outer = builder.bind("abs", [inner.result], {})
    rewrite_module(IRModule({"main": builder.finish(outer.result)}, ops=OPS), {"abs": (look,)})


def test_a_rule_emits_ops_of_several_results() -> None:
    def rule(binding: Binding, graph: RewriteGraph) -> Sequence[Value]:
        return graph.bind("mynpu.twins", binding.operands[:1]).results

    text = """
def main(x: R.Tensor((4,), "float32")):
    a, b = R.mynpu.twins(x)
    return a, b
"""
    builder = FunctionBuilder(ops=OPS)
    x = builder.param("x", tensor((4,)))
    halves = builder.bind(OpDef("mynpu.pair", (X,), infer=TWINS.infer), [x], {}, names=("a", "b"))
    ops = OPS.extended([halves.op])
    module = IRModule({"main": builder.finish(*halves.results)}, ops=ops)
    assert str(rewrite_module(module, {"mynpu.pair": (rule,)})) == str(R.parse(text, ops=OPS))
    with pytest.raises(IRError, match=r"op `mynpu\.twins`: has 2 results instead of 1"):
        rewrite(R.parse(ONE_OP.format(op="exp"), ops=OPS), "exp", "mynpu.twins")


def sum_type(context: TypeContext) -> tuple[Type, ...]:
    left, right = context.shape(0), context.shape(1)
    return (TensorType(np.broadcast_shapes(left, right), "float32"),)  # type: ignore[arg-type]


def strict_type(context: TypeContext) -> tuple[Type, ...]:
    if context.operands[0] != context.operands[1]:
        raise context.error("wants one shape")
    return (context.operands[0],)


PURE = frozenset({Trait.PURE})
PLUS = OpDef("mynpu.plus", (X, Y), infer=sum_type, traits=PURE | {Trait.ELEMENTWISE, Trait.COMMUTATIVE})
STRICT = OpDef("mynpu.strict", (X, Y), infer=strict_type, traits=PURE | {Trait.ELEMENTWISE})
FLAT = OpDef(
    "mynpu.flat",
    (X,),
    infer=lambda context: (TensorType((6,), "float32"),),
    traits=PURE | {Trait.RESHAPING},
)
TRAIT_OPS = default_ops().extended([PLUS, STRICT, FLAT])
BROADCAST = """
def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((3,), "float32")):
    a = R.broadcast_to(y, shape=(2, 3))
    b = R.{op}(x, a)
    return b
"""


def test_traits_of_a_plugin_s_ops_count() -> None:
    after = Canonicalise()(R.parse(BROADCAST.format(op="mynpu.plus"), ops=TRAIT_OPS))
    assert names_of(after) == ["mynpu.plus"]
    swapped = R.parse(
        'def main(x: R.Tensor((2,))):\n    y = R.mynpu.plus(R.const([1.0, 2.0], "float32"), x)\n    return y\n',
        ops=TRAIT_OPS,
    )
    (binding,) = Canonicalise()(swapped)["main"].bindings
    assert binding.operands[0] is swapped["main"].params[0]
    joined = R.parse(
        "def main(x: R.Tensor((2, 3))):\n    y = R.mynpu.flat(x)\n    z = R.reshape(y, shape=(3, 2))\n    return z\n",
        ops=TRAIT_OPS,
    )
    assert names_of(Canonicalise()(joined)) == ["reshape"]


def test_an_elementwise_op_that_wants_one_shape_keeps_its_broadcast() -> None:
    module = R.parse(BROADCAST.format(op="mynpu.strict"), ops=TRAIT_OPS)
    assert Canonicalise()(module) is module
