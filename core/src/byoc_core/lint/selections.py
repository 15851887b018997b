"""Which ways of reading a pattern to try: one op of each set, one of each alternatives, each at least once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from byoc_core.pattern import Pattern
from byoc_core.pattern.language import Alternatives, OpPattern, ValuePattern

__all__ = ["Selection", "chosen", "describe", "op_name", "select", "walk"]

Selection = Mapping[int, int]
"""The option taken, by the identity of the pattern node; the first where none stands here."""

_LIMIT = 64


def _num_options(node: Pattern) -> int:
    if isinstance(node, Alternatives):
        return len(node.choices)
    return len(node.ops) if isinstance(node, OpPattern) else 1


def chosen(node: Alternatives, selection: Selection) -> Pattern:
    """Gives the choice that a selection takes."""
    return node.choices[selection.get(id(node), 0)]


def op_name(node: OpPattern, selection: Selection) -> str:
    """Gives the name of the op that a selection takes."""
    return sorted(node.ops)[selection.get(id(node), 0)]


def walk(pattern: Pattern, selection: Selection | None = None) -> Iterator[Pattern]:
    """Yields each node once, a node before its parts; with a selection only what it takes."""
    pending, seen = [pattern], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        parts: Sequence[Pattern] = ()
        if isinstance(node, Alternatives):
            parts = node.choices if selection is None else (chosen(node, selection),)
        elif isinstance(node, OpPattern):
            parts = node.operands or ()
        pending.extend(reversed(parts))


def select(pattern: Pattern) -> Iterator[Selection]:
    """Yields selections that together take every option of every node, the first options first.

    Order: fixed by the pattern. At most 64.
    """
    queue: list[Selection] = [{}]
    planned: set[tuple[int, int]] = set()
    for forced in queue:
        open_nodes = [node for node in walk(pattern, forced) if _num_options(node) > 1]
        taken = {id(node): forced.get(id(node), 0) for node in open_nodes}
        planned |= set(taken.items())
        yield taken
        for node in open_nodes:
            for option in range(_num_options(node)):
                if (id(node), option) not in planned and len(queue) < _LIMIT:
                    planned.add((id(node), option))
                    queue.append({**taken, id(node): option})


def describe(pattern: Pattern, selection: Selection) -> str:
    """Gives a reading as an expression, ``nn.relu(nn.conv2d(*, const))``."""
    if isinstance(pattern, Alternatives):
        return describe(chosen(pattern, selection), selection)
    if isinstance(pattern, ValuePattern):
        return {"any": "*", "const": "const", "var": "var"}.get(pattern.kind, pattern.kind)
    if not isinstance(pattern, OpPattern):
        return type(pattern).__name__
    operands = "..." if pattern.operands is None else ", ".join(describe(p, selection) for p in pattern.operands)
    index = f"[{pattern.result_index}]" if pattern.result_index else ""
    return f"{op_name(pattern, selection)}({operands}){index}"
