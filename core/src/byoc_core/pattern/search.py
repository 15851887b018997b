"""The search for the fits of a pattern to a value, and for the best failure if the pattern does not fit.

Each pair of a part of the pattern and a value is solved once, and equal fits are merged: the cost is proportional to
the number of pairs, not to the number of combinations. The fit of a part may depend on values bound before by other
parts (a pattern object stands for a single value); these values belong to the pair.

The best failure is the misfit preceded by the most fitting ops, among the misfits of alternatives, of operand orders,
and of the fits of the operands before the failing operand. The first of equals wins.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from byoc_core.ir import Binding, Constant, Trait, Value
from byoc_core.ops.identity import is_identity
from byoc_core.pattern.fit import Misfit, condition_misfit, kind_misfit, op_misfit, op_names, origin_text
from byoc_core.pattern.index import FunctionIndex
from byoc_core.pattern.language import OpPattern, Pattern, ValuePattern
from byoc_core.pattern.plan import Plan, key_of, parts_of

__all__ = ["MAX_FITS", "MAX_STEPS", "Answer", "Bound", "Fit", "Search", "is_same", "key_of_value", "op_ids"]

MAX_FITS = 256
"""The maximum number of examined fits of one part at one value, preferred fits first."""

MAX_STEPS = 100_000
"""The maximum number of steps (``Search.num_steps``) from one root; a pattern needing more does not match there."""

Bound = Mapping[int, Hashable]
"""The bindings of shared patterns by key: the op of an op pattern, or the value before identities of others."""

_NOTHING: Bound = {}
_NO_KEYS: frozenset[int] = frozenset()

_TOO_MANY_FITS = f"a part of the pattern has more than {MAX_FITS} fits, and further fits were not examined"

_OTHER_VALUE = Misfit("is not the value matched elsewhere by the same part of the pattern")


@dataclass(eq=False, slots=True)
class Fit:
    """A fit of a part of a pattern to a value.

    Attributes:
        pattern: the part.
        value: the queried value.
        binding: the fitting op, or the identity looked through; ``None`` for values and for bound patterns.
        is_through: whether the binding is an identity looked through; the only part is the fit behind the identity.
        parts: the fits of the operands, or of the operand of the identity.
        bound: the bindings of shared patterns.
    """

    pattern: Pattern
    value: Value
    binding: Binding | None
    is_through: bool
    parts: tuple[Fit, ...]
    bound: Bound


class _Goal(NamedTuple):
    pattern: Pattern
    value: Value
    bound: Bound


class _Partial(NamedTuple):
    """Fits of the operands so far; ``seen`` is everything bound, ``bound`` everything bound by these fits."""

    parts: tuple[Fit, ...]
    seen: Bound
    bound: Bound


Answer = list[Fit] | Misfit
"""The fits of a part of a pattern to a value, preferred fits first; if there is none, the best failure."""

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
    """A search for the fits of a pattern, from one root.

    Attributes:
        num_steps: the number of examined pairs of a part and a value, plus the number of combined fits.
        limit: the bound met by the search, as a clause; empty if the search found all fits.
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
        self._answers: dict[Hashable, Answer] = {}
        self._fits: dict[Hashable, Fit] = {}

    def solve(self, pattern: Pattern, value: Value) -> Answer:
        """Return the fits of a part of the pattern, or of the whole pattern, to a value."""
        pending: list[tuple[Hashable, _Solving]] = []
        answer = self._begin(_Goal(pattern, value, _NOTHING), pending)
        while pending:
            if self.num_steps > MAX_STEPS:
                self.limit = f"the search stopped after {MAX_STEPS} steps"
                return Misfit(f"reached the limit: {self.limit}", "the search")
            key, solving = pending[-1]
            try:
                goal = next(solving) if answer is None else solving.send(answer)
            except StopIteration as stop:
                pending.pop()
                answer = self._answers[key] = stop.value
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
        answer = self._answers.get(key)
        if answer is not None:
            return answer
        if within is not None and key_of(pattern) in bound:
            answer = self._solve_bound(pattern, value, bound[key_of(pattern)])
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
        self._answers[key] = answer
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
        """Return the fit of a value pattern to a value itself, not to the operand of an identity."""
        misfit = kind_misfit(pattern, value, self._index) or condition_misfit(pattern, value, self._index)
        return [self._new_fit(pattern, value)] if misfit is None else self._failure(misfit, value)

    def _solve_bound(self, pattern: Pattern, value: Value, target: Hashable) -> Answer:
        """Return the fit of a pattern bound already: the value must be the bound value."""
        if isinstance(pattern, OpPattern):
            binding, result_index = self._index.producer(value) or (None, 0)
            is_target = id(binding) == target and result_index == pattern.result_index
            is_match = is_target and condition_misfit(pattern, value, self._index) is None
        else:
            is_match = key_of_value(self._index.source(value)) == target
        return [self._new_fit(pattern, value)] if is_match else self._failure(_OTHER_VALUE, value)

    def _solve_alternatives(self, goal: _Goal) -> _Solving:
        pattern, value, bound = goal
        misfit = condition_misfit(pattern, value, self._index)
        if misfit is not None:
            return self._failure(misfit, value)
        failure = _UNRECORDED
        found: dict[Fit, None] = {}
        is_plain = pattern.name is None and not self._is_shared(pattern)
        for choice in parts_of(pattern):
            answer = yield _Goal(choice, value, bound)
            if isinstance(answer, Misfit):
                failure = _better(failure, answer)
            else:
                for fit in answer:
                    self._keep(found, fit if is_plain else self._new_fit(pattern, value, None, (fit,), fit.bound))
        return list(found) or failure

    def _solve_op(self, pattern: OpPattern, goal: _Goal) -> _Solving:
        """Find the fits of the op making the value; if there is none, the fits of the operand of an identity."""
        _, value, bound = goal
        found: dict[Fit, None] = {}
        failure = _UNRECORDED
        binding, result_index = self._index.producer(value) or (None, 0)
        is_named = binding is not None and binding.op.name in pattern.ops
        if binding is not None and is_named:
            misfit = op_misfit(pattern, binding, result_index) or condition_misfit(pattern, value, self._index)
            if misfit is None:
                partials, failure = yield from self._solve_operands(pattern, binding, bound)
                for partial in partials:
                    self._keep(found, self._new_fit(pattern, value, binding, partial.parts, partial.bound))
            else:
                failure = self._failure(misfit, value)
        identity = None if found else self._index.identity(value)
        if identity is not None:
            return (yield from self._solve_behind(goal, identity, failure))
        if not is_named:
            failure = self._failure(Misfit(f"{origin_text(value, self._index)}, expected {op_names(pattern)}"), value)
        return list(found) or failure

    def _solve_behind(self, goal: _Goal, identity: Binding, failure: Misfit = _UNRECORDED) -> _Solving:
        """Find the fits at the operand of an identity for a part not fitting at the result of the identity."""
        pattern, value, bound = goal
        answer = yield _Goal(pattern, identity.operands[0], bound)
        if isinstance(answer, Misfit):
            return _better(failure, answer)
        return [self._interned(Fit(fit.pattern, value, identity, True, (fit,), fit.bound)) for fit in answer]

    def _solve_operands(
        self, pattern: OpPattern, binding: Binding, bound: Bound
    ) -> Generator[_Goal, Answer, tuple[Sequence[_Partial], Misfit]]:
        """Find the fits of all operands, in each possible order, and the best failure of an operand."""
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
                    room = MAX_FITS - len(grown)
                    for fit in answer[:room]:
                        self.num_steps += 1
                        grown.append(_extended(partial, fit, local))
                    if len(answer) > room:
                        self.limit = self.limit or _TOO_MANY_FITS
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

    def _keep(self, found: dict[Fit, None], fit: Fit) -> None:
        """Add a fit to the found fits, unless there are ``MAX_FITS`` already."""
        if len(found) < MAX_FITS or fit in found:
            found[fit] = None
        else:
            self.limit = self.limit or _TOO_MANY_FITS

    def _is_shared(self, pattern: Pattern) -> bool:
        return bool(self._plan.shared) and key_of(pattern) in self._plan.shared

    def _new_fit(
        self,
        pattern: Pattern,
        value: Value,
        binding: Binding | None = None,
        parts: tuple[Fit, ...] = (),
        bound: Bound = _NOTHING,
    ) -> Fit:
        """Return a fit, with the binding of the fit's own pattern if the pattern is shared."""
        if self._is_shared(pattern):
            own: Hashable
            if isinstance(pattern, OpPattern):
                found = self._index.producer(value)
                own = None if found is None else id(found[0])
            else:
                own = key_of_value(self._index.source(value))
            bound = {**bound, key_of(pattern): own}
        return self._interned(Fit(pattern, value, binding, False, parts, bound))

    def _interned(self, fit: Fit) -> Fit:
        """Return the unique fit with equal captures, ops, leaves and shared values."""
        pattern, parts = fit.pattern, tuple(map(id, fit.parts))
        is_listed = isinstance(pattern, OpPattern) and (pattern.rest is not None or pattern.reads is not None)
        if not is_listed and len(parts) > 1:
            parts = tuple(sorted(parts))  # the operand order of a commutative op does not matter
        key = (
            id(pattern) if is_listed or self._is_shared(pattern) else pattern.name,
            isinstance(pattern, ValuePattern),
            key_of_value(fit.value),
            id(fit.binding),
            fit.is_through,
            parts,
        )
        return self._fits.setdefault(key, fit)


def _without(bound: Bound, keys: frozenset[int]) -> Bound:
    return {key: value for key, value in bound.items() if key not in keys} if keys and bound else bound


def _extended(partial: _Partial, fit: Fit, local: frozenset[int]) -> _Partial:
    """Return the fits of operands plus one more fit; bindings of ``local`` keys hold in their operand only."""
    parts, seen, bound = partial
    new = _without(fit.bound, local)
    return _Partial((*parts, fit), {**seen, **new}, {**bound, **new}) if new else _Partial((*parts, fit), seen, bound)


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


def _at_operand(misfit: Misfit, binding: Binding, position: int, before: Sequence[Fit]) -> Misfit:
    """Return the misfit of an operand as a misfit of the op, with the ops fitting before the operand."""
    return misfit._replace(
        part=misfit.part or f"operand {position} of `{binding.op.name}`",
        num_matched=misfit.num_matched + len({id(binding), *op_ids(before)}),
    )


def op_ids(fits: Sequence[Fit]) -> set[int]:
    """Return the ids of the bindings matched by fits, identities excluded."""
    found: set[int] = set()
    pending = list(fits)
    while pending:
        fit = pending.pop()
        if fit.binding is not None and not fit.is_through:
            found.add(id(fit.binding))
        pending.extend(fit.parts)
    return found


def _better(first: Misfit, second: Misfit) -> Misfit:
    """Return the misfit with more ops fitting before; the first of equals."""
    return second if second.num_matched > first.num_matched else first
