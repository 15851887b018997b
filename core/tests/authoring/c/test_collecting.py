"""Names used by functions from their surroundings."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.authoring.c.collecting import vector_types_of

FLOAT = c.CType("float32")
X, OUT = c.Buffer("x", "float32"), c.Buffer("out", "float32", c.MemoryAccess.WRITE)


def test_functions_are_called_in_the_order_of_their_first_calls() -> None:
    one, other = c.Callee("one", lambda: 0), c.Callee("other", lambda value: value)
    inner = c.Call(one, (), FLOAT)
    body = (c.Store(OUT, c.Size(0), c.Call(other, (inner,), FLOAT)), c.Store(OUT, c.Size(1), inner))
    assert c.uses_of(c.Function("f", (OUT,), body)).callees == (other, one)


def test_words_of_raw_text_are_no_placeholders() -> None:
    raw = c.Raw("clamp({0}, LOW)", FLOAT, (X[0],))
    statement = c.RawStatement(("mark({w0}, {0}, {d0});",), (X[0],), (OUT,), (c.Variable("hidden"),))
    function = c.Function("f", (X, OUT), (statement, c.Store(OUT, c.Size(0), raw)))
    assert c.uses_of(function).words == {"clamp", "LOW", "mark"}


def test_vector_types_are_those_of_values_and_arrays() -> None:
    sums = c.Buffer("sums", "float64", c.MemoryAccess.WRITE, 8)
    body = (
        c.LocalArray(sums, lanes=4),
        c.Let(c.Variable("wide", FLOAT.with_lanes(8)), c.Load(X, c.Size(0), 8)),
        c.Store(OUT, c.Size(0), c.Load(X, c.Size(8), 2)),
    )
    types = vector_types_of([c.Function("f", (X, OUT), body)])
    assert types == {c.CType("float32", 2), c.CType("float32", 8), c.CType("float64", 4)}
