"""Epilogues: a primitive computes the following calls as post-ops before the result is written.

Followers are taken as long as the primitive keeps the implementation chosen without followers. A follower computed
correctly by oneDNN only for finite operands is taken if checks of the primitive's operands prove this. If a tensor with
the same layout and no other pending reader is added, the result overwrites the tensor: reading it there is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap, takewhile
from typing import TYPE_CHECKING

import numpy as np
from byoc_core.opset import LARGEST

from byoc_dnnl.capi import NEXT_POST_OP, Algorithm, Argument, Query
from byoc_dnnl.handles import MemoryDesc, PrimitiveDesc
from byoc_dnnl.lowerings.attributes import axis_of
from byoc_dnnl.lowerings.equal_chains import Chain, chain_after
from byoc_dnnl.lowerings.functions import FUNCTIONS, functions_of, needs_of
from byoc_dnnl.lowerings.quantisation import parameters_of, to_bytes
from byoc_dnnl.lowerings.residual_sum import find_residual_sum
from byoc_dnnl.post_ops import PostOp

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner
    from byoc_dnnl.ranges import Need

__all__ = ["BINARIES", "Side", "add_with_followers", "dtype_after", "find_side", "first_reason", "same"]

BINARIES: Mapping[str, Algorithm] = {
    "add": Algorithm.BINARY_ADD,
    "divide": Algorithm.BINARY_DIV,
    "maximum": Algorithm.BINARY_MAX,
    "minimum": Algorithm.BINARY_MIN,
    "multiply": Algorithm.BINARY_MUL,
    "subtract": Algorithm.BINARY_SUB,
}

_BEST_FAMILY = "brg"
"""The prefix of the names of implementations by products of small blocks, the first choice of oneDNN."""

_BINARY_FOLLOWERS = (*BINARIES, "nn.bias_add")
_NARROW = ("bfloat16", "float16")
_COMMUTATIVE = ("add", "maximum", "minimum", "multiply")
"""Ops with exchangeable operands."""

Shape = Callable[[MemoryDesc], MemoryDesc | None]
"""A function from a description to a description with other axes over the same memory; ``None`` if the layout does not
permit the axes.
"""


@dataclass(eq=False, slots=True)
class Side:
    """The second operand of an operation on two tensors.

    Attributes:
        algorithm: the operation.
        main: the value with the sizes of the result.
        other: the value of the second operand.
        sizes: the sizes of the second operand, with the rank of the result.
        view: the memory of the second operand, if not as stored: a view with the axes of the result.
    """

    algorithm: Algorithm
    main: int
    other: int
    sizes: tuple[int, ...]
    view: Location | None = None

    def desc(self, planner: Planner, main: MemoryDesc) -> MemoryDesc:
        """Return the required layout: as the first operand, or row-major if broadcast; in the stored dtype."""
        stored = (self.view or planner.stored_location(self.other)).desc
        if self.sizes != main.sizes:
            return planner.row_major(self.sizes, stored.dtype)
        return stored if stored.has_same_layout(main) else main.cast(planner.engine, stored.dtype) or main

    def location(self, planner: Planner, desc: MemoryDesc) -> Location:
        """Return the location of the operand in the layout."""
        if self.view is not None:
            return planner.reordered(self.other, self.view, desc)
        if planner.stored_location(self.other).desc.sizes == desc.sizes:
            return planner.location_in(self.other, desc)
        plain = planner.row_major_location(self.other, desc.dtype).view_as(planner.row_major(self.sizes, desc.dtype))
        return planner.reordered(self.other, plain, desc)


def find_side(call: Call, main: int | None = None) -> Side | str:
    """Return the second operand of an operation on two tensors, or the reason why no operand qualifies.

    Args:
        call: the operation.
        main: the required first operand, if decided.
    """
    result = call.result.shape
    if call.op == "nn.bias_add":
        x, bias = call.inputs
        axis = axis_of(call)
        if main not in (None, x):
            return "the required first operand is the bias"
        sizes = tuple(_static(dim) if index == axis else 1 for index, dim in enumerate(result))
        return Side(Algorithm.BINARY_ADD, x, bias, sizes)
    for first, second in ((0, 1), (1, 0)):
        has_full_shape = call.operands[first].shape == result and main in (None, call.inputs[first])
        if has_full_shape and (first == 0 or call.op in _COMMUTATIVE):
            shape = tuple(map(_static, call.operands[second].shape))
            sizes = ((1,) * (len(result) - len(shape)) + shape) or (1,)
            return Side(BINARIES[call.op], call.inputs[first], call.inputs[second], sizes)
    return "oneDNN broadcasts the second operand only"


def add_with_followers(
    call: Call,
    planner: Planner,
    make: Callable[[Sequence[PostOp]], PrimitiveDesc | None],
    arguments: Callable[[PrimitiveDesc], Mapping[int, Location]],
    to_primitive: Shape,
    to_value: Shape,
    own_post_ops: Sequence[PostOp] = (),
    head: Sequence[Call] = (),
    *,
    accepts_quantize: bool = False,
    usual: MemoryDesc | None = None,
    identity: Hashable | None = None,
) -> str | None:
    """Add a primitive for a call and as many followers as possible.

    Args:
        call: the call.
        planner: the plan.
        make: returns the primitive with post-ops.
        arguments: returns the operands of the primitive; adds reorders.
        to_primitive: maps a description with the sizes of the call's result, some of them perhaps 1, to the primitive's
            axes.
        to_value: the inverse mapping.
        own_post_ops: post-ops of the call itself.
        head: following calls also computed by the primitive, without post-ops.
        accepts_quantize: whether ``make`` respects the dtype decided by the last post-op (:func:`dtype_after`), so
            ``quantize`` may be the last of the calls.
        usual: the usual layout of the result in the axes of the primitive, if known: tried first.
        identity: a key of everything on which ``make``, ``to_primitive``, ``to_value`` and ``usual`` depend beside the
            kind of the call: equal calls of a plan are searched once. ``None`` if unknown.

    Returns:
        The reason why there is no primitive, or ``None``.
    """
    if planner.find_checks(needs_of(call), call.inputs) is None:
        return "oneDNN 3.2 is correct for finite operands only, and the operands cannot be checked"
    own_calls = [call, *head]
    search = _Search(own_calls, planner, make, to_primitive, to_value, own_post_ops)
    chain = None if identity is None else chain_after(own_calls, planner, FUNCTIONS, _BINARY_FOLLOWERS)
    key = chain and (identity, chain.key)
    found = _found_before(planner.searches.get(key), chain, own_calls, planner) if chain else None
    if found is None:
        end = _end_in_bytes(own_calls[-1], planner) if accepts_quantize else None
        found = (end and search.up_to(end)) or (usual and search.whole_chain(usual)) or search.longest_chain()
        if chain is not None and found is not None and len(found[1]) == len(chain.calls):
            planner.searches[key] = found
    if found is None:
        return "oneDNN has only a reference implementation" if make(own_post_ops) else "oneDNN has no implementation"
    primitive, links, desc = found
    operands = dict(arguments(primitive))
    number = len(own_post_ops)
    target: Location | None = None
    for link in links:
        if link.side is not None and link.desc is not None:
            (post_op,) = link.post_ops
            location = link.side.location(planner, link.desc)
            if post_op.algorithm is Algorithm.UNDEF:
                target = location
            else:
                operands[Argument.POST_OP_SRC_1 + number * NEXT_POST_OP] = location.view_as(
                    post_op.operand or location.desc
                )
        number += len(link.post_ops)
    planner.check(_needs(own_calls, links), _sources(own_calls, links))
    computed = [*own_calls, *(link.call for link in links)]
    planner.mark_fused(computed)
    if target is None:
        target = planner.allocate_result(computed[-1].output, desc)
    else:
        planner.set_location(computed[-1].output, target)
    operands[Argument.DST] = target.view_as(primitive.memory_desc(Query.DST_MD))
    planner.add_step(" + ".join(part.op for part in computed), primitive, operands)
    return None


def same(desc: MemoryDesc) -> MemoryDesc:
    """Return the description itself: for primitives with the axes of their call."""
    return desc


def first_reason(reasons: Iterable[str | None]) -> str | None:
    """Return ``None`` after the first successful attempt, or the reason for the failure of the last attempt."""
    found: str | None = None
    for found in reasons:
        if found is None:
            break
    return found


_Found = tuple[PrimitiveDesc, "list[_Link]", MemoryDesc]
"""A primitive, the links computed beside its calls, and the layout of the result."""


def _found_before(found: _Found | None, chain: Chain, calls: Sequence[Call], planner: Planner) -> _Found | None:
    """Return the outcome of an equal search with the links of this chain; ``None`` if operands cannot be checked."""
    if found is None:
        return None
    links: list[_Link] = []
    value = calls[-1]
    for link, call, other in zip(found[1], chain.calls, chain.second_operands, strict=True):
        side = link.side
        if side is not None and other is not None:
            side = Side(side.algorithm, value.output, other, side.sizes)
        links.append(_Link(call, link.post_ops, side, link.desc))
        if planner.find_checks(needs_of(call), _sources(calls, links)) is None:
            return None
        value = call
    return found[0], links, found[2]


@dataclass(eq=False, slots=True)
class _Search:
    """The search for followers computed by a primitive; see :func:`add_with_followers`."""

    calls: Sequence[Call]
    planner: Planner
    make: Callable[[Sequence[PostOp]], PrimitiveDesc | None]
    to_primitive: Shape
    to_value: Shape
    own: Sequence[PostOp]

    def whole_chain(self, usual: MemoryDesc) -> _Found | None:
        """Return all links, if the primitive is of oneDNN's best family and writes the usual layout; or ``None``.

        The members of the family compute the same post-ops. So the primitive without links is nearly always a member
        too, and is not described.
        """
        desc = self.to_value(usual)
        links = [] if desc is None else _links_after(self.calls, self.planner, desc, self.to_primitive)
        if desc is None or not links:
            return None
        for candidate in (_with_overwrite(links, desc, self.planner), links):
            found = self._make(candidate) if candidate else None
            if found is None or not found.implementation.startswith(_BEST_FAMILY):
                continue
            if self._result(found) == desc and all(_keeps_nan(link, found) for link in links):
                return found, candidate, desc
        return None

    def longest_chain(self) -> _Found | None:
        """Return as many links as possible without a change of the primitive's implementation."""
        primitive = self._make([])
        if primitive is None:
            return None
        desc = self._result(primitive)
        links = _links_after(self.calls, self.planner, desc, self.to_primitive)
        links = list(takewhile(lambda link: _keeps_nan(link, primitive), links))
        while links:
            for candidate in (_with_overwrite(links, desc, self.planner), links):
                found = self._make(candidate) if candidate else None
                is_alike = found is not None and found.implementation == primitive.implementation
                if found is not None and is_alike and self._result(found) == desc:
                    return found, candidate, desc
            links.pop()
        return primitive, [], desc

    def up_to(self, end: _Link) -> _Found | None:
        """Return all links up to a link that writes bytes, and the sum behind if there is a sum of such bytes.

        ``None`` if the links do not fit together.
        """
        primitive = self._make(_writing_bytes([end]))
        if primitive is None:
            return None
        desc = self._result(primitive)
        links = _links_after(self.calls, self.planner, desc, self.to_primitive)
        last = links[-1].call if links else self.calls[-1]
        if self.planner.graph.follower(last) is not end.call:
            return None
        through_sum = _links_of_sum(end.call, desc, self.planner, self.to_primitive)
        found = self._ending_in_bytes([*links, *through_sum], desc) if through_sum else None
        if found is not None and found[0].implementation == primitive.implementation:
            return found
        return self._ending_in_bytes([*links, end], desc)

    def _ending_in_bytes(self, links: Sequence[_Link], desc: MemoryDesc) -> _Found | None:
        """Return the primitive with links up to a ``quantize``; ``None`` if not permitted, or in another layout."""
        links = _writing_bytes(_without_relu(links, self.planner))
        if self.planner.find_checks(_needs(self.calls, links), _sources(self.calls, links)) is None:
            return None
        found = self._make(links)
        if found is None or not all(_keeps_nan(link, found) for link in links):
            return None
        result = self._result(found)
        return (found, links, result) if result.has_same_layout(desc) else None

    def _make(self, links: Sequence[_Link]) -> PrimitiveDesc | None:
        found = self.make([*self.own, *(post_op for link in links for post_op in link.post_ops)])
        return found if self.planner.accepts(found) else None

    def _result(self, primitive: PrimitiveDesc) -> MemoryDesc:
        desc = self.to_value(primitive.memory_desc(Query.DST_MD))
        assert desc is not None  # lowerings choose axes that can express any layout of a result
        return desc


def _keeps_nan(link: _Link, primitive: PrimitiveDesc) -> bool:
    """Return whether a fused post-op propagates NaN as if alone: convolutions by products lose NaN in sigmoid."""
    return link.call.op != "sigmoid" or "gemm" not in primitive.implementation


def _end_in_bytes(call: Call, planner: Planner) -> _Link | None:
    """Return the ``quantize`` reached by the calls after this call, if able to end the primitive."""
    while (follower := planner.graph.follower(call)) is not None:
        if follower.op == "quantize":
            post_ops = to_bytes(follower, planner) if follower.inputs[0] == call.output else None
            return None if post_ops is None else _Link(follower, post_ops)
        call = follower
    return None


def _without_relu(links: Sequence[_Link], planner: Planner) -> list[_Link]:
    """Return links up to a ``quantize``, without a ReLU before if saturation does the same: 0 is the least byte."""
    *before, end = links
    parameters = parameters_of(end.call, planner)
    is_least = parameters is not None and parameters[1] == np.iinfo(end.call.result.dtype).min
    if before and before[-1].call.op == "nn.relu" and is_least:
        before[-1] = replace(before[-1], post_ops=())
    return [*before, end]


def _writing_bytes(links: Sequence[_Link]) -> list[_Link]:
    """Return links with the dtype of the last link as the dtype written by the last post-op."""
    dtype = links[-1].call.result.dtype
    last = max((number for number, link in enumerate(links) if link.post_ops), default=-1)
    if last < 0:
        return [*links[:-1], replace(links[-1], post_ops=(PostOp(Algorithm.ELTWISE_LINEAR, 1.0, dtype=dtype),))]
    *first, end = links[last].post_ops
    ended = PostOp(end.algorithm, end.alpha, end.operand, end.beta, dtype)
    return [*links[:last], replace(links[last], post_ops=(*first, ended)), *links[last + 1 :]]


def _links_of_sum(quantize: Call, desc: MemoryDesc, planner: Planner, to_primitive: Shape) -> list[_Link] | None:
    """Return a ``quantize`` and the sum behind as links; ``None`` if there is no sum (:mod:`.residual_sum`)."""
    found = find_residual_sum(quantize, planner)
    if found is None:
        return None
    integers, main = found.other, found.before[-1][0].output
    side = Side(Algorithm.BINARY_ADD, main, integers.integers, desc.sizes, integers.location)
    inner = side.desc(planner, desc)
    outer = to_primitive(inner)
    if outer is None:
        return None
    total = _Link(found.add, (PostOp(side.algorithm, operand=outer),), side, inner)
    return [*starmap(_Link, found.before), total, *starmap(_Link, found.after)]


def dtype_after(post_ops: Sequence[PostOp], dtype: str) -> str:
    """Return the dtype after post-ops; the dtype of the primitive if no post-op decides."""
    return (post_ops[-1].dtype if post_ops else None) or dtype


def _with_overwrite(links: Sequence[_Link], desc: MemoryDesc, planner: Planner) -> list[_Link]:
    """Return the links with one tensor added by overwriting; empty if no tensor qualifies.

    All other operands of the primitive are still to be read, and therefore lie elsewhere.
    """
    if planner.graph.is_result(links[-1].call.output) and desc.is_row_major():
        return []  # the caller's memory is the best location
    for index, link in enumerate(links):
        side = link.side
        if side is None or side.algorithm is not Algorithm.BINARY_ADD or link.desc != desc:
            continue
        if planner.stored_location(side.other).desc == desc and planner.can_overwrite(link.call, side.other):
            sum_link = _Link(link.call, (PostOp(Algorithm.UNDEF),), side, link.desc)
            return [*links[:index], sum_link, *links[index + 1 :]]
    return []


@dataclass(eq=False, slots=True)
class _Link:
    """A call as post-ops of the primitive before, with the layout of the second operand, if any."""

    call: Call
    post_ops: tuple[PostOp, ...]
    side: Side | None = None
    desc: MemoryDesc | None = None


def _links_after(calls: Sequence[Call], planner: Planner, desc: MemoryDesc, to_primitive: Shape) -> list[_Link]:
    links: list[_Link] = []
    value = calls[-1]
    if _is_rounded_before(value, planner):
        return links
    while True:
        follower = planner.graph.follower(value)
        link = follower and _link_of(follower, value, planner, desc, to_primitive)
        if not link:
            return links
        extended = [*links, link]
        if planner.find_checks(needs_of(link.call), _sources(calls, extended)) is None:
            return links
        links, value = extended, link.call


def _is_rounded_before(call: Call, planner: Planner) -> bool:
    """Return whether the result of a call is rounded before any reader, so that post-ops are impossible.

    This holds for the scores of an attention of narrow floats: a product of two computed matrices, for any reader. This
    also holds for a call followed by possible post-ops up to a softmax by steps.
    """
    if call.op == "matmul" and call.result.dtype in _NARROW and not any(map(planner.is_constant, call.inputs)):
        return True
    while (follower := planner.graph.follower(call)) is not None:
        if follower.op == "nn.stepwise_softmax":
            return True
        if follower.op not in (*FUNCTIONS, *BINARIES, "nn.bias_add"):
            return False
        call = follower
    return False


def _sources(calls: Sequence[Call], links: Sequence[_Link]) -> list[int]:
    """Return the values read by a primitive that computes calls, one after the other."""
    intermediates = {call.output for call in calls}
    inputs = [id_ for call in calls for id_ in call.inputs if id_ not in intermediates]
    return [*inputs, *(link.side.other for link in links if link.side is not None)]


def _needs(calls: Sequence[Call], links: Sequence[_Link]) -> list[Need]:
    """Return the bounds to prove for the operands of the calls and links.

    A ``quantize`` before other links limits steps to the range of bytes, and NaN to an end of the range. A call without
    post-ops needs nothing.
    """
    inner = [(link.call.inputs[0], LARGEST) for link in links[:-1] if link.call.op == "quantize"]
    computed = [link.call for number, link in enumerate(links) if link.post_ops or number == len(links) - 1]
    return [*inner, *(need for part in (*calls, *computed) for need in needs_of(part))]


def _link_of(call: Call, value: Call, planner: Planner, desc: MemoryDesc, to_primitive: Shape) -> _Link | None:
    if call.op in FUNCTIONS:
        functions = functions_of(call)
        return None if isinstance(functions, str) else _Link(call, functions)
    if call.op not in BINARIES and call.op != "nn.bias_add":
        return None
    side = find_side(call, value.output)
    if (
        isinstance(side, str)
        or not planner.is_available(side.other)
        or call.operands[0].dtype != call.operands[1].dtype
    ):
        return None
    inner, target = side.desc(planner, desc), to_primitive(desc)
    if inner.sizes != desc.sizes and not (target is not None and target.has_usual_order()):
        return None  # post-ops of oneDNN 3.2 detect broadcast operands by the strides of usual layouts
    outer = to_primitive(inner)
    return (
        None
        if outer is None or inner.dtype in ("int8", "uint8")
        else _Link(call, (PostOp(side.algorithm, operand=outer),), side, inner)
    )


def _static(dim: object) -> int:
    assert isinstance(dim, int)  # symbolic sizes have been declined
    return dim
