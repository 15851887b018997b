"""Values of a loop without need for a copy from round to round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.ir.structural import LOOP

__all__ = ["is_unchanged", "results_in_place"]


def is_unchanged(body: Function, index: int) -> bool:
    """Return whether every round returns carried value ``index`` unchanged."""
    return body.results[index + 1] is body.params[index + 1]


def results_in_place(body: Function) -> list[bool]:
    """Return for each result of a loop's body whether it may overwrite the previous round's value.

    A result may do so if no other result is the same value, and all reads of the old value come before the op producing
    the new value. The old condition has no reads: the body does not see the condition.

    Cost: linear in the body.
    """
    last_read = [-1] * len(body.params)
    carrier = {id(param): index for index, param in enumerate(body.params)}
    made_at: dict[int, int] = {}
    for position, binding in enumerate(body.bindings):
        for operand in binding.operands:
            if id(operand) in carrier:
                last_read[carrier[id(operand)]] = position
        carrier.update((id(new), carrier[id(old)]) for new, old in _aliases(binding) if id(old) in carrier)
        made_at.update((id(result), position) for result in binding.results)
    for result in body.results:
        if id(result) in carrier:
            last_read[carrier[id(result)]] = len(body.bindings)
    times = Counter(map(id, body.results))
    return [
        times[id(result)] == 1 and (index == 0 or last_read[index] < made_at[id(result)])
        if id(result) in made_at
        else False
        for index, result in enumerate(body.results)
    ]


def _aliases(binding: Binding) -> Iterator[tuple[Var, Value]]:
    """Yield results with a possible alias among the operands, each with this operand.

    Values unchanged by an inner loop stay in place, and the results of a view op may be views.
    """
    if binding.op is LOOP:
        pairs = zip(binding.results, binding.operands[2:], strict=True)
        yield from (pair for index, pair in enumerate(pairs) if is_unchanged(binding.regions[0], index))
    elif binding.op.view is not None:
        yield from ((result, operand) for result in binding.results for operand in binding.operands[:1])
