"""Functions as grids, with arrays and checks of the results: nests, copies, calls, elementwise ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.authoring import c
from byoc_core.authoring.csource_types import C_TYPES, HALF_DTYPES
from byoc_core.dims import symbol
from byoc_core.dtypes import is_float, to_numpy

from core.tests.authoring.c.drawn import drawn_functions
from core.tests.authoring.c.nests import arrays_of
from core.tests.authoring.scalar_cases import CASES, COUNT, ScalarCase, check_results, operands_of

__all__ = ["Run", "all_runs", "source_of"]

NDArray = npt.NDArray[Any]
FLOAT = c.CType("float32")
_STATED = {"sin": 2, "cos": 2, "tan": 4, "asin": 4, "acos": 3, "atan": 2, "power": 9}
_STATED |= {"sinh": 3, "cosh": 2, "asinh": 4, "acosh": 4, "atanh": 3}
CUDA_LIBRARY = {name: (bound + 0.5, "result") for name, bound in _STATED.items()}
"""NVIDIA's stated error bounds of most functions, in ULP from the correctly rounded result."""


@dataclass(frozen=True)
class Run:
    """A function on given arrays.

    Attributes:
        grid: the launches.
        arrays: the parameters, before.
        sizes: the symbolic sizes.
        check: raises an ``AssertionError`` for wrong parameters afterwards.
    """

    grid: c.Grid
    arrays: Mapping[c.Buffer, NDArray]
    sizes: Mapping[str, int]
    check: Callable[[Mapping[c.Buffer, NDArray]], None]


def source_of(runs: Sequence[Run]) -> str:
    """Return a CUDA source of all kernels."""
    kernels = [c.verify(launch.kernel) for run in runs for launch in run.grid.launches]
    return '#include "byoc_cuda.h"\n' + c.print_definitions(kernels, c.CUDA)


def all_runs(num_nests: int, *, ops: bool = True) -> list[Run]:
    """Return runs of random nests and two products, of functions of several launches, and of elementwise ops.

    Args:
        num_nests: the number of nests; with 0 there are no products either.
        ops: whether to add all elementwise ops.
    """
    functions = [*_pointwise(), *_rows(), *_copies(), *_helpers(), *_pointers()]
    cases = (*CASES, *_HALVES) if ops else ()
    return [
        *(_nests(num_nests) if num_nests else ()),
        *(_interpreted(*function) for function in functions),
        *(_elementwise(number, case) for number, case in enumerate(cases)),
    ]


def _nests(count: int) -> Iterator[Run]:
    drawn = drawn_functions(count)
    expected = iter(drawn.expected)
    for function, case in drawn.runs:
        arrays = {item: array for item, array in arrays_of(case).items() if isinstance(item, c.Buffer)}
        wanted = {buffer: next(expected) for buffer in case.outputs}
        grid = c.map_to_grid(c.simplify(c.hoist(function)))
        yield Run(grid, arrays, case.sizes, _same_bytes(function.name, wanted))


def _interpreted(function: c.Function, arrays: Mapping[c.Buffer, NDArray], sizes: Mapping[str, int]) -> Run:
    """Return a run with the interpreter's exact bits as expected results."""
    after: dict[Any, NDArray] = {buffer: array.copy() for buffer, array in arrays.items()}
    c.interpret(c.verify(function), after, sizes)
    wanted = {buffer: array.tobytes() for buffer, array in after.items()}
    return Run(c.map_to_grid(function), arrays, sizes, _same_bytes(function.name, wanted))


def _same_bytes(name: str, wanted: Mapping[c.Buffer, bytes]) -> Callable[[Mapping[c.Buffer, NDArray]], None]:
    def check(arrays: Mapping[c.Buffer, NDArray]) -> None:
        for buffer, expected in wanted.items():
            actual = arrays[buffer]
            message = f"{name}: `{buffer.name}`"
            np.testing.assert_array_equal(actual, np.frombuffer(expected, actual.dtype), err_msg=message)
            assert actual.tobytes() == expected, f"{message} has other bits"

    return check


_Arguments = tuple[c.Function, dict[c.Buffer, NDArray], dict[str, int]]


def _pointwise() -> Iterator[_Arguments]:
    """Yield functions of elementwise loops: more rounds than threads, steps, a value read by all rounds."""
    rng = np.random.default_rng(1)
    for step, start in ((1, 0), (3, 2)):
        n = symbol("n")
        x, out = c.Buffer("x", "float32", size=n), c.Buffer("out", "float32", c.MemoryAccess.WRITE, n)
        i, value, scale = c.Variable("i"), c.Variable("value", FLOAT), c.Variable("scale", FLOAT)
        store = c.Store(out, i, c.Element("nn.relu", (value,), FLOAT) * scale)
        body = (c.Let(value, x[i] + x[0] / x[c.Size(n) - 1 - i]), store)
        loop = c.For(i, c.Size(start), c.Size(n), body, step, c.LoopKind.PARALLEL)
        function = c.Function(f"pointwise{step}", (x, out), (c.Let(scale, x[1]), loop))
        yield function, {x: rng.standard_normal(1000, np.float32), out: np.zeros(1000, np.float32)}, {"n": 1000}


def _rows() -> Iterator[_Arguments]:
    """Yield rows less their means, in two loops with shared scratch memory, and a total computed by a single thread."""
    n, columns = symbol("n"), 37
    x = c.Buffer("x", "float32", size=n * columns)
    out = c.Buffer("out", "float32", c.MemoryAccess.WRITE, n * columns + 1)
    means = c.Buffer("means", "float32", c.MemoryAccess.WRITE, 70)
    loops: list[tuple[c.Variable, c.Block]] = []
    total = c.Variable("total", FLOAT)
    i, j = c.Variable("i"), c.Variable("j")
    place = i * columns + j
    added = c.For(j, c.Size(0), c.Size(columns), (c.Assign(total, total + x[place]),))
    mean = c.Store(means, i, total / c.Literal(columns, FLOAT))
    loops.append((i, (c.Declare(total, c.Literal(0, FLOAT)), added, mean)))
    i, j = c.Variable("i"), c.Variable("j")
    place = i * columns + j
    moved = c.Store(out, place, x[place] - means[i])
    loops.append((i, (c.For(j, c.Size(0), c.Size(columns), (moved,), kind=c.LoopKind.VECTOR),)))
    body: c.Block = (c.LocalArray(means, is_zeroed=True),)
    for index, block in loops:
        body += (c.For(index, c.Size(0), c.Size(n), block, kind=c.LoopKind.PARALLEL),)
    whole, k = c.Variable("whole", FLOAT), c.Variable("k")
    summed = c.For(k, c.Size(0), c.Size(70), (c.Assign(whole, whole + means[k]),))
    body += (c.Declare(whole, c.Literal(0, FLOAT)), summed, c.Store(out, c.Size(n * columns), whole))
    rng = np.random.default_rng(2)
    arrays = {x: rng.standard_normal(67 * columns, np.float32), out: np.zeros(67 * columns + 1, np.float32)}
    yield c.Function("rows", (x, out), body), arrays, {"n": 67}


def _copies() -> Iterator[_Arguments]:
    """Yield copies and zeros, by threads and inside the rounds of a loop, of several dtypes and by a pointer."""
    rng = np.random.default_rng(3)
    for dtype in ("float32", "uint8", "int64", "float16"):
        n = symbol("n")
        x, out = c.Buffer("x", dtype, size=n), c.Buffer("out", dtype, c.MemoryAccess.WRITE, n * 3)
        pointer, i = c.Buffer("p", dtype, c.MemoryAccess.WRITE), c.Variable("i")
        part = (c.Copy(pointer, i * 10, x, i * 10, c.Size(5)), c.Clear(pointer, i * 10 + 5, c.Size(5)))
        body = (
            c.Copy(out, c.Size(1), x, c.Size(0), c.Size(n - 1)),
            c.Clear(out, c.Size(n), c.Size(n)),
            c.Alias(pointer, out, c.Size(n * 2)),
            c.For(i, c.Size(0), c.Size(n // 10), part, kind=c.LoopKind.PARALLEL),
        )
        arrays = {x: rng.integers(0, 99, 1000).astype(dtype), out: np.full(3000, 7, dtype)}
        yield c.Function(f"copies_{dtype}", (x, out), body), arrays, {"n": 1000}


def _helpers() -> Iterator[_Arguments]:
    """Yield a loop calling a function with a nested call and with stores to an array of the thread."""
    n = symbol("n")
    a, pair = c.Variable("a", FLOAT), c.Buffer("pair", "float32", c.MemoryAccess.SHARED)
    halved = c.Function("halved", (a,), (c.Return(a * c.Literal(0.5, FLOAT)),), FLOAT)
    call = c.Call(c.Callee("halved", function=halved), (pair[0],), FLOAT)
    split = c.Callee("split", writes=(0,), function=c.Function("split", (pair,), (c.Store(pair, c.Size(1), call),)))
    x, out = c.Buffer("x", "float32", size=n), c.Buffer("out", "float32", c.MemoryAccess.WRITE, n)
    both, i = c.Buffer("both", "float32", c.MemoryAccess.SHARED, 2), c.Variable("i")
    body = (
        c.LocalArray(both),
        c.Store(both, c.Size(0), x[i]),
        c.Evaluate(c.Call(split, (c.Address(both, c.Size(0)),))),
        c.Store(out, i, both[1]),
    )
    loop = c.For(i, c.Size(0), c.Size(n), body, kind=c.LoopKind.PARALLEL)
    arrays = {x: np.arange(500, dtype=np.float32), out: np.zeros(500, np.float32)}
    yield c.Function("helpers", (x, out), (loop,)), arrays, {"n": 500}


def _pointers() -> Iterator[_Arguments]:
    """Yield a loop with reads by pointers of an array: into an input, or into declared zeros."""
    n = symbol("n")
    x, out = c.Buffer("x", "float32", size=n), c.Buffer("out", "float32", c.MemoryAccess.WRITE, n)
    zeros = c.Buffer("zeros", "float32", size=4)
    rows, row, i = (
        c.PointerArray("rows", "float32", c.MemoryAccess.WRITE, 2),
        c.Buffer("row", "float32"),
        c.Variable("i"),
    )
    is_inside = (i + 4).compare("<", n)
    last = c.Select(is_inside, c.Address(x, i), c.Address(zeros, c.Size(0)))
    body = (
        c.LocalArray(rows),
        c.Store(rows, c.Size(0), c.Address(x, c.Size(0))),
        c.Store(rows, c.Size(1), last),
        c.Alias(row, rows, c.Size(1)),
        c.Store(out, i, row[3]),
    )
    loop = c.For(i, c.Size(0), c.Size(n), body, kind=c.LoopKind.PARALLEL)
    arrays = {x: np.arange(300, dtype=np.float32), out: np.ones(300, np.float32)}
    yield c.Function("pointers", (x, out), (c.LocalArray(zeros, is_zeroed=True), loop)), arrays, {"n": 300}


_HALVES = tuple(
    ScalarCase("cast", {"dtype": target}, (source,), target)
    for half in sorted(HALF_DTYPES)
    for other in C_TYPES
    for source, target in ((half, other), (other, half))
    if source != target and (source == half or other not in HALF_DTYPES)
)


def _half_operands(case: ScalarCase) -> list[NDArray]:
    """Return the operand of a cast from or to a half: the floats of other casts, or integers exact in halves."""
    source, target = case.dtypes[0], case.result
    if source not in HALF_DTYPES:
        return operands_of(case)
    (values,) = operands_of(ScalarCase("cast", {}, ("float32",), "float32"))
    if not is_float(target) and target != "bool":
        values = np.clip(np.nan_to_num(values), -100 if target.startswith("int") else 0, 100)
    with np.errstate(over="ignore"):
        return [values.astype(to_numpy(source))]


def _elementwise(number: int, case: ScalarCase) -> Run:
    """Return a run of an elementwise op on awkward and random elements."""
    inputs = [c.Buffer(f"x{place}", dtype, size=COUNT) for place, dtype in enumerate(case.dtypes)]
    out, i = c.Buffer("out", case.result, c.MemoryAccess.WRITE, COUNT), c.Variable("i")
    values = tuple(c.Variable("v", c.CType(dtype)) for dtype in case.dtypes)
    lets = tuple(c.Let(value, buffer[i]) for value, buffer in zip(values, inputs, strict=True))
    store = c.Store(out, i, c.Element(case.op, values, c.CType(case.result), case.attrs))
    loop = c.For(i, c.Size(0), c.Size(COUNT), (*lets, store), kind=c.LoopKind.PARALLEL)
    function = c.verify(c.Function(f"op{number}", (*inputs, out), (loop,)))
    has_halves = not HALF_DTYPES.isdisjoint((*case.dtypes, case.result))
    operands = _half_operands(case) if has_halves else operands_of(case)
    dtype: np.dtype[Any] = to_numpy(case.result)

    def check(arrays: Mapping[c.Buffer, NDArray]) -> None:
        with np.errstate(all="ignore"):
            if has_halves:
                expected = operands[0].astype(dtype).astype(np.float64)
                np.testing.assert_array_equal(arrays[out].astype(np.float64), expected, err_msg=str(case))
            else:
                check_results(case, operands, arrays[out], CUDA_LIBRARY)

    arrays = {**dict(zip(inputs, operands, strict=True)), out: np.ones(COUNT, dtype)}
    return Run(c.map_to_grid(function), arrays, {}, check)
