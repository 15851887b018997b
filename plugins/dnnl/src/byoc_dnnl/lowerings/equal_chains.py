"""Keys of chains of followers: equal for the equal layers of a network.

The search for followers of a primitive (:mod:`.epilogue`) has the same outcome for equal keys, up to the values.
A plan therefore searches once for all of its equal layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from byoc_dnnl.plan import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.planner import Planner

__all__ = ["Chain", "chain_after"]


class Chain(NamedTuple):
    """The followers of calls that are possibly computed by the same primitive.

    Attributes:
        key: equal for chains with the same outcome of a search.
        calls: the followers, in order.
        second_operands: for each follower the second operand, if any.
    """

    key: tuple[Hashable, ...]
    calls: list[Call]
    second_operands: list[int | None]


def chain_after(
    calls: Sequence[Call], planner: Planner, functions: Collection[str], binaries: Collection[str]
) -> Chain | None:
    """Return the chain of followers of calls; ``None`` if a search may depend on more than the key tells.

    Args:
        calls: the calls computed by a primitive anyway.
        planner: the plan.
        functions: the ops that may follow, with a single operand.
        binaries: the ops that may follow, with two operands.
    """
    value = calls[-1]
    if planner.has_schedules or value.result.dtype != "float32":
        return None
    key: list[Hashable] = [call.kind for call in calls]
    chain = Chain((), [], [])
    while (follower := planner.graph.follower(value)) is not None:
        other: int | None = None
        if follower.op in binaries:
            first, second = follower.inputs
            other = second if first == value.output else first
            if planner.is_deferred(other):
                return None
            key += follower.kind, other == second, _operand_key(follower, other, planner)
        elif follower.op in functions:
            key.append(follower.kind)
        else:
            break
        chain.calls.append(follower)
        chain.second_operands.append(other)
        value = follower
    key += follower and follower.op, planner.graph.is_result(value.output)
    return chain._replace(key=tuple(key))


def _operand_key(follower: Call, id_: int, planner: Planner) -> tuple[Hashable, ...]:
    """Return the facts about the second operand of a follower read by a search."""
    if not planner.is_available(id_):
        return ()
    location = planner.stored_location(id_)
    is_in_arena = location.buffer.kind is Kind.ARENA
    return location.desc.token, is_in_arena and planner.can_overwrite(follower, id_)
