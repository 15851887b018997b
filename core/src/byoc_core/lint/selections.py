"""The readings of a pattern to try: one op of each set, one choice of each alternatives, each at least once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from byoc_core.pattern import Pattern
from byoc_core.pattern.language import Alternatives, OpPattern, ValuePattern

__all__ = ["Selection", "describe", "op_key", "op_name", "select", "selected_option", "walk"]

Selection = Mapping[int, int]
"""The chosen option, by the key of the pattern node; the first option for absent keys."""

_LIMIT = 64


def op_key(node: Pattern) -> int:
    """Return the identity of a node: patterns for results of the same pattern object stand for the same op."""
    return id((node.origin or node) if isinstance(node, OpPattern) else node)


def _num_options(node: Pattern) -> int:
    if isinstance(node, Alternatives):
        return len(node.choices)
    return len(node.ops) if isinstance(node, OpPattern) else 1


def selected_option(node: Alternatives, selection: Selection) -> Pattern:
    """Return the choice of a selection."""
    return node.choices[selection.get(id(node), 0)]


def op_name(node: OpPattern, selection: Selection) -> str:
    """Return the name of the op chosen by a selection."""
    return sorted(node.ops)[selection.get(op_key(node), 0)]


def walk(pattern: Pattern, selection: Selection | None = None, *, repeated: bool = True) -> Iterator[Pattern]:
    """Yield each node once, a node before the node's parts.

    Args:
        pattern: the first node.
        selection: yield only chosen parts.
        repeated: also yield patterns for any number of operands.
    """
    pending, seen = [pattern], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        parts: list[Pattern] = []
        if isinstance(node, Alternatives):
            parts = list(node.choices) if selection is None else [selected_option(node, selection)]
        elif isinstance(node, OpPattern):
            parts = [*(node.operands or ()), *([node.reads] if node.reads is not None else [])]
            parts += [node.rest.pattern] if repeated and node.rest is not None else []
        pending.extend(reversed(parts))


def select(pattern: Pattern) -> Iterator[Selection]:
    """Yield selections, together taking every option of every node, the first options first.

    Order: fixed by the pattern. At most 64.
    """
    queue: list[Selection] = [{}]
    planned: set[tuple[int, int]] = set()
    for forced in queue:
        options = {op_key(node): _num_options(node) for node in walk(pattern, forced) if _num_options(node) > 1}
        options_taken = {key: forced.get(key, 0) for key in options}
        planned |= set(options_taken.items())
        yield options_taken
        for key, count in options.items():
            for option in range(count):
                if (key, option) not in planned and len(queue) < _LIMIT:
                    planned.add((key, option))
                    queue.append({**options_taken, key: option})


def describe(pattern: Pattern, selection: Selection) -> str:
    """Return a reading as an expression, ``nn.relu(nn.conv2d(*, const))``."""
    if isinstance(pattern, Alternatives):
        return describe(selected_option(pattern, selection), selection)
    if isinstance(pattern, OpPattern):
        index = f".{pattern.result_index}" if pattern.result_index else ""
        return f"{op_name(pattern, selection)}({', '.join(_describe_operands(pattern, selection))}){index}"
    return "*" if isinstance(pattern, ValuePattern) and pattern.kind == "any" else str(pattern)


def _describe_operands(pattern: OpPattern, selection: Selection) -> Sequence[str]:
    if pattern.reads is not None:
        return "...", describe(pattern.reads, selection), "..."
    if pattern.operands is None:
        return ("...",)
    parts = [describe(operand, selection) for operand in pattern.operands]
    return [*parts, f"{describe(pattern.rest.pattern, selection)}..."] if pattern.rest is not None else parts
