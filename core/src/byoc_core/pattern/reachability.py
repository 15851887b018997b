"""Dependences between values, and the search deciding whether a match is convex."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from byoc_core.ir import Binding, Value

if TYPE_CHECKING:
    from byoc_core.pattern.index import FunctionIndex

__all__ = ["MAX_VISITS", "Ancestry", "is_convex"]

MAX_VISITS = 4096
"""The maximum number of bindings visited by the search for a path from a match back into the match."""


class Ancestry:
    """The longest path from a start of the function to each binding, with membership tests.

    Source: the jump pointers of E. W. Myers, "An applicative random-access stack", IPL 17 (1983).

    Cost: linear in the bindings, once; ``O(log n)`` for each question.
    """

    def __init__(self, index: FunctionIndex) -> None:
        self._index = index
        self.level: list[int] = []
        self._parent: list[int] = []
        self._jump: list[int] = []

    def extend(self) -> None:
        """Add the bindings added to the index since the last call."""
        for position in range(len(self.level), len(self._index.order)):
            producers = self._producers(self._index.order[position].operands)
            parent = max(producers, key=lambda producer: (self.level[producer], producer), default=position)
            jump = parent
            if parent != position:
                middle = self._jump[parent]
                if self.level[parent] - self.level[middle] == self.level[middle] - self.level[self._jump[middle]]:
                    jump = self._jump[middle]
            self.level.append(self.level[parent] + 1 if parent != position else 0)
            self._parent.append(parent)
            self._jump.append(jump)

    def is_on_path(self, before: int, after: int) -> bool:
        """Return whether the binding at position ``before`` is on the longest path to the binding at ``after``."""
        while self.level[after] > self.level[before]:
            jump = self._jump[after]
            after = jump if self.level[jump] >= self.level[before] else self._parent[after]
        return before == after

    def depends(self, starts: Iterable[int], targets: Sequence[int]) -> bool | None:
        """Return whether a binding among ``starts`` is or depends on a binding among ``targets``.

        The answer is ``None`` if still unknown after ``MAX_VISITS`` bindings.
        """
        lowest, first = min(self.level[target] for target in targets), min(targets)
        pending = sorted(starts)
        visited = set(pending)
        while pending:
            position = pending.pop()
            if any(self.is_on_path(target, position) for target in targets):
                return True
            if len(visited) > MAX_VISITS:
                return None
            for producer in self._producers(self._index.order[position].operands):
                if producer not in visited and producer >= first and self.level[producer] >= lowest:
                    visited.add(producer)
                    pending.append(producer)
        return False

    def _producers(self, operands: Iterable[Value]) -> list[int]:
        origins = (self._index.producer(operand) for operand in operands)
        return [self._index.position[id(found[0])] for found in origins if found is not None]


def is_convex(bindings: Sequence[Binding], inputs: Sequence[Value], index: FunctionIndex) -> bool | None:
    """Return whether no input of these bindings (in function order) depends on a value made by the bindings.

    Cost: finding an outside reader for each binding. If such a reader comes before an input, also a search between the
    two, of ``MAX_VISITS`` bindings at most. If this number is too small, the answer is ``None``.
    """
    producers = (index.producer(value) for value in inputs)
    starts = {index.position[id(found[0])] for found in producers if found is not None}
    last = max(starts, default=-1)
    inside = {id(binding) for binding in bindings}
    targets = []
    for binding in bindings:
        for result in binding.results:  # readers are in order: the first outside reader suffices
            outside = next((user for user in index.users(result) if id(user) not in inside), None)
            if outside is not None and index.position[id(outside)] <= last:
                targets.append(index.position[id(binding)])
                break
    if not targets:
        return True
    is_back = index.ancestry().depends([start for start in starts if start > targets[0]], targets)
    return None if is_back is None else not is_back
