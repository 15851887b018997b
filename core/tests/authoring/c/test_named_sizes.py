"""Sizes with calls become parameters of a function; the caller computes each size."""

from __future__ import annotations

import random
from collections.abc import Mapping

from byoc_core.authoring import c
from byoc_core.authoring.c.traversal import expressions_in, statements_in
from byoc_core.dims import Dim, evaluate, has_calls, parse_dim, substitute, symbol
from byoc_core.errors import IRTypeError
from hypothesis import assume, given
from hypothesis import strategies as st

from core.tests.authoring.c.nests import Case, arrays_of, cases, function_of, schedules, schedules_that_fit
from core.tests.authoring.drawn_sizes import CALL, SYMBOLS, sizes

VALUES = st.fixed_dictionaries({name: st.integers(0, 40) for name in SYMBOLS})


def filled(first: Dim, end: Dim, step: Dim, *, round_ps: int = 10**9) -> c.Function:
    """Return a function storing to rows between two sizes, in a loop for several threads if a round takes long."""
    out = c.Buffer("out", "int64", c.MemoryAccess.WRITE)
    row, column = c.variables("row column")
    value = row * c.Size(end) + c.Size(first * end)
    inner = c.For(column, c.Size(first), c.Size(end), (c.Store(out, row * c.Size(step) + column, value),))
    loop = c.For(row, c.Size(0), c.Size(end), (inner,), kind=c.LoopKind.PARALLEL, round_ps=round_ps)
    function = c.Function("f", (out,), (loop,))
    return c.outline(function) if round_ps else c.serialise(function)


def dims_of(function: c.Function) -> list[Dim]:
    """Return the sizes in a function, in order."""
    dims = [item.dim for item in expressions_in(function.body) if isinstance(item, c.Size)]
    for item in statements_in(function.body):
        if isinstance(item, c.Dispatch):
            dims += [item.count, item.grain, item.work_ps]
    return dims


@given(sizes, sizes, sizes, VALUES)
def test_named_sizes_have_the_values_of_the_sizes(first: Dim, end: Dim, step: Dim, values: dict[str, int]) -> None:
    function = filled(first, end, step)
    named, found = c.name_sizes(function)
    before, after = dims_of(function), dims_of(named)
    assert not any(map(has_calls, after))
    assert not CALL.search(c.print_function(named))
    assert len(set(found.values())) == len(found)
    assert not set(found) & c.symbols_in(function.body)
    try:
        known = values | {name: evaluate(dim, values) for name, dim in found.items()}
        expected = [evaluate(dim, values) for dim in before]
    except IRTypeError:  # a broadcast of sizes that do not fit
        assume(False)
    assert [evaluate(dim, known) for dim in after] == expected


@given(st.data())
def test_the_function_computes_the_same(data: st.DataObject) -> None:
    case = data.draw(cases())
    schedule = schedules_that_fit(case, data.draw(schedules(case.nest)))
    function = c.outline(function_of(case, schedule))
    named, found = c.name_sizes(function)
    values: Mapping[str, int] = {**case.sizes, **{name: evaluate(dim, case.sizes) for name, dim in found.items()}}
    results = []
    for item, known in ((function, case.sizes), (named, values)):
        arrays = arrays_of(case)
        c.interpret(item, arrays, known, order=random.Random(1))
        results.append([arrays[buffer].tobytes() for buffer in case.outputs])
    assert results[0] == results[1]


def test_multiples_and_sums_share_a_symbol() -> None:
    half = symbol("n") // 2
    named, found = c.name_sizes(filled(half + 1, half * 3, half * -2 + 4, round_ps=0))
    assert set(found.values()) == {half, half * half + half}
    name = next(name for name, dim in found.items() if dim == half)
    text = c.print_function(named)
    for part in (f"column = dim_{name} + 1;", f"row < (3 * dim_{name});", f"((-2) * dim_{name} + 4)"):
        assert part in text


def test_work_beyond_integers_is_no_size() -> None:
    """The work in picoseconds is computed in floats: a product of sizes and a time overflows ``int64_t``."""
    work = parse_dim("(n//2)*(m//3)*n") * 2**62
    out, first, end = c.Buffer("out", "float32", c.MemoryAccess.WRITE), *c.variables("first end")
    store = c.Store(out, first, c.Literal(0.0, c.CType("float32")))
    function = c.Function("f", (out,), (c.Dispatch(first, end, (store,), symbol("n"), 1, work),))
    named, found = c.name_sizes(function)
    assert set(found.values()) == {symbol("n") // 2, symbol("m") // 3}
    (dispatch,) = named.body
    assert isinstance(dispatch, c.Dispatch)
    assert substitute(dispatch.work_ps, found) == work


def test_functions_of_equal_statements_become_equal() -> None:
    ends = map(parse_dim, ("n//2", "(m+3)//4"))
    texts = {c.anonymous_text(c.name_sizes(filled(0, end, end * 2, round_ps=0))[0]) for end in ends}
    assert len(texts) == 1
    other = c.name_sizes(filled(0, parse_dim("n//2"), parse_dim("n//2") * 3, round_ps=0))[0]
    assert c.anonymous_text(other) not in texts


@given(cases())
def test_known_sizes_and_polynomials_stay(case: Case) -> None:
    function = function_of(case)
    named, found = c.name_sizes(function)
    if not any(map(has_calls, dims_of(function))):
        assert (c.print_function(named), found) == (c.print_function(function), {})
    assert not any(map(has_calls, dims_of(named)))
