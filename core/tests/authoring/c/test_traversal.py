"""Walks over blocks: the reads, writes, declarations and mentions."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.authoring.c.traversal import buffers_read, buffers_written, expressions_in, free_in, map_block
from byoc_core.dims import symbol
from hypothesis import given

from core.tests.authoring.c.nests import Case, cases, function_of

FLOAT = c.CType("float32")
X, OUT = c.Buffer("x", "float32"), c.Buffer("out", "float32", c.MemoryAccess.WRITE)
LINE = c.Buffer("line", "float32")
ROW, COUNT, VALUE = c.Variable("i"), c.Variable("count"), c.Variable("value", FLOAT)
BLOCK: c.Block = (
    c.Alias(LINE, X, COUNT),
    c.For(ROW, c.Size(0), c.Size(symbol("n")), (c.Let(VALUE, LINE[ROW]), c.Store(OUT, ROW, VALUE))),
)


@given(case=cases())
def test_a_walk_that_changes_nothing_returns_an_equal_block(case: Case) -> None:
    body = function_of(case, c.Schedule()).body
    assert map_block(body, lambda expression: expression) == body


@given(case=cases())
def test_a_function_uses_its_parameters_alone(case: Case) -> None:
    function = function_of(case, c.Schedule())
    assert free_in(function.body) <= set(function.parameters)


def test_what_a_block_uses() -> None:
    assert free_in(BLOCK) == {X, OUT, COUNT}
    assert buffers_read(BLOCK) == {X, LINE}
    assert buffers_written(BLOCK) == {OUT}
    assert c.symbols_in(BLOCK) == {"n"}


def test_a_dispatch_mentions_the_sizes_of_its_work() -> None:
    dispatch = c.Dispatch(ROW, COUNT, (), symbol("n"), 1, symbol("m") * 10)
    assert c.symbols_in((dispatch,)) == {"n", "m"}


def test_a_call_writes_what_its_arguments_point_to() -> None:
    call = c.Evaluate(c.Call(c.Callee("fill", writes=(0,)), (c.Address(OUT, c.Size(0)), c.Address(X, c.Size(0)))))
    assert buffers_written((call,)) == {OUT}
    assert buffers_read((call,)) == {OUT, X}


def test_an_expression_stands_for_a_variable_everywhere() -> None:
    block = c.substitute(BLOCK, {COUNT: c.Size(3)})
    assert COUNT not in set(expressions_in(block))
    assert block == (c.Alias(LINE, X, c.Size(3)), BLOCK[1])


def test_expressions_come_before_their_operands() -> None:
    store = c.Store(OUT, ROW + 1, X[ROW])
    assert list(expressions_in((store,))) == [ROW + 1, ROW, c.Size(1), X[ROW], ROW]
