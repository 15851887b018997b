"""What a primitive does with its result before it writes it: the calls that follow, as post-ops.

Followers are taken as long as the primitive keeps the implementation that it has without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from byoc_dnnl.capi import Algorithm, Argument, Query
from byoc_dnnl.handles import MemoryDesc, PostOp, PrimitiveDesc
from byoc_dnnl.lowerings.attributes import axis_of, number

if TYPE_CHECKING:
    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Call, Planner

__all__ = ["BINARIES", "FUNCTIONS", "Side", "add_with_followers", "find_side", "functions_of"]

FUNCTIONS: Mapping[str, Algorithm] = {
    "abs": Algorithm.ELTWISE_ABS,
    "nn.elu": Algorithm.ELTWISE_ELU,
    "nn.leaky_relu": Algorithm.ELTWISE_RELU,
    "nn.relu": Algorithm.ELTWISE_ELU,
    "sigmoid": Algorithm.ELTWISE_LOGISTIC,
    "sqrt": Algorithm.ELTWISE_SQRT,
    "tanh": Algorithm.ELTWISE_TANH,
}

BINARIES: Mapping[str, Algorithm] = {
    "add": Algorithm.BINARY_ADD,
    "divide": Algorithm.BINARY_DIV,
    "multiply": Algorithm.BINARY_MUL,
    "subtract": Algorithm.BINARY_SUB,
}

_COMMUTATIVE = ("add", "multiply")

_NEXT_POST_OP = 32768
"""What the arguments of a post-op are numbered higher than those of the one before it."""

Shape = Callable[[MemoryDesc], MemoryDesc | None]
"""Gives a description with other axes over the same memory; ``None`` where the layout does not permit it."""


def functions_of(call: Call) -> tuple[PostOp, ...]:
    """Gives what computes a function of each element, in order; nothing where oneDNN has none that is right."""
    if call.op == "nn.leaky_relu" and number(call, "alpha") == 0:
        return ()  # without a slope oneDNN gives 0 for NaN, and minus infinity times 0 is NaN
    if call.op == "nn.relu":
        # oneDNN's ReLU without a slope gives 0 for NaN; its ELU hands NaN on, and gives -0.0 below zero.
        return PostOp(Algorithm.ELTWISE_ELU), PostOp(Algorithm.ELTWISE_ABS)
    alpha = number(call, "alpha") if call.op in ("nn.elu", "nn.leaky_relu") else 0.0
    return (PostOp(FUNCTIONS[call.op], alpha),)


@dataclass(frozen=True, slots=True)
class Side:
    """The second operand of an operation on two tensors.

    Attributes:
        algorithm: the operation.
        main: the value whose sizes the result has.
        other: the value of the second operand.
        sizes: those of the second operand, of the result's rank.
    """

    algorithm: Algorithm
    main: int
    other: int
    sizes: tuple[int, ...]

    def desc(self, planner: Planner, main: MemoryDesc) -> MemoryDesc:
        """Gives how it is to lie: as the first one does, or row-major where it is repeated."""
        return main if self.sizes == main.sizes else planner.row_major(self.sizes)

    def place(self, planner: Planner, desc: MemoryDesc) -> Place:
        """Gives where it lies so."""
        place = planner.place(self.other)
        if place.desc.sizes == desc.sizes:
            return planner.place_in(self.other, desc)
        return planner.place_row_major(self.other).seen_as(desc)


def find_side(call: Call, main: int | None = None) -> Side | str:
    """Gives the second operand of an operation on two tensors, or the reason why there is none.

    Args:
        call: the operation.
        main: the value that has to be the first operand, where that is settled.
    """
    result = call.result.shape
    if call.op == "nn.bias_add":
        x, bias = call.inputs
        axis = axis_of(call)
        if main not in (None, x):
            return "is the bias"
        sizes = tuple(_static(dim) if place == axis else 1 for place, dim in enumerate(result))
        return Side(Algorithm.BINARY_ADD, x, bias, sizes)
    for first, second in ((0, 1), (1, 0)):
        is_whole = call.operands[first].shape == result and main in (None, call.inputs[first])
        if is_whole and (first == 0 or call.op in _COMMUTATIVE):
            shape = tuple(map(_static, call.operands[second].shape))
            sizes = ((1,) * (len(result) - len(shape)) + shape) or (1,)
            return Side(BINARIES[call.op], call.inputs[first], call.inputs[second], sizes)
    return "oneDNN repeats axes of the second operand only"


def add_with_followers(
    call: Call,
    planner: Planner,
    make: Callable[[Sequence[PostOp]], PrimitiveDesc | None],
    arguments: Callable[[PrimitiveDesc], Mapping[int, Place]],
    to_primitive: Shape,
    to_value: Shape,
    own: Sequence[PostOp] = (),
) -> str | None:
    """Adds a primitive that computes a call, and as many of the calls that follow as it takes.

    Args:
        call: the call.
        planner: the plan.
        make: gives the primitive with post-ops.
        arguments: gives what the primitive reads; adds reorders.
        to_primitive: brings a description with the sizes of the call's result, some of them perhaps 1, to the
            primitive's axes.
        to_value: the other way round.
        own: post-ops that belong to the call itself.

    Returns:
        The reason why there is no primitive, or ``None``.
    """
    made = make(own)
    if made is None or not planner.accepts(made):
        return "oneDNN has only its reference implementation" if made else "oneDNN has no implementation"
    desc = to_value(made.memory_desc(Query.DST_MD))
    assert desc is not None  # lowerings choose axes between which any layout of a result can go
    links = _links_after(call, planner, desc, to_primitive)
    while links:
        attempt = make([*own, *(post_op for link in links for post_op in link.post_ops)])
        if attempt is not None and attempt.implementation == made.implementation:
            made = attempt
            break
        links.pop()
    given = dict(arguments(made))
    number = len(own)
    for link in links:
        if link.side is not None and link.desc is not None:
            (post_op,) = link.post_ops
            place = link.side.place(planner, link.desc)
            given[Argument.POST_OP_SRC_1 + number * _NEXT_POST_OP] = place.seen_as(post_op.operand or place.desc)
        number += len(link.post_ops)
    planner.mark_fused([link.call for link in links])
    last = links[-1].call if links else call
    given[Argument.DST] = planner.result(last.output, desc).seen_as(made.memory_desc(Query.DST_MD))
    planner.add_step(" + ".join([call.op, *(link.call.op for link in links)]), made, given)
    return None


@dataclass(frozen=True, slots=True)
class _Link:
    """A call as post-ops of the primitive before it; with the layout of its second operand, where it has one."""

    call: Call
    post_ops: tuple[PostOp, ...]
    side: Side | None = None
    desc: MemoryDesc | None = None


def _links_after(call: Call, planner: Planner, desc: MemoryDesc, to_primitive: Shape) -> list[_Link]:
    links: list[_Link] = []
    value = call
    while True:
        follower = planner.follower(value)
        link = follower and _link_of(follower, value, planner, desc, to_primitive)
        if not link:
            return links
        links.append(link)
        value = link.call


def _link_of(call: Call, value: Call, planner: Planner, desc: MemoryDesc, to_primitive: Shape) -> _Link | None:
    if call.result != value.result:
        return None
    if call.op in FUNCTIONS:
        functions = functions_of(call)
        return _Link(call, functions) if functions else None
    if call.op not in BINARIES and call.op != "nn.bias_add":
        return None
    side = find_side(call, value.output)
    if isinstance(side, str) or not planner.is_placed(side.other) or call.operands[0].dtype != call.operands[1].dtype:
        return None
    inner = side.desc(planner, desc)
    outer = to_primitive(inner)
    return None if outer is None else _Link(call, (PostOp(side.algorithm, operand=outer),), side, inner)


def _static(dim: object) -> int:
    assert isinstance(dim, int)  # symbolic sizes have been declined
    return dim
