"""The verifier: lawful functions, and the text of each problem of unlawful functions."""

from __future__ import annotations

import pytest
from byoc_core.authoring.c import (
    BOOL,
    Address,
    Alias,
    Assign,
    Binary,
    Block,
    Broadcast,
    Buffer,
    Call,
    Callee,
    Cast,
    Copy,
    CType,
    Declare,
    Dispatch,
    Element,
    Evaluate,
    Fail,
    For,
    Function,
    If,
    Lane,
    Let,
    Literal,
    Load,
    LocalArray,
    LoopKind,
    MemoryAccess,
    Raw,
    RawStatement,
    Return,
    Select,
    Size,
    Statement,
    Store,
    Unary,
    Variable,
    problems_of,
    verify,
)
from byoc_core.dims import symbol
from byoc_core.errors import InternalError

FLOAT, DOUBLE, INT = CType("float32"), CType("float64"), CType("int32")
VECTOR = FLOAT.with_lanes(4)
ROW, COLUMN = Variable("i"), Variable("j")
T, U = Variable("t", FLOAT), Variable("u", FLOAT)
V = Variable("v", VECTOR)
X, OUT = Buffer("x", "float32", size=8), Buffer("out", "float32", MemoryAccess.WRITE, 8)
SUMS = Buffer("sums", "float32", MemoryAccess.WRITE, 8)
COUNTS = Buffer("counts", "int32", MemoryAccess.WRITE, 4)
ONE = Literal(1, FLOAT)
FREE, FILL = Callee("release"), Callee("fill", writes=(0,))


def loop(*body: Statement) -> For:
    """Return a parallel loop of 8 rounds over ``i``."""
    return For(ROW, Size(0), Size(8), body, kind=LoopKind.PARALLEL)


FAULTS: dict[str, tuple[Block, str]] = {
    "undeclared variable": ((Store(OUT, Size(0), T),), "Store: `t` is not declared"),
    "undeclared buffer": ((Store(SUMS, Size(0), ONE),), "Store: `sums` is not declared"),
    "out of its block": ((If(Literal(1, BOOL), (Let(T, ONE),)), Store(OUT, Size(0), T)), "Store: `t` is not declared"),
    "declared twice": ((Let(T, ONE), Let(T, ONE)), "Let: `t` is already declared"),
    "another type": ((Let(T, Literal(1, DOUBLE)),), "Let: `t`: float32 and float64"),
    "changed constant": ((Let(T, ONE), Assign(T, ONE)), "Assign: `t` cannot be assigned"),
    "store to an input": ((Store(X, Size(0), ONE),), "Store: `x` is read-only"),
    "store of another dtype": ((Store(OUT, Size(0), Literal(1, DOUBLE)),), "Store: `out`: float32 and float64"),
    "store behind the end": (
        (Store(OUT, Size(8), ONE),),
        "Store: `out` has 8 elements: access to 1 from 8 on is out of bounds",
    ),
    "vector over the end": (
        (Let(V, Load(X, Size(6), 4)),),
        "Let: `x` has 8 elements: access to 4 from 6 on is out of bounds",
    ),
    "load before the start": ((Let(T, X[-1]),), "Let: `x` has 8 elements: access to 1 from -1 on is out of bounds"),
    "float as offset": ((Let(T, Load(X, ONE)),), "Let: an offset into `x` is float32, not an index"),
    "operands of two types": ((Let(T, Binary("+", ONE, Literal(1, DOUBLE))),), "Let: `+`: float32 and float64"),
    "remainder of floats": ((Let(T, Binary("%", ONE, ONE)),), "Let: `%` of float32"),
    "logic of floats": ((Let(Variable("b", BOOL), Binary("&&", ONE, ONE)),), "Let: `&&` of float32"),
    "compared vectors": (
        (Let(Variable("b", BOOL.with_lanes(4)), Load(X, Size(0), 4).compare("<", Load(X, Size(4), 4))),),
        "Let: a comparison of vectors is used as a value",
    ),
    "compared halves": (
        (Let(Variable("b", BOOL), Binary("<", Literal(1, CType("float16")), Literal(1, CType("float16")))),),
        "Let: `<` of float16",
    ),
    "not of a float": ((Let(Variable("b", BOOL), Unary("!", ONE)),), "Let: `!` of float32"),
    "choice by a float": ((Let(T, Select(ONE, ONE, ONE)),), "Let: a choice by float32"),
    "choice of two types": (
        (Let(T, Select(Literal(1, BOOL), ONE, Literal(1, DOUBLE))),),
        "Let: a choice: float32 and float64",
    ),
    "cast of lanes": ((Let(T, Cast(Load(X, Size(0), 4), FLOAT)),), "Let: a cast of float32x4 to float32"),
    "cast of a half": ((Let(T, Cast(Literal(1, CType("float16")), FLOAT)),), "Let: a cast of float16 to float32"),
    "no such vector": ((Let(V, Load(X, Size(0), 3)),), "Let: C has no vector of 3 elements of float32"),
    "vector of vectors": ((Let(V, Broadcast(Broadcast(ONE, 4), 4)),), "Let: float32x4 in 4 lanes"),
    "lane behind the last": ((Let(T, Lane(Load(X, Size(0), 4), Size(4))),), "Let: lane 4 of float32x4"),
    "no such dtype": ((Let(T, Literal(1, CType("int4"))),), "Let: C has no type for int4"),
    "op of a whole expression": (
        (Let(T, Element("nn.relu", (X[0],), FLOAT)),),
        "Let: an operand of `nn.relu` is neither a literal nor a variable",
    ),
    "op without C": (
        (Let(T, Element("exp", (Literal(1, BOOL),), FLOAT)),),
        "Let: `exp` has no C expression for bool",
    ),
    "op of vectors": ((Let(V, Load(X, Size(0), 4)), Let(T, Element("exp", (V,), FLOAT))), "Let: `exp` of vectors"),
    "condition of a float": ((If(ONE, ()),), "If: the condition is float32, not a bool"),
    "no effect": ((Evaluate(ONE),), "Evaluate: the expression has no effect"),
    "no result": ((Let(T, Call(FREE, ())),), "Let: `release` has no result, but is used as a value"),
    "pointer as a value": ((Let(T, Address(X, Size(0))),), "Let: the address of `x` is used as a value"),
    "call writes an input": ((Evaluate(Call(FILL, (Address(X, Size(0)),))),), "Evaluate: `x` is read-only"),
    "call writes a value": (
        (Evaluate(Call(FILL, ())),),
        "Evaluate: `fill` writes argument 0, not an address",
    ),
    "array of no size": (
        (LocalArray(Buffer("a", "float32", MemoryAccess.WRITE)),),
        "LocalArray: `a` has no known size above 0",
    ),
    "array of parts of vectors": (
        (LocalArray(Buffer("a", "float32", MemoryAccess.WRITE, 6), lanes=4),),
        "LocalArray: `a` has a size not divisible by the 4 lanes",
    ),
    "array to read": (
        (LocalArray(Buffer("a", "float32", size=4)),),
        "LocalArray: `a` is a local array without permission to write",
    ),
    "element of an array of vectors": (
        (LocalArray(SUMS, lanes=4), Let(T, SUMS[0])),
        "Let: `sums` holds vectors of 4",
    ),
    "pointer that writes": (
        (Alias(Buffer("p", "float32", MemoryAccess.WRITE), X, Size(0)),),
        "Alias: `p` may write to the read-only `x`",
    ),
    "copy of another dtype": (
        (LocalArray(COUNTS), Copy(OUT, Size(0), COUNTS, Size(0), Size(4))),
        "Copy: copies int32 to float32",
    ),
    "copy behind the end": (
        (Copy(OUT, Size(5), X, Size(0), Size(4)),),
        "Copy: `out` has 8 elements: access to 4 from 5 on is out of bounds",
    ),
    "copy of less than nothing": ((Copy(OUT, Size(0), X, Size(0), Size(-1)),), "Copy: the count is -1"),
    "loop without a step": ((For(ROW, Size(0), Size(8), (), step=0),), "For: the step is 0"),
    "loop of floats": ((For(ROW, Size(0), ONE, ()),), "For: the bounds are not indices"),
    "loop of unknown rounds written out": (
        (For(ROW, Size(0), Size(symbol("n")), (), kind=LoopKind.UNROLLED),),
        "For: is unrolled with an unknown number of rounds",
    ),
    "one place for all rounds": (
        (loop(Store(OUT, Size(0), ONE)),),
        "Store: every round of a parallel loop stores to the same element of `out`",
    ),
    "one variable for all rounds": (
        (Declare(T, ONE), loop(Assign(T, ONE))),
        "Assign: `t` is changed by every round of a parallel loop",
    ),
    "parallel in parallel": (
        (loop(For(COLUMN, Size(0), Size(2), (), kind=LoopKind.PARALLEL)),),
        "For: is parallel inside a parallel loop",
    ),
    "vectors for all threads": (
        (LocalArray(SUMS, lanes=4), loop(Store(SUMS, ROW * 4, Broadcast(ONE, 4)))),
        "Store: `sums` holds vectors, but is declared outside a parallel loop",
    ),
    "return from a thread": ((loop(Return()),), "Return: leaves the function from inside a parallel loop"),
    "result of none": ((Return(ONE),), "Return: returns float32 instead of None"),
    "failure without a status": (
        (Fail("ValueError", "x: is empty"),),
        "Fail: fails, but the function returns None instead of a status",
    ),
    "place of nothing": ((Let(T, Raw("{1}", FLOAT)),), "Let: raw text has the unknown placeholder {1}"),
    "read that is none": (
        (Let(T, Raw("1.0f", FLOAT, (X[0],))),),
        "Let: raw text does not use the declared read {0}",
    ),
    "brace that stands alone": (
        (RawStatement(("if (1) {",)),),
        "RawStatement: raw text has an unmatched brace",
    ),
    "text that writes an input": (
        (RawStatement(("{w0}[0] = 1;",), writes=(X,)),),
        "RawStatement: `x` is read-only",
    ),
}


@pytest.mark.parametrize(("body", "problem"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_a_problem(body: Block, problem: str) -> None:
    assert problems_of(Function("f", (X, OUT), body)) == [problem]


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (Function("no name", (), ()), "the name is not a C identifier"),
        (Function("for", (), ()), "the name is not a C identifier"),
        (Function("expf", (), ()), "the name belongs to a function of the C library"),
        (Function("f", (X, X), ()), "parameter `x`: occurs twice"),
        (
            Function("f", (Variable("b", BOOL.with_lanes(4)),), ()),
            "parameter `b`: C has no vector of 4 elements of bool",
        ),
        (Function("f", (), (), FLOAT), "ends without returning float32"),
        (
            Function("f", (), (Fail("E", "x: {}", ()), Return(Literal(0, INT))), INT),
            "Fail: has 0 values for 1 placeholders",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_of_a_function_is_a_problem(function: Function, problem: str) -> None:
    assert problems_of(function) == [problem]


def test_verify_names_the_function_and_the_first_problem() -> None:
    with pytest.raises(InternalError) as raised:
        verify(Function("f", (X,), (Let(T, U), Store(X, Size(0), ONE))))
    assert str(raised.value) == "C function `f`: Let: `u` is not declared"


def test_a_function_that_keeps_the_laws_is_returned() -> None:
    first, end = Variable("first"), Variable("end")
    part = For(ROW, first, end, (Store(OUT, ROW, X[ROW]),))
    empty = Copy(OUT, Size(8), X, Size(8), Size(0))
    function = Function("f", (X, OUT), (Dispatch(first, end, (part,), 8, 1, 10), empty))
    assert verify(function) is function
