"""Matches patterns against one function, from a root binding backwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from byoc_core.errors import PatternError
from byoc_core.ir import Binding, Constant, Trait, Value, Var
from byoc_core.pattern.fit import condition_misfit, kind_misfit, op_misfit
from byoc_core.pattern.index import FunctionIndex
from byoc_core.pattern.language import Alternatives, OpPattern, Pattern, ValuePattern

__all__ = ["Match", "find_matches"]


@dataclass(frozen=True, eq=False, slots=True)
class Match:
    """One way in which a pattern fits.

    Attributes:
        root: the last binding.
        bindings: all matched bindings, in function order.
        inputs: values from outside that the matched bindings read, in order of first use, each once.
        captures: values by capture name.
        index: the function they stand in.
    """

    root: Binding
    bindings: tuple[Binding, ...]
    inputs: tuple[Value, ...]
    captures: Mapping[str, Value]
    index: FunctionIndex

    def __getitem__(self, name: str) -> Value:
        """Gives the captured value.

        Raises:
            PatternError: the pattern has no such capture (or it lies in an alternative that did not match).
        """
        if name not in self.captures:
            raise PatternError("match", f"has no capture `{name}`", expected=", ".join(self.captures) or "none")
        return self.captures[name]

    def binding(self, name: str) -> Binding:
        """Gives the binding that makes the captured value.

        Raises:
            PatternError: the captured value is an input or a constant.
        """
        found = self.index.producer(self[name])
        if found is None:
            raise PatternError("match", f"capture `{name}` is not made by an op")
        return found[0]

    @property
    def leaked(self) -> tuple[Var, ...]:
        """Values made inside, other than the root's results, that something outside reads."""
        inside = {id(binding) for binding in self.bindings}
        return tuple(
            result
            for binding in self.bindings
            if binding is not self.root
            for result in binding.results
            if self.index.is_result(result) or any(id(user) not in inside for user in self.index.users(result))
        )


@dataclass(frozen=True, slots=True)
class _State:
    """What has been matched so far: values by pattern object, bindings, captures, and the values at the leaves."""

    values: Mapping[int, Value]
    bindings: Mapping[int, Binding]
    captures: Mapping[str, Value]
    leaves: tuple[Value, ...]


def find_matches(pattern: Pattern, root: Binding, index: FunctionIndex) -> Iterator[Match]:
    """Yields the ways in which a pattern fits with ``root`` as its last op, preferred ones first.

    Two ways differ in their bindings or in what they capture.

    Bindings that a backend has claimed are not matched, and a match never reads, by whatever way, a value that
    depends on a value it makes (it is convex). Leaves of the pattern are inputs: none is made inside.

    Cost: proportional to the pattern's size per way tried, whatever the size of the function.
    """
    if root.codegen is not None:
        return
    seen: set[object] = set()
    for result in root.results:
        for state in _match(pattern, result, index, _State({}, {}, {}, ())):
            if id(root) not in state.bindings or _has_inner_leaf(state, index):
                continue
            key = (frozenset(state.bindings), tuple((name, id(value)) for name, value in state.captures.items()))
            match = _to_match(root, state, index)
            if key not in seen and _is_convex(match):
                seen.add(key)
                yield match


def _match(pattern: Pattern, value: Value, index: FunctionIndex, state: _State) -> Iterator[_State]:
    bound = state.values.get(id(pattern))
    if bound is not None:
        if bound is value or (isinstance(bound, Constant) and bound == value):
            yield state
        return
    if condition_misfit(pattern, value, index) is not None:
        return
    captures = state.captures if pattern.name is None else {**state.captures, pattern.name: value}
    state = replace(state, values={**state.values, id(pattern): value}, captures=captures)
    if isinstance(pattern, Alternatives):
        for choice in pattern.choices:
            yield from _match(choice, value, index, state)
    elif isinstance(pattern, OpPattern):
        yield from _match_op(pattern, value, index, state)
    elif isinstance(pattern, ValuePattern):
        if kind_misfit(pattern, value, index) is None:
            yield replace(state, leaves=(*state.leaves, value))
    else:
        raise PatternError("pattern", "is of a kind that the matcher does not know", got=type(pattern).__name__)


def _match_op(pattern: OpPattern, value: Value, index: FunctionIndex, state: _State) -> Iterator[_State]:
    found = index.producer(value)
    if found is None:
        return
    binding, result_index = found
    if binding.op.name not in pattern.ops or op_misfit(pattern, binding, result_index) is not None:
        return
    state = replace(state, bindings={**state.bindings, id(binding): binding})
    if pattern.operands is None:
        yield state
        return
    yield from _match_operands(pattern.operands, binding.operands, index, state)
    if len(binding.operands) == 2 and binding.op.has_trait(Trait.COMMUTATIVE):
        yield from _match_operands(pattern.operands, binding.operands[::-1], index, state)


def _match_operands(
    patterns: tuple[Pattern, ...], values: tuple[Value, ...], index: FunctionIndex, state: _State
) -> Iterator[_State]:
    if not patterns:
        yield state
        return
    for after in _match(patterns[0], values[0], index, state):
        yield from _match_operands(patterns[1:], values[1:], index, after)


def _has_inner_leaf(state: _State, index: FunctionIndex) -> bool:
    """Tells whether a leaf, which stands for an input, is made by a matched op (``add(y, y)`` is no bias of ``y``)."""
    return any((found := index.producer(leaf)) is not None and id(found[0]) in state.bindings for leaf in state.leaves)


def _to_match(root: Binding, state: _State, index: FunctionIndex) -> Match:
    bindings = tuple(sorted(state.bindings.values(), key=lambda binding: index.position[id(binding)]))
    made = {id(result) for binding in bindings for result in binding.results}
    inputs: dict[object, Value] = {}
    for binding in bindings:
        for operand in binding.operands:
            if id(operand) not in made:
                inputs.setdefault(operand if isinstance(operand, Constant) else id(operand), operand)
    return Match(root, bindings, tuple(inputs.values()), state.captures, index)


def _is_convex(match: Match) -> bool:
    """Tells whether no input depends on a value made inside.

    Only bindings between the first and the last matched one can lie on such a path.
    """
    index = match.index
    inside = {id(binding) for binding in match.bindings}
    first = index.position[id(match.bindings[0])]
    pending = [found[0] for value in match.inputs if (found := index.producer(value)) is not None]
    visited: set[int] = set()
    while pending:
        binding = pending.pop()
        if id(binding) in inside:
            return False
        if id(binding) in visited or index.position[id(binding)] < first:
            continue
        visited.add(id(binding))
        pending.extend(found[0] for operand in binding.operands if (found := index.producer(operand)) is not None)
    return True
