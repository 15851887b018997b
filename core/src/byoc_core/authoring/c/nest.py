"""Nests: the values computed by a kernel, without an execution order.

A nest has a domain of axes. At each point the nest may collect values over reduced axes, and then computes and stores.
The points do not depend on each other, so a schedule (:mod:`byoc_core.authoring.c.schedule`) may visit them in any
order.
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
        index: the position along the axis; named like the axis in schedules.
        size: the number of positions.
    """

    index: Variable
    size: Dim

    @property
    def name(self) -> str:
        """The name of the index."""
        return self.index.name


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A value collected over the reduced axes, at each point anew.

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
    """The values computed by a kernel.

    Attributes:
        axes: the domain, in the default order of visiting the points; a schedule may set another order.
        body: at each point, after the reduction: values and stores.
        reduced: the axes reduced at each point, in the order of collecting values.
        setup: values at each position of the reduced axes.
        accumulators: the collected values.
    """

    axes: tuple[Axis, ...]
    body: Block
    reduced: tuple[Axis, ...] = ()
    setup: Block = ()
    accumulators: tuple[Accumulator, ...] = ()

    def __post_init__(self) -> None:
        names = [axis.name for axis in (*self.axes, *self.reduced)]
        if len(set(names)) < len(names):
            raise InternalError("nest", "two axes have the same name", got=", ".join(names))
        if bool(self.reduced) != bool(self.accumulators):
            raise InternalError("nest", "needs accumulators for reduced axes, and none otherwise")

    def axis(self, name: str) -> Axis:
        """Return an axis of the domain, or a reduced axis, by its name.

        Raises:
            InternalError: there is no such axis.
        """
        for axis in (*self.axes, *self.reduced):
            if axis.name == name:
                return axis
        raise InternalError("nest", "has no such axis", got=name)


def fuse_into_store(producer: Nest, consumer: Nest, buffer: Buffer) -> Nest:
    """Return a nest with a consumer computed at the store of a producer: an epilogue.

    The store to the buffer is removed. If others read the buffer, use :func:`merge_nests` with a copy of the store.

    Args:
        producer: stores to the buffer, once at each point.
        consumer: has as many axes of the same sizes, and no reduction; reads the buffer at the position of the store.
        buffer: the buffer between producer and consumer.

    Raises:
        InternalError: the two nests do not fit.
    """
    if consumer.reduced or [axis.size for axis in consumer.axes] != [axis.size for axis in producer.axes]:
        raise InternalError("fusion", "the consumer has other points than the producer")
    stores = [item for item in statements_in(producer.body) if isinstance(item, Store) and item.buffer is buffer]
    if len(stores) != 1 or stores[0] not in producer.body:
        raise InternalError("fusion", f"the producer does not store to `{buffer.name}` once, at each point")
    (store,) = stores
    renaming = _renaming(consumer.axes, producer.axes)
    value = Variable(f"{buffer.name}_value", store.value.type)
    consumed = _with_loads(renewed(renamed(consumer.body, renaming)), buffer, {store.index: value})
    produced = tuple(Let(value, store.value) if item is store else item for item in producer.body)
    fused = replace(producer, body=(*produced, *consumed))
    _check_gone(fused, buffer)
    return fused


def fuse_into_load(producer: Nest, consumer: Nest, buffer: Buffer) -> Nest:
    """Return a consumer with the producer's stored value computed at each load: a prologue.

    Args:
        producer: a nest without a reduction; its body is a single store to the buffer.
        consumer: reads the buffer; each load becomes the producer's value at the same position.
        buffer: the buffer between producer and consumer.

    Raises:
        InternalError: the producer has more than one store, or the consumer reads at a position not known to be stored
            by a point of the producer.
    """
    match producer.body:
        case (Store(target, index, value),) if target is buffer and not producer.reduced:
            pass
        case _:
            raise InternalError("fusion", "the producer has more than a single store")
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
            raise InternalError("fusion", f"`{buffer.name}` is read at an element not provably stored by the producer")
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
    """Return a nest with the work of two nests at each point: two outputs of a single traversal.

    Args:
        one: a nest.
        other: a nest with as many axes of the same sizes, reduced axes included; reads nothing stored by ``one``, nor
            the reverse.

    Raises:
        InternalError: the points differ, or one nest reads a buffer stored by the other.
    """
    if [axis.size for axis in (*one.axes, *one.reduced)] != [axis.size for axis in (*other.axes, *other.reduced)]:
        raise InternalError("fusion", "the nests have different points")
    for first, second in ((one, other), (other, one)):
        shared = buffers_written(first.body) & buffers_read((*second.setup, *second.body, *_evaluated(second)))
        if shared:
            names = ", ".join(sorted(f"`{buffer.name}`" for buffer in shared))
            raise InternalError("fusion", f"a nest reads buffers stored by the other nest: {names}")
    renaming = _renaming((*other.axes, *other.reduced), (*one.axes, *one.reduced))
    # One nest may be derived from the other: give its declarations new variables.
    for statement in statements_in((*other.setup, *other.body)):
        renaming.update((item, replace(item)) for item in declared_by(statement))
    renaming.update((item.variable, replace(item.variable)) for item in other.accumulators)

    def moved(expression: Expression) -> Expression:
        (statement,) = renamed((Evaluate(expression),), renaming)
        return expressions_of(statement)[0]

    accumulators = []
    for item in other.accumulators:
        variable = renaming[item.variable]
        assert isinstance(variable, Variable)
        accumulators.append(Accumulator(variable, moved(item.start), moved(item.value)))
    return replace(
        one,
        body=(*one.body, *renamed(other.body, renaming)),
        setup=(*one.setup, *renamed(other.setup, renaming)),
        accumulators=(*one.accumulators, *accumulators),
    )


def _renaming(axes: Sequence[Axis], targets: Sequence[Axis]) -> dict[Buffer | Variable, Buffer | Variable]:
    """Return the mapping from the indices of axes to the indices of other axes."""
    return {axis.index: target.index for axis, target in zip(axes, targets, strict=True)}


def _evaluated(nest: Nest) -> Block:
    """Return the values of accumulators as statements."""
    return tuple(Evaluate(value) for item in nest.accumulators for value in (item.start, item.value))


def _check_gone(nest: Nest, buffer: Buffer) -> None:
    """Check for remaining reads of a buffer without stores."""
    if buffer in buffers_read((*nest.setup, *nest.body, *_evaluated(nest))):
        raise InternalError("fusion", f"`{buffer.name}` is read by other means than loads of single elements")


def _is_within(
    position: Expression, size: Dim, sizes: Mapping[Variable, Dim], ranges: Mapping[Variable, tuple[int, int]]
) -> bool:
    """Return whether a position is known to be on an axis."""
    if isinstance(position, Variable) and sizes.get(position) == size:
        return True
    found = range_of(position, ranges)
    return found is not None and found[0] >= 0 and is_nonnegative(size - 1 - found[1])


def _with_loads(block: Block, buffer: Buffer, values: Mapping[Expression, Expression]) -> Block:
    """Return a block with values substituted for loads from a buffer."""

    def change(expression: Expression) -> Expression:
        if not isinstance(expression, Load) or expression.buffer is not buffer:
            return expression
        if expression.index not in values or expression.lanes > 1:
            raise InternalError("fusion", f"`{buffer.name}` is read at another element than the stored element")
        return values[expression.index]

    return map_block(block, change)


def _unify(
    pattern: Expression, expression: Expression, axes: frozenset[Variable], found: dict[Variable, Expression]
) -> bool:
    """Return whether an index matches a pattern with expressions in the place of axes, and record these expressions."""
    if isinstance(pattern, Variable) and pattern in axes:
        return found.setdefault(pattern, expression) == expression
    if isinstance(pattern, Size | Variable):
        return pattern == expression
    if isinstance(pattern, Binary) and isinstance(expression, Binary) and pattern.operator == expression.operator:
        pairs = zip(operands_of(pattern), operands_of(expression), strict=True)
        return all(_unify(part, counterpart, axes, found) for part, counterpart in pairs)
    return False
