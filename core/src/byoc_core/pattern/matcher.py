"""Pattern matching in one function, from a root binding backwards."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from byoc_core.ir import Binding, Value
from byoc_core.pattern.fit import Misfit
from byoc_core.pattern.index import FunctionIndex
from byoc_core.pattern.language import OpPattern, Pattern, ValuePattern
from byoc_core.pattern.match import Match
from byoc_core.pattern.plan import Plan, key_of, plan_of
from byoc_core.pattern.reachability import MAX_VISITS, is_convex
from byoc_core.pattern.search import Fit, Search, is_same, key_of_value

__all__ = ["find_matches"]


def find_matches(
    pattern: Pattern, root: Binding, index: FunctionIndex, on_limit: Callable[[str], None] | None = None
) -> Iterator[Match]:
    """Yield the matches of a pattern with ``root`` as the last op, preferred matches first.

    Two matches differ in bindings or captures.

    Bindings claimed by a backend are not matched. A match is convex: no input depends, directly or indirectly, on a
    value made by the match. Leaves of the pattern are inputs: none is made inside.

    Identities (see ``byoc_core.ops.identity``) between a matched op and an operand do not stop a match. If a part of
    the pattern does not fit the result of an identity, the part is tried on the operand of the identity, and the
    identity becomes a binding of the match. An identity between two values of the same pattern object becomes a binding
    of the match, too.

    Cost: proportional to the pattern's size times the values in reach, whatever the size of the function, and to the
    number of matches: ``MAX_FITS`` at most. Patterns with objects used at many places may need more; a pattern in need
    of more than ``MAX_STEPS`` does not match.

    Args:
        pattern: the pattern to match.
        root: the last op.
        index: the function of the root.
        on_limit: called, before later matches, with each bound met by the search, as a clause; there might be matches
            beyond the bound.
    """
    plan = plan_of(pattern)
    if root.codegen is not None or root.op.name not in plan.root_ops:
        return
    search = Search(plan, index)
    seen: set[Hashable] = set()
    for result in root.results:
        answer = search.solve(pattern, result)
        if search.limit and on_limit is not None:
            on_limit(search.limit)
        for fit in () if isinstance(answer, Misfit) else answer:
            facts = _Facts(fit, plan, index)
            match = facts.to_match(root)
            key = (
                frozenset(map(id, match.bindings)),
                tuple((name, key_of_value(value)) for name, value in match.captures.items()),
                tuple((name, *map(key_of_value, values)) for name, values in match.repeated.items()),
            )
            if id(root) not in facts.matched or key in seen or facts.has_inner_leaf():
                continue
            convex = is_convex(match.bindings, match.inputs, index)
            if convex:
                seen.add(key)
                yield match
            elif convex is None and on_limit is not None:
                on_limit(_UNKNOWN_CONVEXITY)


_UNKNOWN_CONVEXITY = f"the search for a path from the match to an input stopped after {MAX_VISITS} ops"

_Scope = Mapping[int, int]
"""The index of the current repeated operand, by shared key local to the repeated operands."""

_Group = tuple[int, int, int]
"""The shared pattern (by key), the result index, and the repeated operand."""

_NO_SCOPE: _Scope = {}


class _Facts:
    """The contents of a fit: bindings, leaves and captures.

    Attributes:
        matched: ops fitting a part of the pattern, by id.
    """

    def __init__(self, fit: Fit, plan: Plan, index: FunctionIndex) -> None:
        self.matched: dict[int, Binding] = {}
        self._plan = plan
        self._index = index
        self._through: dict[int, Binding] = {}
        self._captures: list[tuple[str, Value, _Group | None, bool]] = []
        self._leaves: list[tuple[Value, _Group | None]] = []
        self._shared: dict[_Group, list[Value]] = {}
        self._scopes = 0
        pending = [(fit, _NO_SCOPE, False)]
        while pending:
            current, scope, is_repeated = pending.pop()
            self._collect(current, scope, is_repeated)
            pending.extend(reversed(list(self._parts(current, scope, is_repeated))))
        self._common_values = {group: self._common_value(values) for group, values in self._shared.items()}
        self._bindings = {**self.matched, **self._through}

    def _collect(self, fit: Fit, scope: _Scope, is_repeated: bool) -> None:
        pattern, group = fit.pattern, None
        if self._plan.shared and (key := key_of(pattern)) in self._plan.shared:
            result_index = pattern.result_index if isinstance(pattern, OpPattern) else 0
            group = (key, result_index, scope.get(key, 0))
            self._shared.setdefault(group, []).append(fit.value)
        if fit.binding is not None:
            (self._through if fit.is_through else self.matched)[id(fit.binding)] = fit.binding
        if fit.is_through:
            return
        if pattern.name is not None:
            self._captures.append((pattern.name, fit.value, group, is_repeated))
        if isinstance(pattern, ValuePattern):
            self._leaves.append((fit.value, group))
        if isinstance(pattern, OpPattern) and pattern.reads is not None and fit.binding is not None:
            read = next(i for i, operand in enumerate(fit.binding.operands) if is_same(operand, fit.parts[0].value))
            self._leaves += [(operand, None) for i, operand in enumerate(fit.binding.operands) if i != read]

    def _parts(self, fit: Fit, scope: _Scope, is_repeated: bool) -> Iterator[tuple[Fit, _Scope, bool]]:
        """Yield the parts of a fit; each repeated operand is a scope of its own."""
        pattern = fit.pattern
        if not isinstance(pattern, OpPattern) or pattern.rest is None or fit.is_through:
            yield from ((part, scope, is_repeated) for part in fit.parts)
            return
        for position, part in enumerate(fit.parts):
            if position < len(pattern.operands or ()):
                yield part, scope, is_repeated
            else:
                self._scopes += 1
                yield part, {**scope, **dict.fromkeys(self._plan.local[id(pattern)], self._scopes)}, True

    def _common_value(self, values: Sequence[Value]) -> Value:
        """Return the last common value before the identities of these values; add the identities to the bindings."""
        chains = [[(value, None), *((b.operands[0], b) for b in self._index.identities(value))] for value in values]
        common = next(v for v, _ in chains[0] if all(any(is_same(v, w) for w, _ in chain) for chain in chains))
        for chain in chains:
            for value, identity in chain:
                if identity is not None:
                    self._through[id(identity)] = identity
                if is_same(value, common):
                    break
        return common

    def _value(self, value: Value, group: _Group | None) -> Value:
        return value if group is None else self._common_values[group]

    def has_inner_leaf(self) -> bool:
        """Return whether a leaf (an input) is made inside (``add(y, y)`` is no bias of ``y``)."""
        leaves = (self._index.producer(self._value(value, group)) for value, group in self._leaves)
        return any(found is not None and id(found[0]) in self._bindings for found in leaves)

    def to_match(self, root: Binding) -> Match:
        """Return the match with ``root`` as the last op."""
        position = self._index.position
        bindings = tuple(sorted(self._bindings.values(), key=lambda binding: position[id(binding)]))
        inner_results = {id(result) for binding in bindings for result in binding.results}
        inputs: dict[Hashable, Value] = {}
        for binding in bindings:
            for operand in binding.operands:
                if id(operand) not in inner_results:
                    inputs.setdefault(key_of_value(operand), operand)
        captures: dict[str, Value] = {}
        repeated: dict[str, tuple[Value, ...]] = {}
        for name, value, group, is_repeated in self._captures:
            if is_repeated:
                repeated[name] = (*repeated.get(name, ()), self._value(value, group))
            else:
                captures[name] = self._value(value, group)
        return Match(root, bindings, tuple(inputs.values()), captures, self._index, repeated)
