"""A text shared by functions with different names and comments only."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.authoring.c.renewal import renewed
from hypothesis import given

from core.tests.authoring.c.nests import Case, cases, function_of

FLOAT = c.CType("float32")


def doubled(names: tuple[str, str, str], factor: int = 2, size: int = 4) -> c.Function:
    """Return a function doubling elements."""
    x, out = c.Buffer(names[0], "float32"), c.Buffer(names[1], "float32", c.MemoryAccess.WRITE)
    index = c.Variable(names[2])
    store = c.Store(out, index, x[index] * factor)
    return c.Function(f"of_{names[0]}", (x, out), (c.For(index, c.Size(0), c.Size(size), (store,)),), comments=names)


def test_names_and_comments_tell_nothing() -> None:
    text = c.anonymous_text(doubled(("x", "out", "i")))
    assert text == c.anonymous_text(doubled(("left", "target", "row")))
    assert text != c.anonymous_text(doubled(("x", "out", "i"), factor=3))
    assert text != c.anonymous_text(doubled(("x", "out", "i"), size=5))


def test_parameters_in_another_order_are_another_function() -> None:
    x, y, out = c.Buffer("x", "float32"), c.Buffer("y", "float32"), c.Buffer("out", "float32", c.MemoryAccess.WRITE)
    body = (c.Store(out, c.Size(0), x[0] - y[0]),)
    one, other = (c.Function("f", (*pair, out), body) for pair in ((x, y), (y, x)))
    assert c.anonymous_text(one) != c.anonymous_text(other)


@given(case=cases())
def test_a_copy_has_the_same_text(case: Case) -> None:
    function = function_of(case, c.Schedule())
    copy = c.Function("copy", function.parameters, renewed(function.body))
    assert c.anonymous_text(copy) == c.anonymous_text(function)
