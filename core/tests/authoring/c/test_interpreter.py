"""The interpreter: values as in C, and errors for undefined behaviour of C."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.authoring.c import (
    INDEX,
    Address,
    Alias,
    Binary,
    Block,
    Buffer,
    Call,
    Callee,
    Cast,
    Comment,
    Copy,
    CType,
    Evaluate,
    Expression,
    For,
    Function,
    Lane,
    Let,
    Literal,
    Load,
    LocalArray,
    MemoryAccess,
    Raw,
    Return,
    Select,
    Size,
    Statement,
    Store,
    Variable,
    interpret,
    verify,
)
from byoc_core.dims import symbol
from byoc_core.errors import ExecutionError

NDArray = npt.NDArray[Any]
FLOAT, INT, UINT = CType("float32"), CType("int32"), CType("uint64")
ROW = Variable("i")
X, OUT = Buffer("x", "float32"), Buffer("out", "float32", MemoryAccess.WRITE)
NUMBERS = Buffer("numbers", "int64")


def value_of(expression: Expression) -> float:
    """Return the value of an expression over ``x`` (1, 2, 3, 4) and ``numbers`` (-7, 2, 2**62 + 1, 0)."""
    function = verify(Function("f", (X, NUMBERS), (Return(expression),), expression.type))
    arguments: dict[Buffer | Variable, NDArray] = {
        X: np.arange(1, 5, dtype=np.float32),
        NUMBERS: np.array([-7, 2, 2**62 + 1, 0]),
    }
    result: float = interpret(function, arguments, {"n": 3})
    return result


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (Size(-7) // 2, -3),
        (Size(-7) % 2, -1),
        (NUMBERS[0] // NUMBERS[1], -3),
        (NUMBERS[0] % NUMBERS[1], -1),
        (NUMBERS[2] // 1, 2**62 + 1),
        (NUMBERS[2] // NUMBERS[1] * 2 + NUMBERS[2] % 2, 2**62 + 1),
        (Binary("/", Literal(-7, INT), Literal(2, INT)), -3),
        (Binary("%", Literal(-7, INT), Literal(2, INT)), -1),
        (Binary("/", Literal(2**63 + 3, UINT), Literal(3, UINT)), (2**63 + 3) // 3),
        (Size(symbol("n") * 2), 6),
        (Select(X[0].compare("<", 2), X[1], X[9]), 2),
        (Binary("&&", X[0].compare(">", 2), X[9].compare(">", 0)), False),
        (Cast(Literal(2.75, FLOAT), INT), 2),
        (Cast(Literal(-2.75, FLOAT), INT), -2),
        (Cast(Literal(0.5, FLOAT), CType("bool")), True),
        (Cast(Literal(2**64 - 1, UINT), INDEX), -1),
        (Lane(Load(X, Size(0), 4), NUMBERS[1]), 3),
        (Literal(0.1, FLOAT) + Literal(0.2, FLOAT), np.float32(0.1) + np.float32(0.2)),
        (Raw("sqrtf({0})", FLOAT, (X[3],), np.sqrt), 2),
    ],
    ids=str,
)
def test_values_are_those_of_c(expression: Expression, value: float) -> None:
    assert value_of(expression) == value


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (X[NUMBERS[0]], "buffer `x`: is accessed out of bounds; got 1 elements from -7 on, expected 4"),
        (Load(X, NUMBERS[1], 4) + 0, "buffer `x`: is accessed out of bounds; got 4 elements from 2 on, expected 4"),
        (Size(1) // NUMBERS[3], "interpreter: an integer is divided by 0"),
        (Cast(Literal(2.0**31, FLOAT), INT), "cast: the integer type cannot hold the float"),
        (Cast(Literal(np.nan, FLOAT), INDEX), "cast: the integer type cannot hold the float"),
        (Lane(Load(X, Size(0), 4), NUMBERS[0]), "lane: is not in the vector; got -7, expected float32x4"),
        (Raw("rand()", INT), "raw text: cannot be interpreted; got rand()"),
        (Call(Callee("now"), (), FLOAT), "C function `now`: cannot be interpreted"),
    ],
    ids=str,
)
def test_undefined_behaviour_is_an_error(expression: Expression, problem: str) -> None:
    with pytest.raises(ExecutionError) as raised:
        value_of(expression)
    assert str(raised.value).startswith(problem)


def changed_by(*body: Statement) -> list[float]:
    """Return the four elements of ``out`` after a body; ``out`` begins with 0, ``x`` holds 1, 2, 3, 4."""
    out = np.zeros(4, np.float32)
    arguments: dict[Buffer | Variable, NDArray] = {X: np.arange(1, 5, dtype=np.float32), OUT: out}
    interpret(verify(Function("f", (X, OUT), body)), arguments, {})
    return [float(item) for item in out]


def test_statements_change_arrays() -> None:
    pointer = Buffer("p", "float32", MemoryAccess.WRITE)
    body = (
        Comment("Backwards, then the second half again."),
        For(ROW, Size(0), Size(4), (Store(OUT, ROW, X[Size(3) - ROW]),)),
        Alias(pointer, OUT, Size(2)),
        Copy(pointer, Size(0), X, Size(2), Size(2)),
    )
    assert changed_by(*body) == [4, 3, 3, 4]


def test_a_call_changes_the_memory_that_it_writes() -> None:
    def fill(array: NDArray, value: float) -> None:
        array[:2] = value

    call = Call(Callee("fill", fill, writes=(0,)), (Address(OUT, Size(1)), Literal(7, FLOAT)))
    assert changed_by(Evaluate(call)) == [0, 7, 7, 0]


def test_memory_that_nothing_wrote_is_a_nan() -> None:
    array = Buffer("a", "float32", MemoryAccess.WRITE, 4)
    assert np.isnan(changed_by(LocalArray(array), Store(OUT, Size(0), array[0]))[0])
    assert changed_by(LocalArray(array, is_zeroed=True), Store(OUT, Size(0), array[0] + 1))[0] == 1


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ((Copy(OUT, Size(0), OUT, Size(1), Size(3)),), "buffer `out`: overlaps the source of the copy"),
        (
            (Let(ROW, Size(0)), Copy(OUT, Size(0), X, Size(0), ROW - 1)),
            "buffer `x`: is accessed out of bounds; got -1 elements from 0 on, expected 4",
        ),
        (
            (Evaluate(Call(Callee("f"), (Address(X, Size(5)),))),),
            "buffer `x`: is accessed out of bounds; got 0 elements from 5 on, expected 4",
        ),
    ],
)
def test_undefined_behaviour_of_statements_is_an_error(body: Block, problem: str) -> None:
    arguments: dict[Buffer | Variable, NDArray] = {X: np.zeros(4, np.float32), OUT: np.zeros(4, np.float32)}
    with pytest.raises(ExecutionError) as raised:
        interpret(Function("f", (X, OUT), body), arguments)
    assert str(raised.value) == problem


def test_an_array_of_another_dtype_is_no_argument() -> None:
    with pytest.raises(ExecutionError) as raised:
        interpret(Function("f", (X,), ()), {X: np.zeros((2, 2), np.float64)})
    assert (
        str(raised.value)
        == "buffer `x`: has another dtype or number of axes; got 2 axes of float64, expected 1 axis of float32"
    )
