"""The builder, the data classes filled by the builder, and the errors of op schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import symbol
from byoc_core.errors import IRError, IRTypeError
from byoc_core.ir import (
    AttrKind,
    AttrSpec,
    Constant,
    Function,
    FunctionBuilder,
    IRModule,
    Location,
    ObjectType,
    OpDef,
    OperandSpec,
    OpRegistry,
    TensorType,
    Trait,
    is_pure,
    is_static,
    tensor,
    verify,
)

N = symbol("n")


@pytest.fixture
def fb(ops: OpRegistry) -> FunctionBuilder:
    return FunctionBuilder("main", ops=ops)


def test_types_are_inferred_as_the_function_grows(fb: FunctionBuilder) -> None:
    x = fb.param("x", tensor(("n", 4)))
    y = fb.emit("add", x, np.ones((1, 4), np.float32), names=["y"], location=Location("net.onnx", "Add_1"))
    assert not isinstance(y, tuple)
    first, second = fb.emit("split", y, sections=[1, 3], axis=1)  # type: ignore[misc]
    function = fb.finish(first, second, note="made")
    module = verify(IRModule({"main": function}, fb.constants))
    assert (y.name, y.type) == ("y", tensor(("n", 4)))
    assert function.result_types == (tensor(("n", 1)), tensor(("n", 3)))
    assert [str(b.location) for b in function.bindings] == ["net.onnx:Add_1", "None"]
    assert function.bindings[1].attrs == {"sections": (1, 3), "axis": 1}
    assert [r.name for r in function.bindings[1].results] == ["lv1", "lv1"]
    assert function.attrs == {"note": "made"}
    assert isinstance(function.bindings[0].operands[1], Constant)
    assert len(module.constants) == 1
    assert repr(x) == '<var x: R.Tensor(("n", 4), "float32")>'
    assert repr(function.bindings[1]) == "<binding lv1, lv1 = split>"
    assert repr(function) == "<function main: 2 bindings>"


def test_names_of_inputs_and_outputs(fb: FunctionBuilder) -> None:
    x = fb.param("x", tensor((2,)))
    function = fb.finish(x, x)
    assert function.input_names == ("x",)
    assert function.output_names == ("output0", "output1")
    named = function.with_attrs(input_names=("data",), output_names=("a", "b"))
    assert named.input_names == ("data",)
    assert named.output_names == ("a", "b")
    assert function.attrs == {}


def test_modules_derive_from_one_another(fb: FunctionBuilder, ops: OpRegistry) -> None:
    main = fb.finish(fb.param("x", tensor((2,))))
    other = Function("other", (), (), ())
    module = IRModule({"main": main}, fb.constants, {"a": 1})
    grown = module.with_function(other).with_attrs(b=2)
    assert list(grown.functions) == ["main", "other"]
    assert grown["main"] is main
    assert grown.constants is module.constants
    assert grown.attrs == {"a": 1, "b": 2}
    assert list(module.functions) == ["main"]
    assert list(module.with_functions({}).functions) == []


def test_purity(ops: OpRegistry) -> None:
    def function(name: str, op: str, functions: Mapping[str, Function], **attrs: object) -> Function:
        fb = FunctionBuilder(name, ops=ops, functions=functions)
        x = fb.param("x", tensor((2,)))
        out_types = [tensor((2,))] if op.startswith("call_") else None
        return fb.finish(fb.bind(op, [x], attrs, out_types=out_types).result)

    effect = function("effect", "call_packed", {}, symbol="print")
    silent = function("silent", "call_packed", {}, symbol="f", pure=True)
    functions = {"effect": effect, "silent": silent}
    indirect = function("indirect", "call", functions, callee="effect")
    assert not is_pure(effect.bindings[0], functions)
    assert is_pure(silent.bindings[0], functions)
    assert not is_pure(indirect.bindings[0], functions)
    assert is_pure(function("a", "call", functions, callee="silent").bindings[0], functions)
    assert not is_pure(indirect.bindings[0], {})
    assert is_pure(function("b", "call_dps_packed", {}, symbol="g").bindings[0], {})
    assert is_pure(function("c", "nn.relu", {}).bindings[0], {})
    for body in (effect, silent, indirect):
        fb = FunctionBuilder("d", ops=ops)
        x = fb.param("x", tensor((2,)))
        binding = fb.bind("composite", [x], {"name": "a.b"}, regions=[body])
        assert is_pure(binding, functions) is (body is silent)


def test_types_say_what_is_known() -> None:
    type_ = tensor(("n", 4, "2*n"), "float64")
    assert (type_.rank, type_.num_elements, type_.nbytes) == (3, 8 * N * N, 64 * N * N)
    assert type_.symbols == {"n"}
    assert type_.substitute({"n": 3}) == tensor((3, 4, 6), "float64")
    unknown = tensor(None)
    assert (unknown.rank, unknown.num_elements, unknown.nbytes, unknown.symbols) == (None, None, None, frozenset())
    assert unknown.substitute({"n": 3}) is unknown
    assert tensor((), "bool").num_elements == 1
    assert [is_static(t) for t in (tensor((1, 2)), type_, unknown, ObjectType("list"))] == [True, False, False, False]
    assert str(ObjectType('a"b')) == "R.Object('a\"b')"


def test_costs_are_formulas(fb: FunctionBuilder) -> None:
    x = fb.param("x", tensor(("n", 4)))
    binding = fb.bind("add", [x, np.ones(4, np.float32)], {})
    assert binding.op.flops(binding.context()) == 4 * N
    assert binding.op.nbytes(binding.context()) == 32 * N + 16
    assert binding.context().operand_elements(1) == 4
    hidden = fb.bind("nn.relu", [fb.param("y", tensor(None))], {})
    assert hidden.op.nbytes(hidden.context()) == 8 * symbol("unknown")
    assert hidden.op.flops(hidden.context()) == symbol("unknown")  # it states none: one for each element
    listed = fb.bind("sequence", [x], {})
    assert listed.context().elements() == 0


def test_ops_are_data(ops: OpRegistry) -> None:
    assert repr(ops["nn.relu"]) == "<op nn.relu>"
    assert ops["add"].has_trait(Trait.COMMUTATIVE)
    assert not ops["nn.relu"].has_trait(Trait.COMMUTATIVE)
    assert ops["loop"].operand_names(4) == ("max_trip", "condition", "carried[0]", "carried[1]")
    one = OpDef("mine", (OperandSpec("x"),), ops["nn.relu"].infer)
    assert set(ops.extended([one])) == {*ops, "mine"}
    assert "mine" not in ops


def test_attributes_are_stored_in_one_form(ops: OpRegistry) -> None:
    given: dict[str, Any] = {
        "ints": [np.int64(1), 2],
        "ratio": np.float32(0.5),
        "dims": ["2*n", 3],
        "dim": "n+1",
        "count": np.int8(4),
    }
    normal = ops["test.attributes"].normalise_attrs(given)
    assert list(normal) == [spec.name for spec in ops["test.attributes"].attrs]
    assert {name: normal[name] for name in given} == {
        "ints": (1, 2),
        "ratio": 0.5,
        "dims": (2 * N, 3),
        "dim": N + 1,
        "count": 4,
    }
    assert [type(normal[name]) for name in ("ratio", "count")] == [float, int]


def test_attributes_may_be_brought_to_one_form_by_the_op(ops: OpRegistry) -> None:
    pad = OpDef(
        "pad",
        (OperandSpec("x"),),
        ops["nn.relu"].infer,
        (AttrSpec("padding", AttrKind.INTS),),
        canonicalise=lambda attrs: {"padding": attrs["padding"] * 2},  # type: ignore[operator]
    )
    assert pad.normalise_attrs({"padding": [1, 2]}) == {"padding": (1, 2, 1, 2)}


HUGE = 10**400


@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        ({"flag": 1}, "op `test.attributes`, attribute `flag`: value of the wrong type; got 1, expected bool"),
        ({"count": True}, "op `test.attributes`, attribute `count`: value of the wrong type; got True, expected int"),
        ({"count": 1.0}, "op `test.attributes`, attribute `count`: value of the wrong type; got 1.0, expected int"),
        ({"count": None}, "op `test.attributes`, attribute `count`: value of the wrong type; got None, expected int"),
        ({"ratio": "1"}, "op `test.attributes`, attribute `ratio`: value of the wrong type; got '1', expected float"),
        (
            {"ratio": False},
            "op `test.attributes`, attribute `ratio`: value of the wrong type; got False, expected float",
        ),
        (
            {"ratio": HUGE},
            f"op `test.attributes`, attribute `ratio`: value of the wrong type; got {HUGE}, expected float",
        ),
        ({"text": b"a"}, "op `test.attributes`, attribute `text`: value of the wrong type; got b'a', expected str"),
        ({"element": 3}, "op `test.attributes`, attribute `element`: value of the wrong type; got 3, expected dtype"),
        (
            {"element": "int33"},
            "op `test.attributes`, dtype: unknown dtype 'int33'. Did you mean 'int32' or 'uint32' or 'int8'?",
        ),
        ({"ints": 3}, "op `test.attributes`, attribute `ints`: value of the wrong type; got 3, expected ints"),
        ({"ints": "12"}, "op `test.attributes`, attribute `ints`: value of the wrong type; got '12', expected ints"),
        ({"strs": "ab"}, "op `test.attributes`, attribute `strs`: value of the wrong type; got 'ab', expected strs"),
        ({"dim": "n/"}, "op `test.attributes`, dim: cannot read 'n/' as an integer expression"),
        ({"dims": [1.5]}, "op `test.attributes`, attribute `dims`: value of the wrong type; got [1.5], expected dims"),
        (
            {"mode": "quick"},
            "op `test.attributes`, attribute `mode`: value not permitted; got 'quick', expected 'fast' or 'slow'",
        ),
        (
            {"mod": "fast"},
            (
                "op `test.attributes`: has no attribute `mod`; expected flag, count, ratio, text, element, ints, "
                "floats, strs, dim, dims, mode. Did you mean 'mode'?"
            ),
        ),
    ],
)
def test_attribute_errors(fb: FunctionBuilder, attrs: dict[str, object], text: str) -> None:
    x = fb.param("x", tensor((2,)))
    with pytest.raises(IRTypeError) as caught:
        fb.bind("test.attributes", [x], attrs)
    assert str(caught.value) == text


MISTAKES: list[tuple[Callable[[FunctionBuilder, Any], object], str]] = [
    (lambda fb, x: fb.emit("ad", x, x), "op `ad`: is not known. Did you mean 'add'?"),
    (lambda fb, x: fb.emit("zzz", x, x), "op `zzz`: is not known"),
    (lambda fb, x: fb.emit("add", x), "op `add`: takes 2 operands (x, y); got 1"),
    (lambda fb, x: fb.emit("nn.relu", x, x), "op `nn.relu`: takes 1 operands (x); got 2"),
    (lambda fb, x: fb.emit("loop", x), "op `loop`: takes 2 or more operands (max_trip, condition, carried...); got 1"),
    (lambda fb, x: fb.emit("split", x), "op `split`: needs attribute `sections`"),
    (lambda fb, x: fb.emit("nn.relu", x, axis=1), "op `nn.relu`: has no attribute `axis`; expected none"),
    (
        lambda fb, x: fb.emit("add", x, fb.const(np.array([1]))),
        'op `add`, operand `y`: has another dtype; got R.Tensor((1,), "int64"), expected R.Tensor(("n", 4), "float32")',
    ),
    (
        lambda fb, x: fb.emit("add", fb.param("b", ObjectType("list")), x),
        'op `add`, operand `x=b`: is not a tensor; got R.Object("list")',
    ),
    (lambda fb, x: fb.emit("add", x, fb.param("b", tensor(None))), "op `add`, operand `y=b`: needs a known rank"),
    (lambda fb, x: fb.emit("if", x), "op `if`: has the wrong number of regions; got 0, expected 2"),
    (lambda fb, x: fb.emit("call_packed", x, symbol="f"), "op `call_packed`: needs its result types (`out_types=`)"),
    (
        lambda fb, x: fb.emit("call_packed", x, symbol="f", out_types=[]),
        "op `call_packed`: needs its result types (`out_types=`)",
    ),
    (
        lambda fb, x: fb.emit("call_dps_packed", x, symbol="f", out_types=[tensor(None)]),
        'op `call_dps_packed`: needs result types of known rank; got R.Tensor(None, "float32")',
    ),
    (
        lambda fb, x: fb.emit("call_dps_packed", x, symbol="f", out_types=[tensor(("m",))]),
        (
            'op `call_dps_packed`: has a result with a size determined by no operand; got R.Tensor(("m",), "float32"), '
            "expected symbols among n"
        ),
    ),
    (lambda fb, x: fb.emit("call", x, callee="f"), "op `call`: function `f` is not in the module"),
    (
        lambda fb, x: fb.emit("split", x, sections=[1, 3], axis=1, names=["a"]),
        "op `split`: has the wrong number of result names; got 1, expected 2",
    ),
    (lambda fb, x: fb.emit("split", x, sections=[]), "op `split`: has no result"),
    (lambda fb, x: fb.bind("split", [x], {"sections": [1, 2]}).result, "op `split`: has 2 results instead of 1"),
    (lambda fb, x: tensor((2, -1)), "tensor type: axis 1 has a negative size; got -1"),
    (
        lambda fb, x: OpRegistry([fb.ops["add"], fb.ops["add"]]),
        "op `add`: is defined twice",
    ),
    (
        lambda fb, x: IRModule({"a": Function("b", (), (), ())}),
        "function `b`: is stored under another name in the module, `a`",
    ),
    (lambda fb, x: IRModule()["main"], "function `main`: is not in the module; expected no function at all"),
    (
        lambda fb, x: IRModule({"main": fb.finish(x)})["mian"],
        "function `mian`: is not in the module; expected main. Did you mean 'main'?",
    ),
    (lambda fb, x: (fb.finish(x), fb.emit("nn.relu", x)), "builder of `main`: is finished. Start a new builder."),
    (lambda fb, x: (fb.finish(x), fb.finish(x)), "builder of `main`: is finished. Start a new builder."),
    (lambda fb, x: (fb.finish(x), fb.param("y", tensor(()))), "builder of `main`: is finished. Start a new builder."),
]


@pytest.mark.parametrize(("mistake", "text"), MISTAKES)
def test_mistakes(fb: FunctionBuilder, mistake: Callable[[FunctionBuilder, Any], object], text: str) -> None:
    with pytest.raises(IRError) as caught:
        mistake(fb, fb.param("x", tensor(("n", 4))))
    assert str(caught.value) == text


def call_errors() -> list[tuple[tuple[TensorType | ObjectType, ...], str]]:
    known = tensor(("n", "2*n"))
    return [
        ((tensor((3, 6)),), "op `call`: `f` takes 3 arguments; got 1"),
        (
            (tensor((3, 7)), tensor(()), ObjectType("list")),
            (
                'op `call`: argument `a` of `f` has another size on axis 1; got R.Tensor((3, 7), "float32"), '
                'expected R.Tensor((3, 6), "float32")'
            ),
        ),
        (
            (tensor((3, 6, 1)), tensor(()), ObjectType("list")),
            (
                'op `call`: argument `a` of `f` has another type; got R.Tensor((3, 6, 1), "float32"), '
                'expected R.Tensor(("n", "2*n"), "float32")'
            ),
        ),
        (
            (known, tensor((), "int8"), ObjectType("list")),
            "op `call`: argument `b` of `f` has another dtype; got int8, expected float32",
        ),
        (
            (known, tensor(()), ObjectType("map")),
            'op `call`: argument `c` of `f` has another type; got R.Object("map"), expected R.Object("list")',
        ),
    ]


@pytest.mark.parametrize(("types", "text"), call_errors())
def test_calls_that_do_not_fit(ops: OpRegistry, types: tuple[TensorType | ObjectType, ...], text: str) -> None:
    callee = FunctionBuilder("f", ops=ops)
    a = callee.param("a", tensor(("n", "2*n")))
    callee.param("b", tensor(None))
    callee.param("c", ObjectType("list"))
    fb = FunctionBuilder("main", ops=ops, functions={"f": callee.finish(a)})
    operands = [fb.param(f"p{i}", type_) for i, type_ in enumerate(types)]
    with pytest.raises(IRTypeError) as caught:
        fb.emit("call", *operands, callee="f")
    assert str(caught.value) == text


def test_a_call_gives_the_callees_types_in_the_callers_sizes(ops: OpRegistry) -> None:
    callee = FunctionBuilder("f", ops=ops)
    callee.param("p", tensor(("2*n",)))
    a = callee.param("a", tensor(("n", "m")))
    square = callee.emit("reshape", a, shape=["n*m"])
    function = callee.finish(square, a)  # type: ignore[arg-type]
    fb = FunctionBuilder("main", ops=ops, functions={"f": function})
    results = fb.emit("call", fb.param("p", tensor(("2*m+2",))), fb.param("x", tensor(("m+1", 3))), callee="f")
    assert isinstance(results, tuple)
    assert [r.type for r in results] == [tensor(("3*m+3",)), tensor(("m+1", 3))]


def test_a_function_is_inlined(fb: FunctionBuilder, ops: OpRegistry) -> None:
    inner = FunctionBuilder("f", ops=ops, constants=fb.constants)
    a, b = inner.param("a", tensor((3,))), inner.param("b", tensor((3,)))
    total = inner.bind("add", (a, b), {}, location=Location("net.onnx", "Add_1")).result
    function = inner.finish(inner.bind("nn.relu", (total,), {}).result, a)
    x = fb.param("x", tensor((3,)))
    y = fb.const(np.ones(3, np.float32))
    first, same = fb.inline(function, (x, y))
    second, _ = fb.inline(function, (first, x))
    assert same is x
    assert [binding.op.name for binding in fb.bindings] == ["add", "nn.relu", "add", "nn.relu"]
    assert fb.bindings[2].operands == (first, x)
    assert str(fb.bindings[2].location) == "net.onnx:Add_1"
    verify(IRModule({"f": function, "main": fb.finish(second)}, fb.constants))


def test_a_function_is_inlined_for_fitting_arguments_only(fb: FunctionBuilder, ops: OpRegistry) -> None:
    inner = FunctionBuilder("f", ops=ops)
    function = inner.finish(inner.param("a", tensor((3,))))
    x = fb.param("x", tensor((4,)))
    with pytest.raises(IRError) as caught:
        fb.inline(function, ())
    assert str(caught.value) == "function `f`: has the wrong number of arguments; got 0, expected 1"
    with pytest.raises(IRError) as caught:
        fb.inline(function, (x,))
    assert str(caught.value) == (
        'function `f`, parameter `a`: has an argument of another type; got R.Tensor((4,), "float32"), expected '
        'R.Tensor((3,), "float32")'
    )
    assert fb.bindings == ()
