"""The choice of the memory domain of each state: the fewest copies in every call.

A state lies in one domain from call to call: where most readers of the old value and the producer of the new value are.
The host's memory is chosen if no device saves a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product

from byoc_core.vm.program import HOST

__all__ = ["choose_state_domains"]

Choice = tuple[int, ...]


def choose_state_domains(
    num_states: int, candidates: Sequence[int], count_copies: Callable[[Choice], int], num_counts: int
) -> Choice:
    """Return the domain of each state with the fewest copies.

    If there are more choices than counts, the states begin in one domain, the domain with the fewest copies. Then each
    state moves if a move saves copies. So a copy may remain if only moves of several states together save the copy.

    Args:
        num_states: the number of states.
        candidates: the domains besides the host's memory.
        count_copies: returns the copies between domains in a call, for a domain of each state.
        num_counts: the number of counts permitted for trying all choices.
    """
    domains = (HOST, *candidates)
    search = _Search(count_copies)
    search.try_all((domain,) * num_states for domain in domains)
    if len(domains) ** num_states <= num_counts:
        search.try_all(product(domains, repeat=num_states))
        return search.best
    has_moved = True
    while has_moved:
        before = search.best
        for index in range(num_states):
            best = search.best
            search.try_all((*best[:index], domain, *best[index + 1 :]) for domain in domains)
        has_moved = search.best != before
    return search.best


class _Search:
    """The best of the choices tried so far; the first of equals.

    Attributes:
        best: the choice with the fewest copies.
    """

    def __init__(self, count_copies: Callable[[Choice], int]) -> None:
        self._count_copies = count_copies
        self._counts: dict[Choice, int] = {}
        self.best: Choice = ()

    def try_all(self, choices: Iterable[Choice]) -> None:
        """Count the copies of choices; nothing is better than a choice without copies."""
        for choice in choices:
            if self._counts and self._counts[self.best] == 0:
                return
            if choice not in self._counts:
                self._counts[choice] = self._count_copies(choice)
                if len(self._counts) == 1 or self._counts[choice] < self._counts[self.best]:
                    self.best = choice
