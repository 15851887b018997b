"""Which values of a loop need no copy from round to round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.ir.structural import LOOP

__all__ = ["is_unchanged", "results_in_place"]


def is_unchanged(body: Function, index: int) -> bool:
    """Tells whether every round gives back carried value ``index`` as it was."""
    return body.results[index + 1] is body.params[index + 1]


def results_in_place(body: Function) -> list[bool]:
    """Tells for each result of a loop's body whether it may be written where its last round's value lies.

    It may if no other result is the same value, and the old value is not needed any more when the new one is made. The
    old condition never is: the body does not see it.

    Cost: linear in the body.
    """
    last_read = [-1] * len(body.params)
    carrier = {id(param): index for index, param in enumerate(body.params)}
    made: dict[int, int] = {}
    for position, binding in enumerate(body.bindings):
        for operand in binding.operands:
            if id(operand) in carrier:
                last_read[carrier[id(operand)]] = position
        carrier.update((id(new), carrier[id(old)]) for new, old in _renamed(binding) if id(old) in carrier)
        made.update((id(result), position) for result in binding.results)
    for result in body.results:
        if id(result) in carrier:
            last_read[carrier[id(result)]] = len(body.bindings)
    times = Counter(map(id, body.results))
    return [
        times[id(result)] == 1 and (index == 0 or last_read[index] < made[id(result)]) if id(result) in made else False
        for index, result in enumerate(body.results)
    ]


def _renamed(binding: Binding) -> Iterator[tuple[Var, Value]]:
    """Yields results that may lie where an operand does, with these.

    What an inner loop does not change stays where it was, and a view op's results may be views.
    """
    if binding.op is LOOP:
        pairs = zip(binding.results, binding.operands[2:], strict=True)
        yield from (pair for index, pair in enumerate(pairs) if is_unchanged(binding.regions[0], index))
    elif binding.op.view is not None:
        yield from ((result, operand) for result in binding.results for operand in binding.operands[:1])
