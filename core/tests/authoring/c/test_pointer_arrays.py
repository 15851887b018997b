"""Arrays of pointers: set by stores of addresses, handed to functions, read as the source of an alias."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from byoc_core.authoring import c
from byoc_core.errors import ExecutionError

X = c.Buffer("x", "float32")
ZEROS = c.Buffer("zeros", "float32", size=2)
OUT = c.Buffer("out", "float32", c.MemoryAccess.WRITE)
ROWS = c.PointerArray("rows", "float32", c.MemoryAccess.WRITE, 4)
I, J = c.Variable("i"), c.Variable("j")  # noqa: E741
LINE = c.Buffer("line", "float32")

GIVEN = c.PointerArray("given", "float32")
SUMS = c.Buffer("sums", "float32", c.MemoryAccess.WRITE)
SUM = c.Function(
    "sum_rows",
    (GIVEN, SUMS),
    (c.For(J, c.Size(0), c.Size(2), (c.Alias(LINE, GIVEN, J), c.Store(SUMS, J, LINE[0] + LINE[1]))),),
)
CALLEE = c.Callee("sum_rows", writes=(1,), function=SUM)

POINT = c.Store(ROWS, I, c.Select(I.compare("<", 3), c.Address(X, I * 2), c.Address(ZEROS, c.Size(0))))
FILL = c.For(I, c.Size(0), c.Size(4), (POINT,))


def _call(first: int) -> c.Statement:
    return c.Evaluate(c.Call(CALLEE, (c.Address(ROWS, c.Size(first)), c.Address(OUT, c.Size(first)))))


def _function(*after: c.Statement) -> c.Function:
    body = (c.LocalArray(ZEROS, is_zeroed=True), c.LocalArray(ROWS), FILL, *(after or (_call(0), _call(2))))
    return c.Function("f", (X, OUT), body)


def _run(function: c.Function) -> list[float]:
    out = np.zeros(4, "float32")
    c.interpret(function, {X: np.arange(6, dtype="float32"), OUT: out})
    return [float(item) for item in out]


def test_a_function_reads_the_rows_of_a_part_of_the_array() -> None:
    assert c.problems_of(SUM) == []
    assert c.problems_of(_function()) == []
    assert _run(_function()) == [1, 5, 9, 0]


def test_it_is_printed_as_c_has_it() -> None:
    text = c.print_function(_function())
    assert "static const float zeros[2] = {0};" in text
    assert "const float *rows[4];" in text
    assert "rows[i] = i < 3 ? x + i * 2 : zeros;" in text
    assert "sum_rows(rows + 2, out + 2);" in text
    head = "static void sum_rows(const float *const *given, float *restrict sums) {"
    assert head in c.print_function(SUM)
    assert "const float *line = given[j];" in c.print_function(SUM)
    filled = c.Function("fill", (ROWS, X), (c.Store(ROWS, c.Size(0), c.Address(X, c.Size(1))),))
    assert "static void fill(const float **restrict rows, const float *x) {" in c.print_function(filled)


def test_an_alias_may_be_a_part_of_the_array() -> None:
    part = c.PointerArray("part", "float32")
    function = _function(
        c.Alias(part, ROWS, c.Size(1)), c.Alias(LINE, part, c.Size(1)), c.Store(OUT, c.Size(0), LINE[1])
    )
    assert c.problems_of(function) == []
    assert "const float *const *part = rows + 1;" in c.print_function(function)
    assert _run(function)[0] == 5


def test_a_pointer_that_a_loop_sets_stays_inside_it() -> None:
    """A pointer is read in the loop setting it; the pointer's target may be written by the loop."""
    read = (POINT, c.Alias(LINE, ROWS, c.Size(0)), c.Store(OUT, I, LINE[1]))
    function = _function(c.For(I, c.Size(0), c.Size(3), read))
    assert c.print_function(c.hoist(function)).count("line = rows[0];\n    out") == 1
    kept = _function(c.For(I, c.Size(0), c.Size(3), read[1:]))
    assert c.print_function(c.hoist(kept)).count("line = rows[0];\n  for") == 1
    value = c.Variable("value", c.CType("float32"))
    own = c.Store(ROWS, c.Size(0), c.Address(OUT, c.Size(0)))
    loop = c.For(I, c.Size(0), c.Size(3), (c.Let(value, LINE[0]), c.Store(OUT, I, value + 1)))
    changed = _function(own, c.Alias(LINE, ROWS, c.Size(0)), loop)
    assert _run(c.hoist(changed)) == _run(changed)


def test_a_pointer_that_nothing_set_is_an_error() -> None:
    unset = c.PointerArray("unset", "float32", c.MemoryAccess.WRITE, 2)
    function = _function(c.LocalArray(unset), c.Alias(LINE, unset, c.Size(0)), c.Store(OUT, c.Size(0), LINE[0]))
    with pytest.raises(ExecutionError, match=r"array `unset`: the element read as a pointer holds no pointer"):
        _run(function)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (c.Store(ROWS, c.Size(0), X[0]), "Store: `rows` holds pointers, but is set to a value"),
        (c.Store(OUT, c.Size(0), c.Address(X, c.Size(0))), "Store: the address of `x` is used as a value"),
        (c.Store(OUT, c.Size(0), ROWS[0]), "Store: `rows` holds pointers, but is used as numbers"),
        (
            c.Store(ROWS, c.Size(4), c.Address(X, c.Size(0))),
            "Store: `rows` has 4 elements: access to 1 from 4 on is out of bounds",
        ),
        (c.Clear(ROWS, c.Size(0), c.Size(1)), "Clear: `rows` holds pointers, but is used as numbers"),
        (
            c.Store(ROWS, c.Size(0), c.Select(c.Literal(True, c.BOOL), c.Address(X, c.Size(0)), X[0])),
            "Store: a choice of an address or a value",
        ),
        (c.Alias(GIVEN, X, c.Size(0)), "Alias: `given` holds pointers, but `x` holds numbers"),
        (
            c.Alias(SUMS, ROWS, c.Size(0)),
            "Alias: `sums` must be a read-only pointer to float32, the target of `rows`",
        ),
        (
            c.Alias(LINE, ROWS, c.Size(0), c.Literal(True, c.BOOL), X),
            "Alias: `line` is a choice of pointers of an array",
        ),
        (
            c.LocalArray(replace(ROWS, name="other"), is_zeroed=True),
            "LocalArray: `other` holds pointers, but is used as numbers",
        ),
        (c.Store(ZEROS, c.Size(0), X[0]), "Store: `zeros` is read-only"),
    ],
)
def test_laws(statement: c.Statement, problem: str) -> None:
    assert problem in c.problems_of(_function(statement))
