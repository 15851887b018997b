"""Each law of the verifier, broken alone; messages in full, with the guilty line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from byoc_core.errors import IRTypeError, VerifyError
from byoc_core.ir import (
    Binding,
    Constant,
    Function,
    FunctionBuilder,
    IRModule,
    OpRegistry,
    TensorType,
    Var,
    parse_module,
    tensor,
    verify,
    verify_function,
)

TEXT = """
@R.function
def main(x: R.Tensor(("n", 4)), w: R.Tensor((4,))):
    a = R.add(x, w)
    b = R.nn.relu(a)
    @R.region
    def body(p: R.Tensor(("n", 4))):
        q = R.nn.relu(p)
        return q
    c = R.composite("some.relu", (b,), regions=[body])
    d, e = R.split(c, sections=(1, 3), axis=1)
    return d, e

@R.function
def helper(x: R.Tensor((2,))):
    a = R.nn.relu(x)
    return a

@R.function
def caller(x: R.Tensor((2,))):
    y = helper(x)
    return y
"""


@pytest.fixture
def module(ops: OpRegistry) -> IRModule:
    return verify(parse_module(TEXT, ops))


def with_binding(function: Function, index: int, **fields: object) -> Function:
    bindings = list(function.bindings)
    bindings[index] = replace(bindings[index], **fields)  # type: ignore[arg-type]
    return replace(function, bindings=tuple(bindings))


def in_region(function: Function, change: Callable[[Function], Function]) -> Function:
    return with_binding(function, 2, regions=(change(function.bindings[2].regions[0]),))


def swapped(function: Function) -> Function:
    return replace(function, bindings=(function.bindings[1], function.bindings[0], *function.bindings[2:]))


def rebound(function: Function) -> Function:
    return with_binding(function, 1, results=function.bindings[0].results)


def stray_result(function: Function) -> Function:
    return replace(function, results=(Var("stray", tensor((2,))),))


def other_type(index: int, type_: TensorType) -> Callable[[Function], Function]:
    return lambda function: with_binding(function, index, results=(Var("t", type_),))


def attrs(index: int, **given: object) -> Callable[[Function], Function]:
    return lambda function: with_binding(function, index, attrs={**function.bindings[index].attrs, **given})


ABSENT = Constant("ab" * 32, tensor((4,)))
HEAD = (
    '  def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4,), "float32"))'
    ' -> (R.Tensor(("n", 1), "float32"), R.Tensor(("n", 3), "float32")):\n'
)
BODY = (
    "      @R.region\n"
    '      def body(p: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):\n'
    "          q = R.nn.relu(p)\n"
)
BROKEN: list[tuple[str, Callable[[Function], Function], str]] = [
    (
        "read before defined",
        swapped,
        "function `main`, binding `b`: operand `a` is read before the definition\n"
        "  @R.function\n"
        + HEAD
        + ">     b = R.nn.relu(a)\n      a = R.add(x, w)\n"
        + BODY[: BODY.index("          q")].rstrip("\n"),
    ),
    (
        "defined twice",
        rebound,
        "function `main`, binding `a`: value `a` is defined twice (also in `main`)\n"
        "  @R.function\n" + HEAD + "      a = R.add(x, w)\n>     a = R.nn.relu(a)\n" + BODY.rstrip("\n"),
    ),
    (
        "parameter twice",
        lambda f: replace(f, params=(f.params[0], f.params[0])),
        (
            "function `main`: value `x` is defined twice (also in `main`)\n"
            '  @R.function\n> def main(x: R.Tensor(("n", 4), "float32"), x: R.Tensor(("n", 4), "float32"))'
            ' -> (R.Tensor(("n", 1), "float32"), R.Tensor(("n", 3), "float32")):\n'
            "      a = R.add(x, w)\n      b = R.nn.relu(a)\n      @R.region"
        ),
    ),
    (
        "undefined result",
        stray_result,
        (
            "function `main`: result `stray` is read before the definition\n"
            '  @R.function\n> def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4,), "float32"))'
            ' -> R.Tensor((2,), "float32"):\n'
            "      a = R.add(x, w)\n      b = R.nn.relu(a)\n      @R.region"
        ),
    ),
    (
        "region reads the outer function",
        lambda f: in_region(f, lambda r: with_binding(r, 0, operands=(f.bindings[1].results[0],))),
        (
            "function `main`, region `body`, binding `q`: operand `b` is read before the definition\n"
            '  @R.function\n  def body(p: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):\n'
            ">     q = R.nn.relu(b)\n      return q"
        ),
    ),
    (
        "region shared by two bindings",
        lambda f: replace(f, bindings=(*f.bindings, replace(f.bindings[2], results=(Var("z", tensor(("n", 4))),)))),
        (
            "function `main`, region `body`: value `p` is defined twice (also in `main`)\n"
            '  @R.function\n> def body(p: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):\n'
            "      q = R.nn.relu(p)\n      return q"
        ),
    ),
    (
        "constant not in the store",
        lambda f: with_binding(f, 0, operands=(f.params[0], ABSENT)),
        "function `main`, binding `a`: constant abababababababab... is not in the module's store\n"
        "  @R.function\n"
        + HEAD
        + ">     a = R.add(x, const0)\n      b = R.nn.relu(a)\n"
        + BODY[: BODY.index("          q")].rstrip("\n"),
    ),
    (
        "constant result not in the store",
        lambda f: replace(f, results=(ABSENT,)),
        (
            "function `main`: constant abababababababab... is not in the module's store\n"
            '  @R.function\n> def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4,), "float32"))'
            ' -> R.Tensor((4,), "float32"):\n'
            "      a = R.add(x, w)\n      b = R.nn.relu(a)\n      @R.region"
        ),
    ),
    (
        "result type",
        lambda f: replace(
            other_type(0, tensor(("n", 5)))(f), bindings=other_type(0, tensor(("n", 5)))(f).bindings[:1], results=()
        ),
        (
            "function `main`, binding `t`: the result types of `add` differ from the type rule; "
            'got R.Tensor(("n", 5), "float32"), expected R.Tensor(("n", 4), "float32")\n'
            '  @R.function\n  def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4,), "float32")):\n'
            ">     t = R.add(x, w)\n      return"
        ),
    ),
    (
        "number of results",
        lambda f: with_binding(f, 3, results=f.bindings[3].results[:1]),
        "function `main`, binding `d`: the result types of `split` differ from the type rule; "
        'got R.Tensor(("n", 1), "float32"), expected R.Tensor(("n", 1), "float32"), R.Tensor(("n", 3), "float32")\n'
        + HEAD
        + "      ...\n"
        "          q = R.nn.relu(p)\n          return q\n"
        '      c = R.composite("some.relu", (b,), regions=[body])\n'
        ">     d = R.split(c, sections=(1, 3), axis=1)\n      return d, e",
    ),
    (
        "no results",
        lambda f: replace(
            with_binding(f, 0, results=()), bindings=with_binding(f, 0, results=()).bindings[:1], results=()
        ),
        (
            "function `main`, binding ``: the result types of `add` differ from the type rule; "
            'got , expected R.Tensor(("n", 4), "float32")\n'
            '  @R.function\n  def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4,), "float32")):\n'
            ">      = R.add(x, w)\n      return"
        ),
    ),
    (
        "number of operands",
        lambda f: replace(f, bindings=with_binding(f, 0, operands=(f.params[0],)).bindings[:1], results=()),
        (
            "function `main`, binding `a`: op `add`: takes 2 operands (x, y); got 1\n"
            '  @R.function\n  def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4,), "float32")):\n'
            ">     a = R.add(x)\n      return"
        ),
    ),
    (
        "unknown attribute",
        attrs(3, axes=1),
        "function `main`, binding `d, e`: op `split`: has no attribute `axes`; expected sections, axis. "
        "Did you mean 'axis'?\n" + HEAD + "      ...\n"
        "          q = R.nn.relu(p)\n          return q\n"
        '      c = R.composite("some.relu", (b,), regions=[body])\n'
        ">     d, e = R.split(c, sections=(1, 3), axis=1, axes=1)\n      return d, e",
    ),
    (
        "attribute of an equal value and another type",
        attrs(3, axis=np.int64(1)),
        "function `main`, binding `d, e`: op `split`: attributes are not in stored form; "
        "got {'sections': (1, 3), 'axis': np.int64(1)}, expected {'sections': (1, 3), 'axis': 1}\n"
        + HEAD
        + "      ...\n"
        "          q = R.nn.relu(p)\n          return q\n"
        '      c = R.composite("some.relu", (b,), regions=[body])\n'
        ">     d, e = R.split(c, sections=(1, 3), axis=np.int64(1))\n      return d, e",
    ),
    (
        "attribute missing",
        lambda f: with_binding(f, 3, attrs={"axis": 1}),
        "function `main`, binding `d, e`: op `split`: needs attribute `sections`\n" + HEAD + "      ...\n"
        "          q = R.nn.relu(p)\n          return q\n"
        '      c = R.composite("some.relu", (b,), regions=[body])\n'
        ">     d, e = R.split(c, axis=1)\n      return d, e",
    ),
    (
        "number of regions",
        lambda f: with_binding(f, 2, regions=()),
        "function `main`, binding `c`: op `composite`: has the wrong number of regions; got 0, expected 1\n"
        + HEAD
        + "      a = R.add(x, w)\n      b = R.nn.relu(a)\n"
        '>     c = R.composite("some.relu", (b,))\n'
        "      d, e = R.split(c, sections=(1, 3), axis=1)\n      return d, e",
    ),
]


@pytest.mark.parametrize(("change", "text"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_broken_law(module: IRModule, change: Callable[[Function], Function], text: str) -> None:
    broken = module.with_function(change(module["main"]))
    with pytest.raises(VerifyError) as caught:
        verify(broken)
    assert str(caught.value) == text
    with pytest.raises(VerifyError) as caught:
        verify_function(broken, broken["main"])
    assert str(caught.value) == text


def message(module: IRModule) -> str:
    with pytest.raises(VerifyError) as caught:
        verify(module)
    return str(caught.value)


def test_a_valid_module_is_given_back(module: IRModule) -> None:
    assert verify(module) is module
    for function in module.functions.values():
        verify_function(module, function)


def test_a_list_is_no_stored_attribute(module: IRModule) -> None:
    text = message(module.with_function(attrs(3, sections=[1, 3])(module["main"])))
    assert text.startswith(
        "function `main`, binding `d, e`: op `split`: attributes are not in stored form; "
        "got {'sections': [1, 3], 'axis': 1}, expected {'sections': (1, 3), 'axis': 1}\n"
    )


def test_a_value_belongs_to_one_function(module: IRModule) -> None:
    main = module["main"]
    other = Function("other", main.params, (), ())
    assert message(module.with_function(other)) == (
        "function `other`: value `x` is defined twice (also in `main`)\n"
        '  @R.function\n> def other(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4,), "float32")):\n      return'
    )


def test_a_called_function_exists(module: IRModule) -> None:
    remaining = {name: f for name, f in module.functions.items() if name != "helper"}
    text = (
        "function `caller`: calls the function `helper`, absent from the module; expected main, caller\n"
        '  @R.function\n  def caller(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):\n'
        ">     y = helper(x)\n      return y"
    )
    assert message(module.with_functions(remaining)) == text


def test_no_function_calls_itself(ops: OpRegistry) -> None:
    def calling(name: str, callee: str) -> Function:
        x, y = Var("x", tensor((2,))), Var("y", tensor((2,)))
        return Function(name, (x,), (Binding((y,), ops["call"], (x,), {"callee": callee}),), (y,))

    window = (
        '  @R.function\n  def {}(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):\n'
        ">     y = {}(x)\n      return y"
    )
    assert message(IRModule({"a": calling("a", "a")})) == "function `a`: calls itself: a -> a\n" + window.format(
        "a", "a"
    )
    ring = {"a": calling("a", "b"), "b": calling("b", "c"), "c": calling("c", "b")}
    assert message(IRModule(ring)) == "function `b`: calls itself: a -> b -> c -> b\n" + window.format("c", "b")


def test_a_long_chain_of_calls_is_fine(ops: OpRegistry) -> None:
    functions: dict[str, Function] = {}
    for index in range(1500):
        fb = FunctionBuilder(f"f{index}", ops=ops, functions=functions)
        x = fb.param("x", tensor((2,)))
        y = fb.bind("call", [x], {"callee": f"f{index - 1}"}).result if index else x
        functions[fb.name] = fb.finish(y)
    verify(IRModule(dict(reversed(functions.items()))))


def test_global_symbols_are_unique(module: IRModule) -> None:
    for name in ("helper", "caller"):
        module = module.with_function(module[name].with_attrs(global_symbol="same"))
    assert message(module) == (
        "functions `helper` and `caller`: have the same global symbol `same`\n"
        '  @R.function\n> def caller(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):\n'
        '      R.func_attr({"global_symbol": "same"})\n      y = helper(x)\n      return y'
    )


@pytest.mark.parametrize("name", ["a b", "class", "", "1st", "ｍain"])
def test_functions_have_names_that_script_can_spell(name: str) -> None:
    assert message(IRModule({name: Function(name, (), (), ())})) == (
        f"function {name!r}: has a name invalid in script; expected a Python identifier other than a keyword\n"
        f"  @R.function\n> def {name}():\n      return"
    )


def test_sizes_come_from_parameters_or_are_declared(ops: OpRegistry) -> None:
    x = Var("x", tensor((2,)))
    made = Var("made", tensor(("k",)))
    after = Var("after", tensor(("k",)))
    packed = Binding((made,), ops["call_packed"], (x,), {"symbol": "f", "pure": False})
    relu = Binding((after,), ops["nn.relu"], (made,))
    verify(IRModule({"main": Function("main", (x,), (packed, relu), (after,))}))
    reshaped = Var("reshaped", tensor(("k", 2)))
    careless = replace(ops["reshape"], infer=lambda context: (tensor(("k", 2)),))
    broken = Binding((reshaped,), careless, (x,), {"shape": tensor(("k", 2)).shape})
    assert message(IRModule({"main": Function("main", (x,), (broken,), (reshaped,))})) == (
        'function `main`, binding `reshaped`: size k is determined by no parameter; got R.Tensor(("k", 2), "float32")\n'
        '  @R.function\n  def main(x: R.Tensor((2,), "float32")) -> R.Tensor(("k", 2), "float32"):\n'
        '>     reshaped = R.reshape(x, shape=("k", 2))\n      return reshaped'
    )


CONTROL_FLOW = """
def main(c: R.Tensor((), "bool"), t: R.Tensor((), "int64"), x: R.Tensor((2,))):
    def then(p: R.Tensor((2,))): return p
    def other(q: R.Tensor((2,))): return q
    y = R.if_(c, x, regions=[then, other])
    def step(i: R.Tensor((), "int64"), p: R.Tensor((2,))): return R.const(True, "bool"), p
    z = R.loop(t, c, y, regions=[step])
    def body(r: R.Tensor((2,))): return r
    v = R.composite("a.b", (z,), regions=[body])
    return v
"""


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            'c: R.Tensor((), "bool")',
            'c: R.Tensor((), "int8")',
            (
                "op `if`: the condition is not a scalar of the right dtype; "
                'got R.Tensor((), "int8"), expected R.Tensor((), "bool")'
            ),
        ),
        (
            "other(q: R.Tensor((2,)))",
            "other(q: R.Tensor((3,)))",
            (
                "op `if`: parameter `q` of region `other` has another type; "
                'got R.Tensor((2,), "float32"), expected R.Tensor((3,), "float32")'
            ),
        ),
        (
            "return q",
            "return R.const(1.0)",
            (
                "op `if`: branches have different result types; "
                'got R.Tensor((), "float32"), expected R.Tensor((2,), "float32")'
            ),
        ),
        (
            't: R.Tensor((), "int64")',
            't: R.Tensor((1,), "int64")',
            (
                "op `loop`: the trip count is not a scalar of the right dtype; "
                'got R.Tensor((1,), "int64"), expected R.Tensor((), "int64")'
            ),
        ),
        ('i: R.Tensor((), "int64"), ', "", "op `loop`: region `step` takes 1 values; got 2"),
        (
            '"bool"), p',
            '"bool")',
            (
                "op `loop`: region `step` does not return the condition and the carried values; "
                'got R.Tensor((), "bool"), expected R.Tensor((), "bool"), R.Tensor((2,), "float32")'
            ),
        ),
        ("return r", "return", "op `composite`: region `body` has no result"),
        ("(z,), regions", "(), regions", "op `composite`: region `body` takes 1 values; got 0"),
    ],
)
def test_control_flow_is_typed(old: str, new: str, text: str, ops: OpRegistry) -> None:
    verify(parse_module(CONTROL_FLOW, ops))
    assert CONTROL_FLOW.count(old) == 1
    with pytest.raises(IRTypeError) as caught:
        parse_module(CONTROL_FLOW.replace(old, new), ops)
    assert str(caught.value).split("\n")[0] == text
