"""Schedules: the computation order of a nest, separate from the computed values.

A schedule names loops. The loop over an axis is called after the axis. A tile size splits loop ``i`` into ``i.tile``,
over tiles, and ``i``, over the rounds of a tile. Every schedule computes the same bits: points do not depend on each
other, and the order of a reduction never changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from byoc_core.authoring.c.expressions import (
    Binary,
    Buffer,
    Element,
    Expression,
    MemoryAccess,
    Select,
    Size,
    Variable,
)
from byoc_core.authoring.c.indices import unravelled
from byoc_core.authoring.c.loops import as_copy, smaller
from byoc_core.authoring.c.nest import Accumulator, Nest
from byoc_core.authoring.c.operands import operands_of
from byoc_core.authoring.c.renewal import renewed
from byoc_core.authoring.c.simplify import simplify_block
from byoc_core.authoring.c.statements import (
    Assign,
    Block,
    Declare,
    For,
    If,
    Let,
    LocalArray,
    LoopKind,
    Statement,
    Store,
)
from byoc_core.authoring.c.traversal import map_expression, substitute
from byoc_core.authoring.c.unused import drop_unused
from byoc_core.authoring.c.vectorise import vectorised
from byoc_core.dims import Dim, ceildiv, product
from byoc_core.errors import InternalError

__all__ = ["Schedule", "lower_nest"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The computation order of a nest.

    Attributes:
        tiles: the rounds of a tile, by the name of the split loop; entries in order: a loop over tiles may be split
            again (``{"i": 4, "i.tile": 8}``).
        order: the names of all loops from the outermost to the innermost; by default the axes, then the reduced axes.
            Loops of the domain inside a reduced loop are a tile with all sums held at once.
        parallel: the names of directly nested loops with rounds shared by threads, as a single loop; loops outside run
            round after round.
        vector: the name of the loop with rounds in vector registers; the innermost loop of the domain.
        lanes: elements of a vector; with 1 the loop becomes a copy if possible, else the C compiler is told of
            independent rounds, and chooses.
        unrolled: the names of unrolled loops; the number of rounds of each is known. If a loop is shorter in the last
            tile, the rounds of this tile are not unrolled.
        grain: number of consecutive rounds of the parallel loop that stay together.
    """

    tiles: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    order: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    vector: str | None = None
    lanes: int = 1
    unrolled: frozenset[str] = frozenset()
    grain: Dim = 1


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop of a schedule.

    Attributes:
        name: the name.
        index: the index.
        stop: the end; the loop begins at 0.
        most: the largest number of rounds.
        axis: the number of the loop's axis among all axes, reduced axes last.
        is_reduced: whether the axis is reduced.
    """

    name: str
    index: Variable
    stop: Expression
    most: Dim
    axis: int
    is_reduced: bool

    @property
    def is_ragged(self) -> bool:
        """Whether this loop has fewer rounds in some rounds of the loops outside."""
        return isinstance(self.stop, Select)

    def around(self, body: Block, kind: LoopKind = LoopKind.SERIAL) -> For:
        """Return the loop around a block."""
        return For(self.index, Size(0), self.stop, body, kind=kind)


def lower_nest(nest: Nest, schedule: Schedule = Schedule()) -> Block:
    """Return the statements to compute a nest by a schedule.

    Args:
        nest: the nest to compute.
        schedule: the schedule.

    Raises:
        InternalError: the schedule names an unknown loop, omits a loop, orders a tile outside its loop over tiles, or
            changes the order of a reduction.
    """
    return _Lowering(nest, schedule).block()


class _Lowering:
    def __init__(self, nest: Nest, schedule: Schedule) -> None:
        self._nest = nest
        self._schedule = schedule
        self._loops: dict[str, _Loop] = {}
        self._positions: dict[Variable, Expression] = {}
        self._split()
        names = schedule.order or tuple(self._loops)
        self._check_order(names)
        first = next((k for k, name in enumerate(names) if self._loops[name].is_reduced), len(names))
        self._outer = [self._loops[name] for name in names[:first]]
        self._inner = [self._loops[name] for name in names[first:]]

    def _split(self) -> None:
        """Split the loops over the axes by the tile sizes."""
        axes = (*self._nest.axes, *self._nest.reduced)
        for number, axis in enumerate(axes):
            is_reduced = number >= len(self._nest.axes)
            index = Variable(axis.name)
            self._positions[axis.index] = index
            self._loops[axis.name] = _Loop(axis.name, index, Size(axis.size), axis.size, number, is_reduced)
        for name, size in self._schedule.tiles.items():
            self._split_one(self._loop(name), size)

    def _split_one(self, loop: _Loop, size: int) -> None:
        if size < 1:
            raise InternalError("schedule", f"has tiles of `{loop.name}` without rounds", got=str(size))
        outer, inner = Variable(f"{loop.name}_tile".replace(".", "_")), Variable(loop.index.name)
        first = outer * size
        num_tiles = ceildiv(loop.most, size)
        stop = Size(size) if num_tiles * size == loop.most else smaller(loop.stop - first, Size(size))
        substitution = {loop.index: first + inner}
        self._positions = {axis: _substituted(position, substitution) for axis, position in self._positions.items()}
        changed: dict[str, _Loop] = {}
        for name, old in self._loops.items():
            if old is not loop:
                changed[name] = replace(old, stop=_substituted(old.stop, substitution))
                continue
            tile = f"{name}.tile"
            changed[tile] = replace(loop, name=tile, index=outer, stop=Size(num_tiles), most=num_tiles)
            changed[name] = replace(loop, index=inner, stop=stop, most=size)
        self._loops = changed

    def _loop(self, name: str) -> _Loop:
        if name not in self._loops:
            raise InternalError("schedule", f"names the missing loop `{name}`", expected=", ".join(self._loops))
        return self._loops[name]

    def _check_order(self, names: Sequence[str]) -> None:
        if sorted(names) != sorted(self._loops):
            raise InternalError(
                "schedule", "orders another set of loops", got=", ".join(names), expected=", ".join(self._loops)
            )
        reduced = [name for name in self._loops if self._loops[name].is_reduced]
        if [name for name in names if self._loops[name].is_reduced] != reduced:
            raise InternalError("schedule", "changes the order of the reduction", expected=", ".join(reduced))
        for position, name in enumerate(names):
            if f"{name}.tile" in names[position:]:
                raise InternalError("schedule", f"has `{name}` outside `{name}.tile`")
        schedule = self._schedule
        for name in (*schedule.parallel, *schedule.unrolled, *filter(None, [schedule.vector])):
            loop = self._loop(name)
            if name in schedule.unrolled and not loop.is_ragged and not isinstance(loop.most, int):
                raise InternalError("schedule", f"unrolls `{name}`, a loop with an unknown number of rounds")
        if schedule.vector in schedule.parallel and schedule.lanes > 1:
            raise InternalError("schedule", f"vectorises the parallel loop `{schedule.vector}`")

    def block(self) -> Block:
        """Return the statements."""
        body = self._tile() if self._nest.reduced else self._points(self._nest.body)
        names, parallel = [loop.name for loop in self._outer], list(self._schedule.parallel)
        first = names.index(parallel[0]) if parallel and parallel[0] in names else 0
        end = first + len(parallel)
        if names[first:end] != parallel:
            raise InternalError("schedule", "the parallel loops are not adjacent", got=", ".join(parallel))
        body = self._loops_around(self._outer[end:], body, not self._nest.reduced)
        if parallel:
            body = (self._collapsed(self._outer[first:end], body),)
        return drop_unused(simplify_block(self._loops_around(self._outer[:first], body, False)))

    def _points(self, block: Block) -> Block:
        """Return statements of the nest with the positions of the loops in the place of the axes."""
        return substitute(block, self._positions)

    def _around(self, loop: _Loop, body: Block, is_vector: bool) -> Block:
        """Return a loop around a block, vectorised or unrolled by the schedule."""
        is_unrolled = loop.name in self._schedule.unrolled and not loop.is_ragged
        kind = LoopKind.UNROLLED if is_unrolled else LoopKind.SERIAL
        if is_vector and loop.name == self._schedule.vector:
            if self._schedule.lanes == 1:
                plain = loop.around(body, kind if is_unrolled else LoopKind.VECTOR)
                return (as_copy(plain) or plain,)
            full_loop, *rest = vectorised(loop.around(body), self._schedule.lanes)
            assert isinstance(full_loop, For)
            return (replace(full_loop, kind=kind), *rest)
        return (loop.around(body, kind),)

    def _collapsed(self, loops: Sequence[_Loop], body: Block) -> For:
        """Return a single parallel loop over the rounds of several loops."""
        schedule = self._schedule
        if len(loops) == 1:
            parallel = loops[0].around(body, LoopKind.PARALLEL)
            return replace(parallel, grain=schedule.grain)
        for loop in loops:
            if loop.is_ragged:
                body = (If(loop.index.compare("<", loop.stop), body),)
        item, sizes = Variable("item"), [loop.most for loop in loops]
        lets = map(Let, (loop.index for loop in loops), unravelled(item, sizes))
        body = (*lets, *body)
        return For(item, Size(0), Size(product(sizes)), body, 1, LoopKind.PARALLEL, schedule.grain)

    def _tile(self) -> Block:
        """Return the statements from the first reduced loop inwards, with separate code for whole and ragged tiles."""
        tile_loops = [loop for loop in self._inner if not loop.is_reduced]
        ragged = [loop for loop in tile_loops if loop.is_ragged]
        if not ragged:
            return self._sums(self._inner)
        # A loop is shortest in the last rounds of the surrounding loops.
        last = {loop.index: Size(loop.most) - 1 for loop in tile_loops}
        are_full: Expression | None = None
        for loop in ragged:
            assert isinstance(loop.stop, Select)
            is_full = _substituted(loop.stop.then, last).compare(">=", loop.stop.otherwise)
            are_full = is_full if are_full is None else Binary("&&", are_full, is_full)
        full = [replace(loop, stop=Size(loop.most)) if loop in ragged else loop for loop in self._inner]
        assert are_full is not None
        return (If(are_full, self._sums(full), renewed(self._sums(self._inner))),)

    def _sums(self, loops: Sequence[_Loop]) -> Block:
        """Return the statements for collecting the values of a tile, and then the body at each point of the tile."""
        tile_loops = [loop for loop in loops if not loop.is_reduced]
        if not tile_loops:
            return self._scalar_sums(loops)
        for loop in tile_loops:
            if not isinstance(loop.most, int):
                raise InternalError("schedule", f"holds sums along `{loop.name}`, an axis of unknown size")
        position: Expression = Size(0)
        for loop in tile_loops:
            position = position * loop.most + loop.index
        arrays = self._arrays(product(loop.most for loop in tile_loops))
        is_vector = any(loop.name == self._schedule.vector and self._has_full_vectors(loop) for loop in tile_loops)
        start = self._points(tuple(Store(array, position, item.start) for item, array in arrays))
        loads: dict[Variable, Expression] = {item.variable: array[position] for item, array in arrays}
        update = self._points((*self._nest.setup, *self._steps(arrays, position, loads)))
        declared: Block = tuple(
            LocalArray(array, lanes=self._schedule.lanes if is_vector else 1) for _, array in arrays
        )
        spill: Block = ()
        if is_vector and self._schedule.lanes > 1:
            # The body may have no vector form: read the sums from memory, element by element.
            lines = self._arrays(product(loop.most for loop in tile_loops))
            pairs = list(zip(lines, arrays, strict=True))
            spilt = tuple(Store(line, position, array[position]) for (_, line), (_, array) in pairs)
            stores = renewed(self._loops_around(tile_loops, spilt, is_vector))
            spill = (*(LocalArray(line) for _, line in lines), *stores)
            loads = {item.variable: line[position] for item, line in lines}
        finish = self._points((*(Let(variable, load) for variable, load in loads.items()), *self._nest.body))
        return (
            *declared,
            *renewed(self._loops_around(tile_loops, start, is_vector)),
            *self._loops_around(loops, update, is_vector),
            *spill,
            *renewed(self._loops_around(tile_loops, finish, False)),
        )

    def _steps(
        self, arrays: Sequence[tuple[Accumulator, Buffer]], position: Expression, loads: Mapping[Variable, Expression]
    ) -> Block:
        """Return the statements for collecting a value in each accumulator, in order."""
        steps: list[Statement] = []
        for item, array in arrays:
            # The operands of an elementwise op are variables, because its text may read an operand more than once.
            elements = [part for part in _parts(item.value) if isinstance(part, Element)]
            operands = {operand for part in elements for operand in part.operands}
            lets = {variable: Variable(variable.name, variable.type) for variable in loads if variable in operands}
            steps += (Let(new, loads[old]) for old, new in lets.items())
            steps.append(Store(array, position, _substituted(item.value, {**loads, **lets})))
        return tuple(steps)

    def _arrays(self, size: Dim) -> list[tuple[Accumulator, Buffer]]:
        """Return the accumulators, each with an array of the given size."""
        return [
            (item, Buffer(item.variable.name, item.variable.type.dtype, MemoryAccess.WRITE, size))
            for item in self._nest.accumulators
        ]

    def _has_full_vectors(self, loop: _Loop) -> bool:
        """Return whether a loop has a known number of whole vectors."""
        return isinstance(loop.stop, Size) and isinstance(loop.most, int) and loop.most % self._schedule.lanes == 0

    def _loops_around(self, loops: Sequence[_Loop], body: Block, is_vector: bool) -> Block:
        for loop in reversed(loops):
            body = self._around(loop, body, is_vector)
        return body

    def _scalar_sums(self, loops: Sequence[_Loop]) -> Block:
        accumulators = self._nest.accumulators
        steps = tuple(Assign(item.variable, item.value) for item in accumulators)
        starts = tuple(Declare(item.variable, item.start) for item in accumulators)
        update = self._loops_around(loops, self._points((*self._nest.setup, *steps)), False)
        return (*self._points(starts), *update, *self._points(self._nest.body))


def _parts(expression: Expression) -> Iterator[Expression]:
    yield expression
    for operand in operands_of(expression):
        yield from _parts(operand)


def _substituted(expression: Expression, values: Mapping[Variable, Expression]) -> Expression:
    return map_expression(expression, lambda item: values.get(item, item) if isinstance(item, Variable) else item)
