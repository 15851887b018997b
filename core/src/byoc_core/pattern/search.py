"""The search for the ways in which a pattern fits at a value.

Each pair of a part of the pattern and a value is solved once, and equal ways are one: so the cost is that of the pairs,
whatever their combinations. What a part fits may hang on values that other parts have bound before (one pattern object
stands for one value); such values are a part of the pair.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from byoc_core.ir import Binding, Constant, Trait, Value
from byoc_core.ops.identity import is_identity
from byoc_core.pattern.fit import condition_misfit, kind_misfit, op_misfit
from byoc_core.pattern.index import FunctionIndex
from byoc_core.pattern.language import Alternatives, OpPattern, Pattern, ValuePattern
from byoc_core.pattern.plan import Plan, key_of

__all__ = ["MAX_STEPS", "MAX_WAYS", "Bound", "Search", "Way", "is_same", "key_of_value"]

MAX_WAYS = 256
"""How many ways of one part at one value are looked at, preferred ones first."""

MAX_STEPS = 100_000
"""How many pairs of a part and a value are looked at from one root; a pattern that needs more does not match there."""

Bound = Mapping[int, Hashable]
"""What shared patterns stand for: the binding of an op pattern, the value before identities of others, by key."""

_NOTHING: Bound = {}

_TOO_MANY_WAYS = f"a part of the pattern fits in more than {MAX_WAYS} ways, and the others were not looked at"


@dataclass(eq=False, slots=True)
class Way:
    """One way in which a part of a pattern fits at a value.

    Attributes:
        pattern: the part.
        value: the value that was asked about.
        binding: the op that fits, or the identity that was looked through; ``None`` for values and for what was bound.
        is_through: whether the binding is an identity that was looked through; the only part is the way behind it.
        parts: the ways of the operands, or of what is behind the identity.
        bound: what shared patterns came to stand for.
    """

    pattern: Pattern
    value: Value
    binding: Binding | None
    is_through: bool
    parts: tuple[Way, ...]
    bound: Bound


class _Goal(NamedTuple):
    pattern: Pattern
    value: Value
    bound: Bound


class _Partial(NamedTuple):
    """Ways of the operands so far; ``seen`` is all that is bound, ``bound`` what these ways have bound."""

    parts: tuple[Way, ...]
    seen: Bound
    bound: Bound


_Ways = list[Way]
_NO_WAY: _Ways = []
_Solving = Generator[_Goal, _Ways, _Ways]


def key_of_value(value: Value) -> Hashable:
    """Gives what equal values have in common: equal constants are one value."""
    return value if isinstance(value, Constant) else id(value)


def is_same(left: Value, right: Value) -> bool:
    """Tells whether two values are one."""
    return left is right or (isinstance(left, Constant) and left == right)


class Search:
    """Finds the ways in which a pattern fits, from one root.

    Attributes:
        num_steps: how many pairs of a part and a value were looked at, and how many ways were put together.
        limit: the bound that the search met, as a clause; empty where it found all ways.
    """

    def __init__(self, plan: Plan, index: FunctionIndex) -> None:
        self.num_steps = 0
        self.limit = ""
        self._plan = plan
        self._index = index
        self._known: dict[Hashable, _Ways] = {}
        self._ways: dict[Hashable, Way] = {}

    def ways(self, pattern: Pattern, value: Value, bound: Bound = _NOTHING) -> _Ways:
        """Gives the ways in which a part of the pattern fits at a value, preferred ones first.

        Args:
            pattern: the part, or the whole.
            value: where.
            bound: what shared patterns stand for already.
        """
        pending: list[tuple[Hashable, _Solving]] = []
        answer = self._begin(_Goal(pattern, value, bound))
        while True:
            if isinstance(answer, tuple):
                pending.append(answer)
                found: _Ways | None = None
            else:
                found = answer
            if not pending:
                return found or _NO_WAY
            if self.num_steps > MAX_STEPS:
                self.limit = f"the search was given up after {MAX_STEPS} steps"
                return _NO_WAY
            key, solving = pending[-1]
            try:
                goal = next(solving) if found is None else solving.send(found)
            except StopIteration as stop:
                pending.pop()
                answer = self._known[key] = stop.value
            else:
                answer = self._begin(goal)

    def _begin(self, goal: _Goal) -> _Ways | tuple[Hashable, _Solving]:
        """Gives the answer, or where it takes the answers of other goals, its key and what finds it."""
        pattern, value, bound = goal
        self.num_steps += 1
        if isinstance(pattern, OpPattern) and not self._may_fit(pattern, value):
            return _NO_WAY
        key: Hashable = (id(pattern), key_of_value(value))
        if (within := self._plan.within.get(id(pattern))) is not None:
            key = (key, *map(bound.get, within))
        known = self._known.get(key)
        if known is not None:
            return known
        if within is not None and key_of(pattern) in bound:
            known = self._again(pattern, value, bound[key_of(pattern)])
        elif isinstance(pattern, OpPattern):
            return key, self._solve_op(pattern, value, bound)
        elif isinstance(pattern, Alternatives):
            return key, self._solve_alternatives(pattern, value, bound)
        else:
            known = self._leaf(pattern, value) if isinstance(pattern, ValuePattern) else _NO_WAY
        self._known[key] = known
        return known

    def _may_fit(self, pattern: OpPattern, value: Value) -> bool:
        """Tells, at a glance, whether an op may make a value or what an identity makes it of.

        Most values fall here, which is what makes patterns that nearly never fit cheap.
        """
        found = self._index.producer(value)
        if found is None:
            return False
        binding = found[0]
        if binding.codegen is not None:
            return False
        if is_identity(binding):
            return True
        if binding.op.name not in pattern.ops:
            return False
        if not pattern.operands or self._may_read(pattern.operands, binding.operands):
            return True
        return binding.op.has_trait(Trait.COMMUTATIVE) and self._may_read(pattern.operands, binding.operands[::-1])

    def _may_read(self, patterns: Sequence[Pattern], operands: Sequence[Value]) -> bool:
        for pattern, operand in zip(patterns, operands, strict=False):
            if isinstance(pattern, OpPattern):
                found = self._index.producer(operand)
                if found is None or not (found[0].op.name in pattern.ops or is_identity(found[0])):
                    return False
        return True

    def _leaf(self, pattern: ValuePattern, value: Value) -> _Ways:
        """Gives the way in which a value fits as it is, or before identities."""
        through: list[tuple[Value, Binding]] = []
        while kind_misfit(pattern, value, self._index) is not None:
            identity = self._index.identity(value)
            if identity is None:
                return []
            through.append((value, identity))
            value = identity.operands[0]
        if condition_misfit(pattern, value, self._index) is not None:
            return []
        return [self._behind(self._way(pattern, value), through)]

    def _again(self, pattern: Pattern, value: Value, target: Hashable) -> _Ways:
        """Gives the way in which a value is the one that the pattern stands for already, identities apart."""
        if not isinstance(pattern, OpPattern):
            same = key_of_value(self._index.source(value)) == target
            return [self._way(pattern, value)] if same else []
        through: list[tuple[Value, Binding]] = []
        while (found := self._index.producer(value)) is None or id(found[0]) != target:
            identity = self._index.identity(value)
            if identity is None:
                return []
            through.append((value, identity))
            value = identity.operands[0]
        fits = found[1] == pattern.result_index and condition_misfit(pattern, value, self._index) is None
        return [self._behind(self._way(pattern, value), through)] if fits else []

    def _solve_alternatives(self, pattern: Alternatives, value: Value, bound: Bound) -> _Solving:
        found: dict[Way, None] = {}
        is_plain = pattern.name is None and key_of(pattern) not in self._plan.shared
        if condition_misfit(pattern, value, self._index) is None:
            for choice in pattern.choices:
                for way in (yield _Goal(choice, value, bound)):
                    self._keep(found, way if is_plain else self._way(pattern, value, None, (way,), way.bound))
        return list(found)

    def _solve_op(self, pattern: OpPattern, value: Value, bound: Bound) -> _Solving:
        """Finds the ways of the op that makes the value; if there is none, of what an identity reads."""
        found: dict[Way, None] = {}
        binding, result_index = self._index.producer(value) or (None, 0)
        if binding is not None and binding.op.name in pattern.ops:
            misfit = op_misfit(pattern, binding, result_index) or condition_misfit(pattern, value, self._index)
            partials = (yield from self._solve_operands(pattern, binding, bound)) if misfit is None else []
            for partial in partials:
                self._keep(found, self._way(pattern, value, binding, partial.parts, partial.bound))
        identity = None if found else self._index.identity(value)
        if identity is not None:
            for way in (yield _Goal(pattern, identity.operands[0], bound)):
                found[self._behind(way, [(value, identity)])] = None
        return list(found)

    def _solve_operands(
        self, pattern: OpPattern, binding: Binding, bound: Bound
    ) -> Generator[_Goal, _Ways, Sequence[_Partial]]:
        start = _Partial((), bound, _NOTHING)
        operands = binding.operands
        if pattern.reads is not None:
            found: list[_Partial] = []
            for operand in {key_of_value(operand): operand for operand in operands}.values():
                found += yield from self._grow([start], pattern.reads, operand)
            return found
        if pattern.operands is None:
            return [start]
        partials = yield from self._solve_in_order([start], pattern.operands, operands)
        if pattern.rest is not None:
            local = self._plan.local[id(pattern)]
            for operand in operands[len(pattern.operands) :]:
                partials = yield from self._grow(partials, pattern.rest.pattern, operand, local)
        elif len(operands) == 2 and binding.op.has_trait(Trait.COMMUTATIVE) and not is_same(*operands):
            swapped = yield from self._solve_in_order([start], pattern.operands, operands[::-1])
            partials = [*partials, *swapped]
        return partials

    def _solve_in_order(
        self, partials: Sequence[_Partial], patterns: Sequence[Pattern], operands: Sequence[Value]
    ) -> Generator[_Goal, _Ways, Sequence[_Partial]]:
        for pattern, operand in zip(patterns, operands, strict=False):  # operands beyond are repeated ones
            partials = yield from self._grow(partials, pattern, operand)
        return partials

    def _grow(
        self, partials: Sequence[_Partial], pattern: Pattern, operand: Value, local: frozenset[int] = frozenset()
    ) -> Generator[_Goal, _Ways, Sequence[_Partial]]:
        """Adds one operand to ways of the ones before; what is local to it is bound anew and forgotten after."""
        grown: list[_Partial] = []
        for parts, seen, bound in partials:
            for way in (yield _Goal(pattern, operand, _without(seen, local))):
                if len(grown) == MAX_WAYS:
                    self.limit = self.limit or _TOO_MANY_WAYS
                    return grown
                self.num_steps += 1
                new = _without(way.bound, local)
                merged = (seen, bound) if not new else ({**seen, **new}, {**bound, **new})
                grown.append(_Partial((*parts, way), *merged))
        return grown

    def _keep(self, found: dict[Way, None], way: Way) -> None:
        """Adds a way to those found, unless they are as many as are looked at."""
        if len(found) < MAX_WAYS or way in found:
            found[way] = None
        else:
            self.limit = self.limit or _TOO_MANY_WAYS

    def _behind(self, way: Way, through: Sequence[tuple[Value, Binding]]) -> Way:
        """Gives the way with the identities that were looked through to it, the last one first."""
        for value, identity in reversed(through):
            way = self._interned(Way(way.pattern, value, identity, True, (way,), way.bound))
        return way

    def _way(
        self,
        pattern: Pattern,
        value: Value,
        binding: Binding | None = None,
        parts: tuple[Way, ...] = (),
        bound: Bound = _NOTHING,
    ) -> Way:
        """Gives a way, with what its own pattern stands for where that is shared."""
        key = key_of(pattern)
        if key in self._plan.shared:
            own: Hashable
            if isinstance(pattern, OpPattern):
                found = self._index.producer(value)
                own = None if found is None else id(found[0])
            else:
                own = key_of_value(self._index.source(value))
            bound = {**bound, key: own}
        return self._interned(Way(pattern, value, binding, False, parts, bound))

    def _interned(self, way: Way) -> Way:
        """Gives the one way that says the same: equal captures, ops, leaves and shared values."""
        pattern, parts = way.pattern, tuple(map(id, way.parts))
        is_listed = isinstance(pattern, OpPattern) and (pattern.rest is not None or pattern.reads is not None)
        is_own = is_listed or key_of(pattern) in self._plan.shared
        key = (
            id(pattern) if is_own else pattern.name,
            isinstance(pattern, ValuePattern),
            key_of_value(way.value),
            id(way.binding),
            way.is_through,
            parts
            if is_listed
            else tuple(sorted(parts)),  # the order in which a commutative op's operands fit is nothing
        )
        return self._ways.setdefault(key, way)


def _without(bound: Bound, keys: frozenset[int]) -> Bound:
    return {key: value for key, value in bound.items() if key not in keys} if keys and bound else bound
