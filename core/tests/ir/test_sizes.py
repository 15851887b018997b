"""Origins of sizes in the IR: printing and parsing, the verifier's laws, and binding."""

from __future__ import annotations

import pytest
from byoc_core import parse
from byoc_core.errors import IRTypeError, VerifyError
from byoc_core.ir import AttrKind, AttrSpec, OpDef, OperandSpec, OpRegistry, verify
from byoc_core.ir.sizes import SizeSources, cited_symbols, dependencies, given_symbols, introduced_symbols
from byoc_core.ops import default_ops
from byoc_core.opset.types import ObjectType, TensorType, tensor

NONZERO = 'R.nonzero({}, out_types=[R.Tensor((1, "{}"), "int64")])'


def _module(body: str, *, params: str = 'x: R.Tensor(("n",), "float32")', before: str = "") -> str:
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return f"class M:\n{before}    @R.function\n    def main({params}):\n{lines}\n"


def _problem(text: str, ops: OpRegistry | None = None) -> str:
    with pytest.raises(VerifyError) as caught:
        verify(parse(text, ops=ops))
    return str(caught.value).splitlines()[0]


HELPER = """    @R.function
    def helper(y: R.Tensor(("m",), "float32")):
        a = R.nonzero(y, out_types=[R.Tensor((1, "k"), "int64")])
        return a, y
"""


def test_declared_types_print_and_parse() -> None:
    module = parse(
        _module(
            """
u, first, inverse, counts = R.unique(x, sorted=False, out_types=[
    R.Tensor(("k",), "float32"), R.Tensor(("k",), "int64"), R.Tensor(("n",), "int64"), R.Tensor(("k",), "int64")])
c = R.compress(u, R.const([True], "bool"), axis=0, out_types=[R.Tensor(("c",), "float32")])
return inverse, c
"""
        )
    )
    verify(module)
    assert parse(str(module)) == module
    assert str(parse(str(module))) == str(module)


def test_later_ops_may_use_the_new_size() -> None:
    verify(parse(_module(f"a = {NONZERO.format('x', 'k')}\nb = R.reshape(a, shape=('k',))\nreturn b")))
    verify(parse(_module(f"a = {NONZERO.format('x', 'k')}\nb = R.broadcast_to(x, shape=('k', 'n'))\nreturn b")))


def test_a_size_has_one_owner() -> None:
    again = f"a = {NONZERO.format('x', 'k')}\nb = {NONZERO.format('x', 'k')}\nreturn a, b"
    taken = "function `main`, binding `{}`: introduces the known size {} again. Give the new size another name."
    assert _problem(_module(again)) == taken.format("b", "k")
    assert _problem(
        _module(f"a = {NONZERO.format('x', 'm')}\nreturn a", params='x: R.Tensor((4,)), y: R.Tensor(("m",))')
    ) == taken.format("a", "m")
    params = 'x: R.Tensor(("k",), "float32")'
    assert _problem(_module("a, b = helper(x)\nreturn a", params=params, before=HELPER)) == taken.format("a, b", "k")
    assert _problem(_module("a, b = helper(x)\nc, d = helper(x)\nreturn c", before=HELPER)) == taken.format("c, d", "k")


def test_a_call_introduces_the_sizes_that_its_callee_learns() -> None:
    module = verify(parse(_module("a, b = helper(x)\nc = R.reshape(a, shape=('k',))\nreturn c, b", before=HELPER)))
    assert [str(type_) for type_ in module["main"].result_types] == [
        'R.Tensor(("k",), "int64")',
        'R.Tensor(("n",), "float32")',
    ]
    assert introduced_symbols(module["main"].bindings[0], module.functions) == {"k"}
    assert introduced_symbols(module["main"].bindings[1], module.functions) == frozenset()


def test_a_size_is_told_before_it_is_used() -> None:
    assert _problem(_module("b = R.broadcast_to(x, shape=('k', 'n'))\nreturn b")) == (
        'function `main`, binding `b`: size k is determined by no parameter; got R.Tensor(("k", "n"), "float32")'
    )
    crop = OpDef("crop", (OperandSpec("x"),), lambda context: context.operands, (AttrSpec("begin", AttrKind.DIM),))
    text = _module("b = R.crop(x, begin='2*j')\nreturn b")
    assert _problem(text, default_ops().extended([crop])) == (
        "function `main`, binding `b`: an attribute needs the undetermined size j"
    )


BRANCHES = """
@R.region
def then(y: R.Tensor(("n",), "float32")):
    a = R.nonzero(y, out_types=[R.Tensor((1, "k"), "int64")])
    return {then}
@R.region
def otherwise(y: R.Tensor(("n",), "float32")):
    b = R.nonzero(y, out_types=[R.Tensor((1, "{other}"), "int64")])
    return {otherwise}
a = R.if_(c, x, regions=[then, otherwise])
{rest}
"""
PARAMS = 'c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")'


def test_what_both_branches_learn_may_be_a_size_of_their_result() -> None:
    text = BRANCHES.format(then="a", otherwise="b", other="k", rest="d = R.reshape(a, shape=('k',))\nreturn d")
    module = verify(parse(_module(text, params=PARAMS)))
    assert parse(str(module)) == module


def test_what_a_branch_learns_for_itself_stays_inside() -> None:
    inside = BRANCHES.format(then="y", otherwise="y", other="k", rest="{rest}")
    again = f"b = {NONZERO.format('a', 'k')}\nreturn b"
    verify(parse(_module(inside.format(rest=again), params=PARAMS)))
    outside = "b = R.broadcast_to(a, shape=('k', 'n'))\nreturn b"
    assert _problem(_module(inside.format(rest=outside), params=PARAMS)) == (
        'function `main`, binding `b`: size k is determined by no parameter; got R.Tensor(("k", "n"), "float32")'
    )


def test_branches_of_different_sizes_are_refused() -> None:
    with pytest.raises(IRTypeError) as caught:
        parse(_module(BRANCHES.format(then="a", otherwise="b", other="j", rest="return a"), params=PARAMS))
    assert str(caught.value).splitlines()[0] == (
        'op `if`: branches have different result types; got R.Tensor((1, "j"), "int64"), '
        'expected R.Tensor((1, "k"), "int64")'
    )


def test_given_symbols_follow_from_the_shape_alone() -> None:
    assert given_symbols(tensor(("n", "2*m+1", 3, "a*b", "c+d", "e//2"))) == {"n", "m"}
    assert given_symbols(tensor(("4//(n-1)",))) == frozenset()
    assert given_symbols(TensorType(None, "float32")) == frozenset()
    assert given_symbols(ObjectType("string")) == frozenset()


def test_the_first_value_that_gives_a_size_is_found() -> None:
    module = parse(_module("a = R.nn.relu(x)\nb = R.broadcast_to(x, shape=(3, 'n'))\nreturn a, b"))
    main = module["main"]
    size_sources = SizeSources(main.params)
    for binding in main.bindings:
        size_sources.add(binding.results)
    assert size_sources.find(["n", "m"]) == [main.params[0]]


def test_ops_depend_on_those_that_tell_their_sizes() -> None:
    text = f"a = R.nn.relu(x)\nk = {NONZERO.format('a', 'k')}\nb = R.broadcast_to(a, shape=('k', 'n'))\nreturn b"
    main = parse(_module(text))["main"]
    assert dependencies(main.bindings) == [[], [0], [0, 1]]
    assert cited_symbols(main.bindings) == {"n", "k"}
