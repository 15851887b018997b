"""Why a part of a pattern does not fit at a value: the failure before which most ops fitted."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from typing import NamedTuple

from byoc_core.ir import Binding, Trait, Value
from byoc_core.pattern.fit import Misfit, condition_misfit, kind_misfit, made_by, op_misfit, op_names
from byoc_core.pattern.index import FunctionIndex
from byoc_core.pattern.language import Alternatives, OpPattern, Pattern, ValuePattern
from byoc_core.pattern.plan import Plan, key_of
from byoc_core.pattern.search import Bound, Search, Way

__all__ = ["Diagnosis", "Failure", "better"]


class Failure(NamedTuple):
    """Why a part does not fit.

    Attributes:
        num_matched: how many ops fitted before.
        part: the part that failed.
        subject: what the clause is about, mostly the part.
        clause: what stands there and what was expected.
        ops: the ops at fault, by the names of their first results.
    """

    num_matched: int
    part: str
    subject: str
    clause: str
    ops: tuple[str, ...]


_Reasoning = Generator["_Reasoning", Failure, Failure]


_TOO_MANY = Misfit("fits in more ways than are looked at")


def better(first: Failure | None, second: Failure) -> Failure:
    """Gives the failure before which more ops fitted; the first of equals."""
    return second if first is None or second.num_matched > first.num_matched else first


class Diagnosis:
    """Finds why parts of one pattern do not fit."""

    def __init__(self, plan: Plan, index: FunctionIndex) -> None:
        self._plan = plan
        self._index = index
        self._search = Search(plan, index)
        self._known: dict[Hashable, Failure] = {}

    def num_ops(self, pattern: Pattern, value: Value) -> int | None:
        """Gives how many ops the preferred way has in which a part fits at a value; ``None`` where it does not."""
        ways = self._search.ways(pattern, value)
        return len(_ops(ways[0])) if ways else None

    def failure(self, pattern: Pattern, value: Value, place: str) -> Failure:
        """Gives why a part does not fit at a value.

        Args:
            pattern: a part that does not fit there.
            value: where.
            place: words for where: "operand 0 of `nn.relu`".
        """
        pending = [self._why(pattern, value, {}, place)]
        answer: Failure | None = None
        while True:
            try:
                pending.append(next(pending[-1]) if answer is None else pending[-1].send(answer))
                answer = None
            except StopIteration as stop:
                pending.pop()
                answer = stop.value
                if not pending:
                    return answer

    def _why(self, pattern: Pattern, value: Value, bound: Bound, place: str) -> _Reasoning:
        key = (id(pattern), id(value), place, *map(bound.get, self._plan.within.get(id(pattern), ())))
        if key not in self._known:
            self._known[key] = yield from self._find(pattern, value, bound, place)
        return self._known[key]

    def _find(self, pattern: Pattern, value: Value, bound: Bound, place: str) -> _Reasoning:
        if key_of(pattern) in bound:
            other = "is not the value that stands elsewhere for the same part of the pattern"
            return self._failure(value, place, Misfit(other))
        if isinstance(pattern, OpPattern):
            return (yield from self._find_op(pattern, value, bound, place))
        misfit = condition_misfit(pattern, value, self._index)
        if isinstance(pattern, ValuePattern):
            source = self._index.source(value)
            misfit = kind_misfit(pattern, source, self._index) or misfit
            misfit = misfit or condition_misfit(pattern, source, self._index)
        best = None if misfit is None else self._failure(value, place, misfit)
        for choice in pattern.choices if isinstance(pattern, Alternatives) and best is None else ():
            best = better(best, (yield self._why(choice, value, bound, place)))
        return best or self._failure(value, place, _TOO_MANY)

    def _find_op(self, pattern: OpPattern, value: Value, bound: Bound, place: str) -> _Reasoning:
        while (found := self._index.producer(value)) is None or found[0].op.name not in pattern.ops:
            identity = self._index.identity(value)
            if identity is None:
                return self._failure(
                    value, place, Misfit(f"{made_by(value, self._index)}, expected {op_names(pattern)}")
                )
            value = identity.operands[0]
        binding, result_index = found
        misfit = op_misfit(pattern, binding, result_index) or condition_misfit(pattern, value, self._index)
        if misfit is not None:
            return self._failure(value, place, misfit)
        best: Failure | None = None
        for patterns, operands in self._orders(pattern, binding):
            best = better(best, (yield self._why_operands(pattern, patterns, operands, binding, bound)))
        return best or self._failure(value, place, _TOO_MANY)

    def _orders(
        self, pattern: OpPattern, binding: Binding
    ) -> Sequence[tuple[Sequence[Pattern], Sequence[tuple[int, Value]]]]:
        """Gives what is to be matched against which operands, each with its number, for every order that is tried."""
        operands = list(enumerate(binding.operands))
        if pattern.reads is not None:
            return [((pattern.reads,), (operand,)) for operand in operands]
        patterns = pattern.operands or ()
        if pattern.rest is not None:
            patterns = (*patterns, *[pattern.rest.pattern] * (len(operands) - len(patterns)))
        orders = [(patterns, operands)]
        if len(operands) == 2 and pattern.rest is None and binding.op.has_trait(Trait.COMMUTATIVE):
            orders.append((patterns, operands[::-1]))
        return orders

    def _why_operands(
        self,
        whole: OpPattern,
        patterns: Sequence[Pattern],
        operands: Sequence[tuple[int, Value]],
        binding: Binding,
        bound: Bound,
    ) -> _Reasoning:
        """Finds the first operand that does not fit, the ones before taken in their preferred ways."""
        ops = {id(binding): binding}
        local = self._plan.local.get(id(whole), frozenset())
        for pattern, (position, operand) in zip(patterns, operands, strict=False):
            ways = self._search.ways(pattern, operand, bound)
            if not ways:
                inner = yield self._why(pattern, operand, bound, f"operand {position} of `{binding.op.name}`")
                return inner._replace(num_matched=inner.num_matched + len(ops))
            ops |= _ops(ways[0])
            bound = {**bound, **{key: target for key, target in ways[0].bound.items() if key not in local}}
        return self._failure(binding.results[0], f"`{binding.op.name}`", _TOO_MANY)

    def _failure(self, value: Value, place: str, misfit: Misfit) -> Failure:
        found = self._index.producer(value)
        ops = () if found is None else (found[0].results[0].name,)
        part = misfit.part or place
        return Failure(0, part, part, misfit.clause, ops)


def _ops(way: Way) -> dict[int, Binding]:
    """Gives the ops of a way by id, identities apart."""
    found: dict[int, Binding] = {}
    pending = [way]
    while pending:
        current = pending.pop()
        if current.binding is not None and not current.is_through:
            found[id(current.binding)] = current.binding
        pending.extend(current.parts)
    return found
