"""Nests: what a kernel computes, without a word about how.

A nest has a domain of axes. At each point it may collect values over reduced axes, and then computes and stores. The
points do not depend on each other, so a schedule (:mod:`byoc_core.authoring.c.schedule`) may visit them in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from byoc_core.authoring.c.expressions import Binary, Buffer, Expression, Load, Size, Variable
from byoc_core.authoring.c.operands import operands_of
from byoc_core.authoring.c.renewal import renamed, renewed
from byoc_core.authoring.c.simplify import range_of
from byoc_core.authoring.c.statements import Block, Evaluate, Let, Store
from byoc_core.authoring.c.traversal import (
    buffers_read,
    buffers_written,
    declared_by,
    expressions_of,
    map_block,
    map_expression,
    statements_in,
    substitute,
)
from byoc_core.dims import Dim, is_nonnegative
from byoc_core.errors import InternalError

__all__ = ["Accumulator", "Axis", "Nest", "fuse_into_load", "fuse_into_store", "merge_nests"]


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a nest's domain.

    Attributes:
        index: the position along the axis; its name is the axis's name in schedules.
        size: how many positions there are.
    """

    index: Variable
    size: Dim

    @property
    def name(self) -> str:
        """The name of the index."""
        return self.index.name


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A value that is collected over the reduced axes, at each point anew.

    Attributes:
        variable: the value so far.
        start: the value before the first position.
        value: the value after a position; reads the variable.
    """

    variable: Variable
    start: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class Nest:
    """What a kernel computes.

    Attributes:
        axes: the domain, in the order in which the points are visited where no schedule says otherwise.
        body: at each point, after the reduction: values and stores.
        reduced: the axes that are reduced at each point, in the order in which values are collected.
        setup: values at each position of the reduced axes.
        accumulators: what is collected.
    """

    axes: tuple[Axis, ...]
    body: Block
    reduced: tuple[Axis, ...] = ()
    setup: Block = ()
    accumulators: tuple[Accumulator, ...] = ()

    def __post_init__(self) -> None:
        names = [axis.name for axis in (*self.axes, *self.reduced)]
        if len(set(names)) < len(names):
            raise InternalError("nest", "two axes have one name", got=", ".join(names))
        if bool(self.reduced) != bool(self.accumulators):
            raise InternalError("nest", "reduced axes and accumulators go together")

    def axis(self, name: str) -> Axis:
        """Return an axis of the domain, or a reduced one, by its name.

        Raises:
            InternalError: there is none.
        """
        for axis in (*self.axes, *self.reduced):
            if axis.name == name:
                return axis
        raise InternalError("nest", "has no such axis", got=name)


def fuse_into_store(producer: Nest, consumer: Nest, buffer: Buffer) -> Nest:
    """Return a nest that computes a consumer where a producer has its result at hand: an epilogue.

    The store to the buffer goes; use :func:`merge_nests` with a copy of the store where others read the buffer.

    Args:
        producer: stores to the buffer, once at each point.
        consumer: has as many axes of the same sizes, and no reduction; reads the buffer where the producer stores.
        buffer: what is between the two.

    Raises:
        InternalError: the two do not fit.
    """
    if consumer.reduced or [axis.size for axis in consumer.axes] != [axis.size for axis in producer.axes]:
        raise InternalError("fusion", "the consumer goes over other points than the producer")
    stores = [item for item in statements_in(producer.body) if isinstance(item, Store) and item.buffer is buffer]
    if len(stores) != 1 or stores[0] not in producer.body:
        raise InternalError("fusion", f"the producer does not store to `{buffer.name}` once, at each point")
    (store,) = stores
    here = _renaming(consumer.axes, producer.axes)
    value = Variable(f"{buffer.name}_value", store.value.type)
    consumed = _with_loads(renewed(renamed(consumer.body, here)), buffer, {store.index: value})
    produced = tuple(Let(value, store.value) if item is store else item for item in producer.body)
    fused = replace(producer, body=(*produced, *consumed))
    _check_gone(fused, buffer)
    return fused


def fuse_into_load(producer: Nest, consumer: Nest, buffer: Buffer) -> Nest:
    """Return a consumer that computes what a producer stores where it reads it: a prologue.

    Args:
        producer: a nest without a reduction whose body is one store to the buffer.
        consumer: reads the buffer; each place becomes the producer's value there.
        buffer: what is between the two.

    Raises:
        InternalError: the producer has more than one store, or the consumer reads where it is not known that one of the
            producer's points stores.
    """
    match producer.body:
        case (Store(target, index, value),) if target is buffer and not producer.reduced:
            pass
        case _:
            raise InternalError("fusion", "the producer is more than one store")
    axes = frozenset(axis.index for axis in producer.axes)
    sizes = {axis.index: axis.size for axis in (*consumer.axes, *consumer.reduced)}
    ranges = {axis: (0, size - 1) for axis, size in sizes.items() if isinstance(size, int)}

    def inlined(expression: Expression) -> Expression:
        if not isinstance(expression, Load) or expression.buffer is not buffer:
            return expression
        found: dict[Variable, Expression] = {}
        is_point = _unify(index, expression.index, axes, found) and all(
            axis.index in found and _is_within(found[axis.index], axis.size, sizes, ranges) for axis in producer.axes
        )
        if not is_point:
            raise InternalError("fusion", f"`{buffer.name}` is read where no point of the producer is known to store")
        (statement,) = substitute((Store(buffer, index, value),), found)
        return expressions_of(statement)[1]

    fused = replace(
        consumer,
        body=map_block(consumer.body, inlined),
        setup=map_block(consumer.setup, inlined),
        accumulators=tuple(
            Accumulator(item.variable, map_expression(item.start, inlined), map_expression(item.value, inlined))
            for item in consumer.accumulators
        ),
    )
    _check_gone(fused, buffer)
    return fused


def merge_nests(one: Nest, other: Nest) -> Nest:
    """Return a nest that does what two nests do at each point: two outputs of one walk.

    Args:
        one: a nest.
        other: a nest with as many axes of the same sizes, the reduced ones included; it reads nothing that ``one``
            stores, nor the reverse.

    Raises:
        InternalError: they go over other points, or one reads what the other stores.
    """
    if [axis.size for axis in (*one.axes, *one.reduced)] != [axis.size for axis in (*other.axes, *other.reduced)]:
        raise InternalError("fusion", "the nests go over different points")
    for first, second in ((one, other), (other, one)):
        between = buffers_written(first.body) & buffers_read((*second.setup, *second.body, *_evaluated(second)))
        if between:
            names = ", ".join(sorted(f"`{buffer.name}`" for buffer in between))
            raise InternalError("fusion", f"one nest reads what the other stores: {names}")
    here = _renaming((*other.axes, *other.reduced), (*one.axes, *one.reduced))
    # One nest may have been made of the other: what it declares gets variables of its own.
    for statement in statements_in((*other.setup, *other.body)):
        here.update((item, replace(item)) for item in declared_by(statement))
    here.update((item.variable, replace(item.variable)) for item in other.accumulators)

    def moved(expression: Expression) -> Expression:
        (statement,) = renamed((Evaluate(expression),), here)
        return expressions_of(statement)[0]

    accumulators = []
    for item in other.accumulators:
        variable = here[item.variable]
        assert isinstance(variable, Variable)
        accumulators.append(Accumulator(variable, moved(item.start), moved(item.value)))
    return replace(
        one,
        body=(*one.body, *renamed(other.body, here)),
        setup=(*one.setup, *renamed(other.setup, here)),
        accumulators=(*one.accumulators, *accumulators),
    )


def _renaming(axes: Sequence[Axis], others: Sequence[Axis]) -> dict[Buffer | Variable, Buffer | Variable]:
    """Return the indices of axes that stand in the place of others."""
    return {one.index: other.index for one, other in zip(axes, others, strict=True)}


def _evaluated(nest: Nest) -> Block:
    """Return the values of accumulators as statements."""
    return tuple(Evaluate(value) for item in nest.accumulators for value in (item.start, item.value))


def _check_gone(nest: Nest, buffer: Buffer) -> None:
    """Check that nothing reads a buffer that nothing stores to any more."""
    if buffer in buffers_read((*nest.setup, *nest.body, *_evaluated(nest))):
        raise InternalError("fusion", f"`{buffer.name}` is read in other ways than by loads of one element")


def _is_within(
    position: Expression, size: Dim, sizes: Mapping[Variable, Dim], ranges: Mapping[Variable, tuple[int, int]]
) -> bool:
    """Return whether a position is known to be on an axis."""
    if isinstance(position, Variable) and sizes.get(position) == size:
        return True
    found = range_of(position, ranges)
    return found is not None and found[0] >= 0 and is_nonnegative(size - 1 - found[1])


def _with_loads(block: Block, buffer: Buffer, values: Mapping[Expression, Expression]) -> Block:
    """Return a block in which values stand for loads from a buffer."""

    def change(expression: Expression) -> Expression:
        if not isinstance(expression, Load) or expression.buffer is not buffer:
            return expression
        if expression.index not in values or expression.lanes > 1:
            raise InternalError("fusion", f"`{buffer.name}` is read in another place than where it is stored")
        return values[expression.index]

    return map_block(block, change)


def _unify(
    pattern: Expression, expression: Expression, axes: frozenset[Variable], found: dict[Variable, Expression]
) -> bool:
    """Return whether an index is one of another form with expressions in the place of axes, and find those."""
    if isinstance(pattern, Variable) and pattern in axes:
        return found.setdefault(pattern, expression) == expression
    if isinstance(pattern, Size | Variable):
        return pattern == expression
    if isinstance(pattern, Binary) and isinstance(expression, Binary) and pattern.operator == expression.operator:
        pairs = zip(operands_of(pattern), operands_of(expression), strict=True)
        return all(_unify(one, other, axes, found) for one, other in pairs)
    return False
