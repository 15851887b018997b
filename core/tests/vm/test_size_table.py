"""Sizes computed by the C extension equal Python's, and the extension declines cases refused by Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from byoc_core.dims import Dim, evaluate, parse_dim
from byoc_core.errors import IRTypeError
from byoc_core.runtime.extension import extension, extension_status
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.size_table import SizeTable, symbol_sources
from hypothesis import assume, example, given
from hypothesis import strategies as st

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(extension() is None, reason=extension_status()[1] or "it is there"),
]

SYMBOLS = ("m", "n")
MOST = 10_000


def fail(index: int, reason: int | Exception) -> None:
    raise AssertionError((index, reason))


def result_shape(dim: Dim, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of a result of this size, for an input of ``(m, n)``; ``None`` if left to Python."""
    native = extension()
    assert native is not None
    table = SizeTable(native, SYMBOLS)
    element = (1, 8, 1, np.dtype(np.uint8))
    shapes = [(parse_dim("m"), parse_dim("n")), (dim,)]
    registers = tuple((native.ARGUMENT, 0, *element, table.numbers(s), None, table.number(0), None) for s in shapes)
    code = native.Code(((native.RET, (), 0, 0, 0, None),), registers, (len(SYMBOLS), tuple(table.operations), ()), fail)
    plan = native.Plan(code, 1, 1, ((0, 0, 0, 1, 0), (1, 0, 1, 1, 0)), lambda: native.Frame(code))
    made = plan.run([np.empty(sizes, np.uint8)], [None])
    return None if made is None else made.shape


@st.composite
def texts(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([*SYMBOLS, "0", "1", "2", "3", "7"]))
    left, right = draw(texts(depth - 1)), draw(texts(depth - 1))
    operation = draw(st.sampled_from(["+", "-", "*", "//", "%", "max", "min", "broadcast"]))
    return f"({left} {operation} {right})" if len(operation) < 3 else f"{operation}({left}, {right})"


@given(texts(), st.integers(0, 5), st.integers(0, 5))
@example("m // n", 3, 0)
@example("(m - n) // 2", 0, 5)
@example("(m - n) % 3 + 1", 0, 5)
@example("5 // (m - n) + 3", 0, 2)
@example("5 % (m - n) + 3", 0, 2)
@example("broadcast(m, n)", 2, 3)
@example("broadcast(m, n)", 1, 3)
@example("m ** 3 * n ** 2", 2, 3)
def test_it_is_what_python_computes(text: str, m: int, n: int) -> None:
    try:
        dim = parse_dim(text)
    except IRTypeError:
        assume(False)
    expected: tuple[int, ...] | None = None
    try:
        size = evaluate(dim, {"m": m, "n": n})
        expected = (size,) if size >= 0 else None
    except IRTypeError:
        pass
    assume(expected is None or expected[0] <= MOST)
    assert result_shape(dim, (m, n)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "m * 9223372036854775807 * 2",
        "m * 9223372036854775808",
        "m * 18446744073709551616",  # 0 in 64 bits
        "m * 4611686018427387904 + m * 4611686018427387904",
        "9223372036854775808 // m",
        "min(m * 9223372036854775808, 4)",
    ],
)
def test_what_64_bits_do_not_hold_is_left_to_python(text: str) -> None:
    assert result_shape(parse_dim(text), (2, 1)) is None


@pytest.mark.parametrize(
    ("shapes", "symbols", "expected"),
    [
        ([("n", "m")], "mn", {(1, 0, 0, 1, 0), (0, 0, 1, 1, 0)}),
        ([("2*n+3",), ("n",)], "n", {(0, 0, 0, 2, 3)}),
        ([(4, "5-n")], "n", {(0, 0, 1, -1, 5)}),
        ([("n*m", "m")], "m", {(0, 0, 1, 1, 0)}),
        ([("n*m", "m")], "mn", None),
        ([("n+m", "m")], "mn", None),
        ([("n//2",)], "n", None),
        ([("n + 9223372036854775808",)], "n", None),
        ([(3,)], "", set()),
    ],
)
def test_where_a_call_tells_the_symbols(
    shapes: Sequence[Sequence[object]], symbols: str, expected: set[tuple[int, ...]] | None
) -> None:
    params = [TensorSpec("x", "uint8", tuple(parse_dim(str(dim)) for dim in shape)) for shape in shapes]
    found = symbol_sources(params, tuple(symbols))
    assert (found if found is None else set(found)) == expected
