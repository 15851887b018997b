"""Random nests and schedules, with their functions and arrays."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.authoring.c import (
    Accumulator,
    Axis,
    Block,
    Buffer,
    CType,
    Element,
    Expression,
    For,
    Function,
    Let,
    Literal,
    Load,
    MemoryAccess,
    Nest,
    Schedule,
    Size,
    Statement,
    Store,
    Unary,
    Variable,
    interpret,
    lower_nest,
    verify,
)
from byoc_core.authoring.c.traversal import with_blocks
from byoc_core.dims import Dim, evaluate, product, symbol
from byoc_core.dtypes import to_numpy
from byoc_core.errors import InternalError
from hypothesis import assume
from hypothesis import strategies as st

__all__ = [
    "Case",
    "arrays_of",
    "cases",
    "function_of",
    "product_case",
    "run",
    "schedules",
    "schedules_that_fit",
    "with_much_work",
]

NDArray = npt.NDArray[Any]
FLOAT = CType("float32")
SYMBOLS = ("n", "m")
_MAX_POINTS = 2_500
"""Points of a nest: the interpreter takes some ten microseconds for each."""


@dataclass(frozen=True)
class Case:
    """A nest over buffers, with numbers for the symbolic sizes.

    Attributes:
        nest: the nest.
        inputs: the buffers read.
        outputs: the buffers stored to.
        sizes: the symbolic sizes.
        seed: of the numbers in the inputs.
    """

    nest: Nest
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    sizes: Mapping[str, int]
    seed: int


def arrays_of(case: Case) -> dict[Buffer | Variable, NDArray]:
    """Return arrays for the buffers of a case: random inputs, and outputs of NaNs."""
    rng = np.random.default_rng(case.seed)
    arrays: dict[Buffer | Variable, NDArray] = {}
    for buffer in case.inputs:
        assert buffer.size is not None
        arrays[buffer] = rng.standard_normal(evaluate(buffer.size, case.sizes)).astype(to_numpy(buffer.dtype))
    for buffer in case.outputs:
        assert buffer.size is not None
        arrays[buffer] = np.full(evaluate(buffer.size, case.sizes), np.nan, to_numpy(buffer.dtype))
    return arrays


def function_of(case: Case, schedule: Schedule | None = None, name: str = "kernel") -> Function:
    """Return a verified function computing the nest of a case."""
    return verify(Function(name, (*case.inputs, *case.outputs), lower_nest(case.nest, schedule or Schedule())))


def run(function: Function, case: Case, order: random.Random | None = None) -> list[bytes]:
    """Return the bytes of the outputs computed by the interpreter."""
    arrays = arrays_of(case)
    interpret(function, arrays, case.sizes, order=order)
    return [arrays[buffer].tobytes() for buffer in case.outputs]


def with_much_work(function: Function) -> Function:
    """Return a function with enough work for several threads in each parallel loop."""

    def changed(block: Block) -> Block:
        inside = (with_blocks(statement, changed) for statement in block)
        return tuple(replace(item, round_ps=10**9) if isinstance(item, For) else item for item in inside)

    return replace(function, body=changed(function.body))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a nest: 1 to 3 axes, known and symbolic sizes, broadcast and strided loads, a reduction or none."""
    sizes = {name: draw(st.integers(1, 9)) for name in SYMBOLS}
    symbols: st.SearchStrategy[Dim] = st.sampled_from([symbol(name) for name in SYMBOLS])
    dims, last = st.one_of(st.integers(1, 5), symbols), st.one_of(st.integers(4, 17), symbols)
    names = "ijk"[: draw(st.integers(1, 3))]
    axes = tuple(Axis(Variable(name), draw(last if name == names[-1] else dims)) for name in names)
    reduced = tuple(Axis(Variable(name), draw(dims)) for name in "rs"[: draw(st.integers(0, 2))])
    assume(evaluate(product(axis.size for axis in (*axes, *reduced)), sizes) <= _MAX_POINTS)
    inputs = tuple(_input(draw, f"x{number}", (*axes, *reduced)) for number in range(draw(st.integers(1, 3))))
    values = _values(draw, inputs, (*axes, *reduced))
    lets = [Let(Variable(f"t{number}", FLOAT), value) for number, value in enumerate(values)]
    results: list[Expression] = [let.variable for let in lets]
    accumulators: tuple[Accumulator, ...] = ()
    if reduced:
        accumulators = tuple(_accumulator(draw, number, let.variable) for number, let in enumerate(lets))
        results = [item.variable for item in accumulators]
    outputs = []
    body: list[Statement] = [] if reduced else [*lets]
    for number, value in enumerate(results):
        out = Buffer(f"out{number}", "float32", MemoryAccess.WRITE, product(axis.size for axis in axes))
        outputs.append(out)
        if draw(st.integers(0, 3)) == 0:
            made = Variable(f"y{number}", FLOAT)
            body.append(Let(made, Element("nn.relu", (value,), FLOAT)))
            value = Unary("-", made)
        body.append(Store(out, _offset(axes), value))
    nest = Nest(axes, tuple(body), reduced, tuple(lets) if reduced else (), accumulators)
    return Case(nest, tuple(inputs), tuple(outputs), sizes, draw(st.integers(0, 99)))


def _offset(axes: Sequence[Axis]) -> Expression:
    """Return the row-major offset of a point."""
    offset: Expression = Size(0)
    for axis in axes:
        offset = offset * axis.size + axis.index
    return offset


def _input(draw: st.DrawFn, name: str, axes: tuple[Axis, ...]) -> Buffer:
    """Draw a buffer over some axes; :func:`_load` leaves out the others."""
    return Buffer(name, "float32", MemoryAccess.READ, product(axis.size for axis in axes) * draw(st.integers(1, 2)))


def _load(draw: st.DrawFn, buffer: Buffer, axes: Sequence[Axis]) -> Load:
    """Draw a load: of all axes or some (a broadcast), in any order (strides), backwards or with stride 2."""
    used: list[Axis] = draw(st.permutations([axis for axis in axes if draw(st.booleans())]))
    offset = _offset(used)
    assert buffer.size is not None
    total = product(axis.size for axis in used)
    match draw(st.integers(0, 3)):
        case 0 if used:
            offset = Size(total - 1) - offset
        case 1 if buffer.size == product(axis.size for axis in axes) * 2:
            offset = offset * 2 + 1
    return buffer[offset]


def _values(draw: st.DrawFn, inputs: Sequence[Buffer], axes: Sequence[Axis]) -> list[Expression]:
    values = []
    for _ in range(draw(st.integers(1, 2))):
        value: Expression = _load(draw, draw(st.sampled_from(inputs)), axes)
        for _ in range(draw(st.integers(0, 2))):
            other: Expression = _load(draw, draw(st.sampled_from(inputs)), axes)
            match draw(st.sampled_from("+-*lf")):
                case "+":
                    value = value + other
                case "-":
                    value = other - value
                case "*":
                    value = value * other
                case "l":
                    value = value * Literal(0.75, FLOAT)
                case _:
                    value = other - (value - other)
        values.append(value)
    return values


def _accumulator(draw: st.DrawFn, number: int, value: Variable) -> Accumulator:
    total = Variable(f"total{number}", FLOAT)
    if draw(st.booleans()):
        return Accumulator(total, Literal(0.5, FLOAT), total + value * value)
    return Accumulator(total, Literal(-1e30, FLOAT), Element("maximum", (total, value), FLOAT))


def product_case(num_rows: Dim, num_columns: Dim, depth: Dim, sizes: Mapping[str, int]) -> Case:
    """Return the product of two matrices, as a nest of the axes ``i``, ``j`` and the reduced axis ``r``."""
    i, j, r = (Axis(Variable(name), size) for name, size in (("i", num_rows), ("j", num_columns), ("r", depth)))
    left, right = Buffer("left", "float32", size=num_rows * depth), Buffer("right", "float32", size=depth * num_columns)
    out = Buffer("out", "float32", MemoryAccess.WRITE, num_rows * num_columns)
    total = Variable("total", FLOAT)
    value = total + left[_offset((i, r))] * right[_offset((r, j))]
    accumulator = Accumulator(total, Literal(0, FLOAT), value)
    nest = Nest((i, j), (Store(out, _offset((i, j)), total),), (r,), (), (accumulator,))
    return Case(nest, (left, right), (out,), sizes, 7)


@st.composite
def schedules(draw: st.DrawFn, nest: Nest, *, is_nested: bool = False) -> Schedule:
    """Draw a schedule of a nest; some nests cannot be computed by the schedule.

    The parallel loops are the outermost loops; with ``is_nested``, other loops may be outside.
    """
    names = [axis.name for axis in nest.axes]
    tiles: dict[str, int] = {}
    loops: list[str] = []
    for name in names:
        loops.append(name)
        if draw(st.booleans()):
            tiles[name] = draw(st.sampled_from([4, 8, 5, 2, 1]))
            loops.append(f"{name}.tile")
            if draw(st.booleans()):
                tiles[f"{name}.tile"] = draw(st.integers(1, 3))
                loops.append(f"{name}.tile.tile")
    reduced: list[str] = []
    for axis in nest.reduced:
        if draw(st.booleans()):
            tiles[axis.name] = draw(st.integers(1, 4))
            reduced.append(f"{axis.name}.tile")
        reduced.append(axis.name)
    order = _order(draw, loops, reduced)
    domain = order[: order.index(reduced[0])] if reduced else order
    first = draw(st.integers(0, max(len(domain) - 1, 0))) if is_nested else 0
    parallel = tuple(domain[first : first + draw(st.integers(0, 2))])
    free = [name for name in order if name not in parallel and name not in reduced]
    has_vector: bool = draw(st.booleans())
    vector = free[-1] if free and has_vector else None
    unrolled = frozenset(name for name in (*free, *reduced) if draw(st.integers(0, 3)) == 0)
    lanes = draw(st.sampled_from([1, 4, 8])) if vector else 1
    return Schedule(tiles, tuple(order), parallel, vector, lanes, unrolled, draw(st.integers(1, 3)))


def _order(draw: st.DrawFn, loops: Sequence[str], reduced: Sequence[str]) -> list[str]:
    """Draw an order with tiles inside their loops over tiles and unchanged order of the reduction."""
    drawn: list[str] = draw(st.permutations(loops))
    order = sorted(drawn, key=lambda name: -name.count(".tile"))
    if draw(st.booleans()):
        # By depth all loops over tiles are outermost; by axis they are beside their tiles.
        axes: list[str] = draw(st.permutations(list("ijk")))
        order = [name for axis in axes for name in order if name.startswith(axis)]
    place = draw(st.integers(0, len(order)))
    for name in reduced:
        order.insert(place, name)
        place = draw(st.integers(place + 1, len(order)))
    return order


def schedules_that_fit(case: Case, schedule: Schedule) -> Schedule:
    """Return the schedule, if necessary without vectors, without unrolled loops, or without an order."""
    sums = replace(schedule, order=(), parallel=())
    for candidate in (
        schedule,
        replace(schedule, unrolled=frozenset()),
        replace(schedule, vector=None, lanes=1, unrolled=frozenset()),
        replace(sums, vector=None, lanes=1, unrolled=frozenset()),
    ):
        try:
            lower_nest(case.nest, candidate)
        except InternalError:
            continue
        return candidate
    raise AssertionError(schedule)
