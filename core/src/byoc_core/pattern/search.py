"""The search for the ways to fit a pattern to a value, and for the best failure if the pattern does not fit.

Each pair of a part of the pattern and a value is solved once, and equal ways are merged: the cost is proportional to
the number of pairs, not to the number of combinations. The fit of a part may depend on values bound before by other
parts (a pattern object stands for a single value); these values belong to the pair.

The best failure is the misfit preceded by the most fitting ops, among the misfits of alternatives, of operand orders,
and of the ways of the operands before the failing operand. The first of equals wins.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from byoc_core.ir import Binding, Constant, Trait, Value
from byoc_core.ops.identity import is_identity
from byoc_core.pattern.fit import Misfit, condition_misfit, kind_misfit, made_by, op_misfit, op_names
from byoc_core.pattern.index import FunctionIndex
from byoc_core.pattern.language import OpPattern, Pattern, ValuePattern
from byoc_core.pattern.plan import Plan, key_of, parts_of

__all__ = ["MAX_STEPS", "MAX_WAYS", "Answer", "Bound", "Search", "Way", "is_same", "key_of_value", "op_ids"]

MAX_WAYS = 256
"""The maximum number of examined ways of one part at one value, preferred ways first."""

MAX_STEPS = 100_000
"""The maximum number of steps (``Search.num_steps``) from one root; a pattern needing more does not match there."""

Bound = Mapping[int, Hashable]
"""The bindings of shared patterns by key: the op of an op pattern, or the value before identities of others."""

_NOTHING: Bound = {}
_NO_KEYS: frozenset[int] = frozenset()

_TOO_MANY_WAYS = f"a part of the pattern fits in more than {MAX_WAYS} ways, and the others were not looked at"

_OTHER_VALUE = Misfit("is not the value that stands elsewhere for the same part of the pattern")


@dataclass(eq=False, slots=True)
class Way:
    """One way to fit a part of a pattern to a value.

    Attributes:
        pattern: the part.
        value: the queried value.
        binding: the fitting op, or the identity looked through; ``None`` for values and for bound patterns.
        is_through: whether the binding is an identity looked through; the only part is the way behind the identity.
        parts: the ways of the operands, or of the operand of the identity.
        bound: the bindings of shared patterns.
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
    """Ways of the operands so far; ``seen`` is everything bound, ``bound`` everything bound by these ways."""

    parts: tuple[Way, ...]
    seen: Bound
    bound: Bound


Answer = list[Way] | Misfit
"""The ways to fit a part of a pattern to a value, preferred ways first; if there is none, the best failure."""

_Solving = Generator[_Goal, Answer, Answer]

_UNRECORDED = Misfit("does not fit", num_matched=-1)
"""The failure of every part in a search without recorded failures; every recorded failure is better."""


def key_of_value(value: Value) -> Hashable:
    """Return the key shared by equal values: equal constants are one value."""
    return value if isinstance(value, Constant) else id(value)


def is_same(left: Value, right: Value) -> bool:
    """Return whether two values are the same."""
    return left is right or (isinstance(left, Constant) and left == right)


class Search:
    """A search for the ways to fit a pattern, from one root.

    Attributes:
        num_steps: the number of examined pairs of a part and a value, plus the number of combined ways.
        limit: the bound met by the search, as a clause; empty if the search found all ways.
    """

    def __init__(self, plan: Plan, index: FunctionIndex, *, records_failures: bool = False) -> None:
        """Make a search.

        Args:
            plan: the pattern, analysed.
            index: the function.
            records_failures: whether answers give the reason for a part not fitting. The search then examines more
                pairs, because no part can be dropped at a glance.
        """
        self.num_steps = 0
        self.limit = ""
        self._plan = plan
        self._index = index
        self._records_failures = records_failures
        self._known: dict[Hashable, Answer] = {}
        self._ways: dict[Hashable, Way] = {}

    def solve(self, pattern: Pattern, value: Value) -> Answer:
        """Return the ways to fit a part of the pattern, or the whole pattern, to a value."""
        pending: list[tuple[Hashable, _Solving]] = []
        answer = self._begin(_Goal(pattern, value, _NOTHING), pending)
        while pending:
            if self.num_steps > MAX_STEPS:
                self.limit = f"the search was given up after {MAX_STEPS} steps"
                return Misfit(f"met its bound: {self.limit}", "the search")
            key, solving = pending[-1]
            try:
                goal = next(solving) if answer is None else solving.send(answer)
            except StopIteration as stop:
                pending.pop()
                answer = self._known[key] = stop.value
            else:
                answer = self._begin(goal, pending)
        return answer or _UNRECORDED

    def _begin(self, goal: _Goal, pending: list[tuple[Hashable, _Solving]]) -> Answer | None:
        """Return the answer, or ``None`` after adding a solver to ``pending`` if answers of other goals are needed."""
        pattern, value, bound = goal
        self.num_steps += 1
        if isinstance(pattern, OpPattern) and not self._records_failures and not self._may_fit(pattern, value):
            return _UNRECORDED
        key: Hashable = (id(pattern), key_of_value(value))
        if (within := self._plan.within.get(id(pattern))) is not None:
            key = (key, *map(bound.get, within))
        answer = self._known.get(key)
        if answer is not None:
            return answer
        if within is not None and key_of(pattern) in bound:
            answer = self._again(pattern, value, bound[key_of(pattern)])
            is_sought_behind = isinstance(pattern, OpPattern)
        elif isinstance(pattern, OpPattern):
            pending.append((key, self._solve_op(pattern, goal)))
            return None
        elif isinstance(pattern, ValuePattern):
            answer = self._leaf(pattern, value)
            is_sought_behind = pattern.kind != "any"
        else:
            pending.append((key, self._solve_alternatives(goal)))
            return None
        if is_sought_behind and isinstance(answer, Misfit) and (identity := self._index.identity(value)) is not None:
            pending.append((key, self._solve_behind(goal, identity)))
            return None
        self._known[key] = answer
        return answer

    def _may_fit(self, pattern: OpPattern, value: Value) -> bool:
        """Return whether a value may fit at first sight: the producer has a name of the pattern, or is an identity.

        Most values fail this quick test, which keeps a rarely fitting pattern cheap.
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

    def _leaf(self, pattern: ValuePattern, value: Value) -> Answer:
        """Return the way to fit a value pattern to a value itself, not to the operand of an identity."""
        misfit = kind_misfit(pattern, value, self._index) or condition_misfit(pattern, value, self._index)
        return [self._way(pattern, value)] if misfit is None else self._failure(misfit, value)

    def _again(self, pattern: Pattern, value: Value, target: Hashable) -> Answer:
        """Return the way for a pattern bound already: the value must be the bound value."""
        if isinstance(pattern, OpPattern):
            binding, result_index = self._index.producer(value) or (None, 0)
            is_target = id(binding) == target and result_index == pattern.result_index
            fits = is_target and condition_misfit(pattern, value, self._index) is None
        else:
            fits = key_of_value(self._index.source(value)) == target
        return [self._way(pattern, value)] if fits else self._failure(_OTHER_VALUE, value)

    def _solve_alternatives(self, goal: _Goal) -> _Solving:
        pattern, value, bound = goal
        misfit = condition_misfit(pattern, value, self._index)
        if misfit is not None:
            return self._failure(misfit, value)
        failure = _UNRECORDED
        found: dict[Way, None] = {}
        is_plain = pattern.name is None and not self._is_shared(pattern)
        for choice in parts_of(pattern):
            answer = yield _Goal(choice, value, bound)
            if isinstance(answer, Misfit):
                failure = _better(failure, answer)
            else:
                for way in answer:
                    self._keep(found, way if is_plain else self._way(pattern, value, None, (way,), way.bound))
        return list(found) or failure

    def _solve_op(self, pattern: OpPattern, goal: _Goal) -> _Solving:
        """Find the ways of the op making the value; if there is none, the ways of the operand of an identity."""
        _, value, bound = goal
        found: dict[Way, None] = {}
        failure = _UNRECORDED
        binding, result_index = self._index.producer(value) or (None, 0)
        is_named = binding is not None and binding.op.name in pattern.ops
        if binding is not None and is_named:
            misfit = op_misfit(pattern, binding, result_index) or condition_misfit(pattern, value, self._index)
            if misfit is None:
                partials, failure = yield from self._solve_operands(pattern, binding, bound)
                for partial in partials:
                    self._keep(found, self._way(pattern, value, binding, partial.parts, partial.bound))
            else:
                failure = self._failure(misfit, value)
        identity = None if found else self._index.identity(value)
        if identity is not None:
            return (yield from self._solve_behind(goal, identity, failure))
        if not is_named:
            failure = self._failure(Misfit(f"{made_by(value, self._index)}, expected {op_names(pattern)}"), value)
        return list(found) or failure

    def _solve_behind(self, goal: _Goal, identity: Binding, failure: Misfit = _UNRECORDED) -> _Solving:
        """Find the ways at the operand of an identity for a part not fitting at the result of the identity."""
        pattern, value, bound = goal
        answer = yield _Goal(pattern, identity.operands[0], bound)
        if isinstance(answer, Misfit):
            return _better(failure, answer)
        return [self._interned(Way(way.pattern, value, identity, True, (way,), way.bound)) for way in answer]

    def _solve_operands(
        self, pattern: OpPattern, binding: Binding, bound: Bound
    ) -> Generator[_Goal, Answer, tuple[Sequence[_Partial], Misfit]]:
        """Find the ways of all operands, in each possible order, and the best failure of an operand."""
        found: list[_Partial] = []
        failure = _UNRECORDED
        local = self._plan.local.get(id(pattern), _NO_KEYS)
        for parts, positions in _orders(pattern, binding):
            partials = [_Partial((), bound, _NOTHING)]
            for part, position in zip(parts, positions, strict=True):
                grown: list[_Partial] = []
                for partial in partials:
                    answer = yield _Goal(part, binding.operands[position], _without(partial.seen, local))
                    if isinstance(answer, Misfit):
                        if self._records_failures:
                            failure = _better(failure, _at_operand(answer, binding, position, partial.parts))
                        continue
                    room = MAX_WAYS - len(grown)
                    for way in answer[:room]:
                        self.num_steps += 1
                        grown.append(_extended(partial, way, local))
                    if len(answer) > room:
                        self.limit = self.limit or _TOO_MANY_WAYS
                        break
                partials = grown
            found += partials
        return found, failure

    def _failure(self, misfit: Misfit, value: Value) -> Misfit:
        """Return the misfit with the op making the value as the op at fault, if the search records failures."""
        if not self._records_failures:
            return _UNRECORDED
        found = self._index.producer(value)
        return misfit if found is None else misfit._replace(ops=(found[0].results[0].name,))

    def _keep(self, found: dict[Way, None], way: Way) -> None:
        """Add a way to the found ways, unless there are ``MAX_WAYS`` already."""
        if len(found) < MAX_WAYS or way in found:
            found[way] = None
        else:
            self.limit = self.limit or _TOO_MANY_WAYS

    def _is_shared(self, pattern: Pattern) -> bool:
        return bool(self._plan.shared) and key_of(pattern) in self._plan.shared

    def _way(
        self,
        pattern: Pattern,
        value: Value,
        binding: Binding | None = None,
        parts: tuple[Way, ...] = (),
        bound: Bound = _NOTHING,
    ) -> Way:
        """Return a way, with the binding of the way's own pattern if the pattern is shared."""
        if self._is_shared(pattern):
            own: Hashable
            if isinstance(pattern, OpPattern):
                found = self._index.producer(value)
                own = None if found is None else id(found[0])
            else:
                own = key_of_value(self._index.source(value))
            bound = {**bound, key_of(pattern): own}
        return self._interned(Way(pattern, value, binding, False, parts, bound))

    def _interned(self, way: Way) -> Way:
        """Return the unique way with equal captures, ops, leaves and shared values."""
        pattern, parts = way.pattern, tuple(map(id, way.parts))
        is_listed = isinstance(pattern, OpPattern) and (pattern.rest is not None or pattern.reads is not None)
        if not is_listed and len(parts) > 1:
            parts = tuple(sorted(parts))  # the operand order of a commutative op does not matter
        key = (
            id(pattern) if is_listed or self._is_shared(pattern) else pattern.name,
            isinstance(pattern, ValuePattern),
            key_of_value(way.value),
            id(way.binding),
            way.is_through,
            parts,
        )
        return self._ways.setdefault(key, way)


def _without(bound: Bound, keys: frozenset[int]) -> Bound:
    return {key: value for key, value in bound.items() if key not in keys} if keys and bound else bound


def _extended(partial: _Partial, way: Way, local: frozenset[int]) -> _Partial:
    """Return the ways of operands plus one more way; bindings of ``local`` keys hold in their operand only."""
    parts, seen, bound = partial
    new = _without(way.bound, local)
    return _Partial((*parts, way), {**seen, **new}, {**bound, **new}) if new else _Partial((*parts, way), seen, bound)


def _orders(pattern: OpPattern, binding: Binding) -> list[tuple[Sequence[Pattern], Sequence[int]]]:
    """Return the operand orders to be tried: the patterns of operands, and the operands' positions."""
    parts, count = pattern.operands, len(binding.operands)
    if pattern.reads is not None:
        return [((pattern.reads,), (position,)) for position in range(count)]
    if parts is None:
        return [((), ())]
    if pattern.rest is not None:
        parts = (*parts, *[pattern.rest.pattern] * (count - len(parts)))
    elif count == 2 and binding.op.has_trait(Trait.COMMUTATIVE) and not is_same(*binding.operands):
        return [(parts, (0, 1)), (parts, (1, 0))]
    return [(parts, range(count))]


def _at_operand(misfit: Misfit, binding: Binding, position: int, before: Sequence[Way]) -> Misfit:
    """Return the misfit of an operand as a misfit of the op, with the ops fitting before the operand."""
    return misfit._replace(
        part=misfit.part or f"operand {position} of `{binding.op.name}`",
        num_matched=misfit.num_matched + len({id(binding), *op_ids(before)}),
    )


def op_ids(ways: Sequence[Way]) -> set[int]:
    """Return the ids of the bindings matched by ways, identities excluded."""
    found: set[int] = set()
    pending = list(ways)
    while pending:
        way = pending.pop()
        if way.binding is not None and not way.is_through:
            found.add(id(way.binding))
        pending.extend(way.parts)
    return found


def _better(first: Misfit, second: Misfit) -> Misfit:
    """Return the misfit with more ops fitting before; the first of equals."""
    return second if second.num_matched > first.num_matched else first
