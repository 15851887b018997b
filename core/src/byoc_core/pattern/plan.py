"""The analysis of a pattern for the matcher: possible last ops, and parts standing for the same value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from byoc_core.errors import PatternError
from byoc_core.pattern.language import Alternatives, OpPattern, Pattern, ValuePattern

__all__ = ["Plan", "ends_of", "key_of", "parts_of", "plan_of", "root_ops", "walk"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A pattern, analysed.

    Patterns for the same value, or for results of the same op, share a key (see :func:`key_of`).

    Attributes:
        pattern: the pattern; keeps the ids below alive.
        root_ops: names of the possible last ops.
        shared: the keys possibly met more than once by a match.
        within: by the id of a pattern, the shared keys in the pattern, including its own; patterns without shared keys
            are left out.
        local: by the id of an op pattern, the shared keys with a separate value in each repeated operand.
    """

    pattern: Pattern
    root_ops: frozenset[str]
    shared: frozenset[int]
    within: Mapping[int, tuple[int, ...]]
    local: Mapping[int, frozenset[int]]


def key_of(pattern: Pattern) -> int:
    """Return the common key of patterns for the same value, and of patterns for results of one op."""
    return id(pattern.origin or pattern) if isinstance(pattern, OpPattern) else id(pattern)


def parts_of(pattern: Pattern) -> tuple[Pattern, ...]:
    """Return the direct parts of a pattern: the choices, or the patterns of the operands."""
    if isinstance(pattern, Alternatives):
        return pattern.choices
    if not isinstance(pattern, OpPattern):
        return ()
    reads = () if pattern.reads is None else (pattern.reads,)
    return (*(pattern.operands or ()), *reads, *(() if pattern.rest is None else (pattern.rest.pattern,)))


def walk(pattern: Pattern) -> Iterator[Pattern]:
    """Yield each pattern object of a pattern once, parts before the whole."""
    seen: set[int] = set()
    pending = [(pattern, False)]
    while pending:
        current, is_done = pending.pop()
        if is_done:
            yield current
        elif id(current) not in seen:
            seen.add(id(current))
            pending.append((current, True))
            pending.extend((part, False) for part in reversed(parts_of(current)))


def ends_of(pattern: Pattern) -> Iterator[OpPattern]:
    """Yield the possible last op patterns of a pattern, in order, each once."""
    pending, seen = [pattern], set[int]()
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, OpPattern):
            yield current
        elif isinstance(current, Alternatives):
            pending.extend(reversed(current.choices))


def root_ops(pattern: Pattern) -> frozenset[str]:
    """Return the names of the possible last ops of a pattern."""
    return plan_of(pattern).root_ops


@lru_cache(maxsize=1024)
def plan_of(pattern: Pattern) -> Plan:
    """Return the analysis of a pattern.

    Raises:
        PatternError: a part is of a kind unknown to the matcher, or two parts of one possible match have the same name.

    Cost: the pattern's size times the number of parts used more than once.
    """
    order = list(walk(pattern))
    for part in order:
        if not isinstance(part, OpPattern | Alternatives | ValuePattern):
            problem = "is of a kind unknown to the matcher"
            raise PatternError("pattern", problem, got=type(part).__name__)
    uses = Counter(key_of(part) for parent in order for part in parts_of(parent))
    used: dict[int, frozenset[int]] = {}
    shared: set[int] = set()
    for parent in order:
        found: frozenset[int] = frozenset()
        for part in parts_of(parent):
            if isinstance(parent, OpPattern):  # choices exclude one another, operands do not
                shared |= found & used[id(part)]
            found |= used[id(part)]
        used[id(parent)] = found | {key_of(parent)} if uses[key_of(parent)] > 1 else found
    _check_names(order)
    repeated = [parent for parent in order if isinstance(parent, OpPattern) and parent.rest is not None]
    outside = {id(parent): _keys_outside(pattern, parent) for parent in repeated}
    for parent in repeated:
        shared |= used[id(parts_of(parent)[-1])] & outside[id(parent)]
    within = {key: tuple(sorted(keys & shared)) for key, keys in used.items() if not keys.isdisjoint(shared)}
    local = {
        id(parent): frozenset(within.get(id(parts_of(parent)[-1]), ())) - outside[id(parent)] for parent in repeated
    }
    return Plan(pattern, frozenset().union(*(end.ops for end in ends_of(pattern))), frozenset(shared), within, local)


def _check_names(order: Sequence[Pattern]) -> None:
    """Raise :class:`PatternError` if two captures of one match have the same name."""
    captures: dict[int, frozenset[tuple[str, int]]] = {}
    for parent in order:
        found: frozenset[tuple[str, int]] = frozenset()
        own = frozenset() if parent.name is None else frozenset({(parent.name, id(parent))})
        for part in (*parts_of(parent), None):
            added = own if part is None else captures[id(part)]
            if isinstance(parent, OpPattern) or part is None:
                other_captures = dict(found - added)
                twice = sorted(name for name, _ in added - found if name in other_captures)
                if twice:
                    raise PatternError(f"pattern {parent}", f"captures two values as `{twice[0]}`")
            found |= added
        captures[id(parent)] = found


def _keys_outside(pattern: Pattern, op_pattern: OpPattern) -> frozenset[int]:
    """Return the keys met by a pattern outside the repeated operands of an op."""
    seen: dict[int, Pattern] = {}
    pending = [pattern]
    while pending:
        current = pending.pop()
        if id(current) not in seen:
            seen[id(current)] = current
            pending.extend(parts_of(current)[: -1 if current is op_pattern else None])
    return frozenset(map(key_of, seen.values()))
