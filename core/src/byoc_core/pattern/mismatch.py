"""Reasons for a pattern not fitting at an op with a right name: the near misses of reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from byoc_core.ir import Binding
from byoc_core.pattern.fit import Misfit, op_names
from byoc_core.pattern.index import FunctionIndex
from byoc_core.pattern.language import OpPattern, Pattern
from byoc_core.pattern.matcher import find_matches
from byoc_core.pattern.plan import ends_of, parts_of, plan_of, walk
from byoc_core.pattern.search import Search, op_ids

__all__ = ["Mismatch", "explain_mismatch"]

MAX_READERS = 16
"""The maximum number of examined readers of a value."""

MAX_PAIRS = 64
"""The maximum number of examined places of the pattern at ops of the function."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The reason for a pattern not fitting.

    Attributes:
        num_matched: the number of fitting ops.
        part: the failing part of the pattern: "operand 0 of `nn.relu`".
        text: a clause for a person: the found and the expected property.
        ops: the ops at fault, by the names of their first results.
    """

    num_matched: int
    part: str
    text: str
    ops: tuple[str, ...]


def explain_mismatch(pattern: Pattern, binding: Binding, index: FunctionIndex) -> Mismatch | None:
    """Return the reason for a pattern not fitting a binding, as the last op or as an inner op.

    Of several failures (of alternatives, operand orders, fits of the operands, readers, places in the pattern) the
    result is the failure with the most fitting ops; the first of equals.

    Returns:
        ``None`` if the pattern fits, or has no op of the binding's name.

    Cost: the pattern's size times the values in reach, for up to ``MAX_PAIRS`` ops reading one another.
    """
    order = [part for part in walk(pattern) if isinstance(part, OpPattern)]
    if not any(binding.op.name in part.ops for part in order):
        return None
    upward = _UpwardSearch(pattern, binding, index)
    if upward.fits(binding):
        return None
    best: Mismatch | None = None
    for part in reversed(order):
        if binding.op.name in part.ops:
            for mismatch in upward.mismatches(part, binding):
                if best is None or mismatch.num_matched > best.num_matched:
                    best = mismatch
            if upward.found:
                return None
    return best


class _UpwardSearch:
    """The walk from an op of the function upwards, along op patterns reading one another.

    Attributes:
        found: whether a match contains the binding.
    """

    def __init__(self, pattern: Pattern, binding: Binding, index: FunctionIndex) -> None:
        self.found = False
        self._pattern = pattern
        self._binding = binding
        self._index = index
        self._search = Search(plan_of(pattern), index, records_failures=True)
        self._roots = set(map(id, ends_of(pattern)))
        self._above: dict[int, list[OpPattern]] = {}
        for parent in walk(pattern):
            if isinstance(parent, OpPattern):
                for end in dict.fromkeys(end for part in parts_of(parent) for end in ends_of(part)):
                    self._above.setdefault(id(end), []).append(parent)
        self._seen: set[tuple[int, int]] = set()

    def fits(self, root: Binding) -> bool:
        """Return whether a match at a root contains the binding."""
        matches = find_matches(self._pattern, root, self._index)
        return any(inner is self._binding for match in matches for inner in match.bindings)

    def mismatches(self, part: OpPattern, binding: Binding) -> Iterator[Mismatch]:
        """Yield the reasons for the pattern not fitting with an op in place of a part, readers before operands."""
        pending = [(part, binding)]
        while pending and not self.found and len(self._seen) < MAX_PAIRS:
            part, binding = pending.pop()
            if (id(part), id(binding)) in self._seen or part.result_index >= len(binding.results):
                continue
            self._seen.add((id(part), id(binding)))
            value = binding.results[part.result_index]
            answer = self._search.solve(part, value)
            if isinstance(answer, Misfit):
                subject = answer.part or f"the result of `{binding.op.name}`"
                yield Mismatch(answer.num_matched, subject, f"{subject} {answer.clause}", answer.ops)
                continue
            num_matched = len(op_ids(answer[:1]))
            if id(part) in self._roots:
                yield from self._at_root(binding, num_matched)
            readers, returned = self._index.readers(value)
            for above in self._above.get(id(part), ()):
                fitting = [reader for reader in readers[:MAX_READERS] if reader.op.name in above.ops]
                pending += [(above, reader) for reader in reversed(fitting)]
                if not fitting:
                    yield _unread(above, binding, readers[:MAX_READERS], returned, num_matched)

    def _at_root(self, root: Binding, num_matched: int) -> Iterator[Mismatch]:
        """Yield the reason for the lack of a match at a root with all parts fitting."""
        limits: list[str] = []
        if self.fits(root):
            self.found = True
        elif next(find_matches(self._pattern, root, self._index, limits.append), None) is None:
            part, text = "the inputs", "an input of the match depends on a result of the match"
            if limits:
                part, text = "the search", f"the search reached the limit: {limits[0]}"
            yield Mismatch(num_matched, part, text, (root.results[0].name,))


def _unread(
    above: OpPattern, binding: Binding, readers: Sequence[Binding], returned: bool, num_matched: int
) -> Mismatch:
    names = dict.fromkeys(f"`{reader.op.name}`" for reader in readers)
    found = f"is read by {', '.join(names)}" if names else "is not read"
    if returned:
        found = f"{found} and returned by the function" if names else "is returned by the function"
    name, ops = f"`{binding.op.name}`", tuple(reader.results[0].name for reader in readers)
    return Mismatch(num_matched, f"the reader of {name}", f"{name} {found}, expected {op_names(above)}", ops)
