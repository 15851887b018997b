"""The ops of the offload report computed by each step of a plan, for profiles."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_dnnl.calls import Call

__all__ = ["ops_of_steps"]


def ops_of_steps(calls: Sequence[Call], computed: Sequence[Sequence[int]]) -> list[str]:
    """Return for each step the origins of the computed calls, one a line.

    A view, or a call folded into another call, is computed by no step. Such a call is listed with the first step that
    reads the value, else with the last step that computes an operand, else with the last step.

    Args:
        calls: the calls, in order.
        computed: for each step the first results of the calls computed by the step, perhaps only in part.
    """
    if not computed:
        return []
    members = [set(ids) for ids in computed]
    homes: dict[int, int] = {}
    for number, ids in enumerate(computed):
        for id_ in ids:
            homes.setdefault(id_, number)
    makers = {id_: call.output for call in calls for id_ in call.outputs}
    readers: dict[int, list[int]] = {}
    for call in calls:
        for id_ in call.inputs:
            readers.setdefault(makers.get(id_, id_), []).append(call.output)
    for call in reversed(calls):
        numbers = [homes[id_] for id_ in readers.get(call.output, ()) if id_ in homes]
        if call.output not in homes and numbers:
            homes[call.output] = min(numbers)
    for call in calls:
        numbers = [homes[makers[id_]] for id_ in call.inputs if id_ in makers]
        members[homes.setdefault(call.output, max(numbers, default=len(computed) - 1))].add(call.output)
    origins = {call.output: call.origin for call in calls}
    return ["\n".join(dict.fromkeys(filter(None, (origins[id_] for id_ in sorted(ids))))) for ids in members]
