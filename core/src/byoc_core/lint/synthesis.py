"""Makes a function that one reading of a pattern fits: operands that the type rules take, found by a bounded search.

The canonical cases of the ops say what an op is commonly given. Where an operand is made by another op of the pattern,
the case says what that op should give, and the sizes that it really gives replace those of the case in the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from byoc_core.dims import Dim
from byoc_core.errors import IRTypeError
from byoc_core.ir import Binding, ConstantStore, OpDef, OpRegistry, TensorType, Type, Value, Var
from byoc_core.lint.selections import Selection, chosen, op_name
from byoc_core.ops.cases import OpCase, array_of, infer_case, op_cases
from byoc_core.pattern import Pattern
from byoc_core.pattern.language import Alternatives, OpPattern, ValuePattern

__all__ = ["Draft", "Synthesis", "fitting_attrs"]

_BUDGET = 400
_UNKNOWN_SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (2, 4, 9, 8), (2, 5, 3), (3,), ())


@dataclass(frozen=True, slots=True)
class Draft:
    """Ops on values, in order.

    Attributes:
        values: what each pattern node stands for, by its identity.
        nodes: the op nodes, each with the binding that it stands for.
        leaves: the values from outside, in order of making.
    """

    values: Mapping[int, Value]
    nodes: tuple[tuple[OpPattern, Binding], ...]
    leaves: tuple[Value, ...]

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """The ops, each once."""
        return tuple({id(binding): binding for _, binding in self.nodes}.values())


Size = Mapping[Dim, Dim]


class _BudgetSpentError(Exception):
    """Ends a search that takes too long."""


class Synthesis:
    """One search.

    Args:
        ops: where op names are looked up.
        selection: the reading of the pattern.
        dtype: the dtype that free operands have where the ops take it.
        rotation: how many of each op's cases to put at the end, so that other searches find other things.
        constants: gets the constants.
    """

    def __init__(
        self, ops: OpRegistry, selection: Selection, dtype: str, rotation: int, constants: ConstantStore
    ) -> None:
        self._ops = ops
        self._selection = selection
        self._dtype = dtype
        self._rotation = rotation
        self._constants = constants
        self._left = _BUDGET
        self._failure = (-1, "")

    @property
    def failure(self) -> str:
        """What went wrong where the search came furthest."""
        return f"the search was given up after {_BUDGET} trials" if self._left < 0 else self._failure[1]

    def solve(self, pattern: Pattern) -> Iterator[Draft]:
        """Yields drafts, most common first; the last op is the one that the pattern ends with."""
        try:
            for _, draft in self._solve(pattern, None, Draft({}, (), ())):
                yield draft
        except _BudgetSpentError:
            return

    def _fail(self, draft: Draft, text: str) -> None:
        if len(draft.nodes) > self._failure[0]:
            self._failure = (len(draft.nodes), text)

    def _solve(self, node: Pattern, hint: TensorType | None, draft: Draft) -> Iterator[tuple[Value, Draft]]:
        """Yields values that a node may stand for, of the type ``hint`` where that can be had."""
        known = draft.values.get(id(node))
        if known is not None:
            yield known, draft
            return
        if isinstance(node, Alternatives):
            found = self._solve(chosen(node, self._selection), hint, draft)
        elif isinstance(node, OpPattern):
            found = self._solve_op(node, hint, draft)
        elif isinstance(node, ValuePattern):
            found = iter([self._new_leaf(node, hint, draft)] if hint is not None else [])
        else:
            self._fail(draft, f"a pattern of the kind {type(node).__name__} is not known")
            return
        for value, after in found:
            if all(condition(value) for condition in node.conditions):
                yield value, replace(after, values={**after.values, id(node): value})
            else:
                self._fail(
                    draft, f"a condition on {self._name(node)} refuses every value tried; the last: {value.type}"
                )

    def _name(self, node: Pattern) -> str:
        while isinstance(node, Alternatives):
            node = chosen(node, self._selection)
        return f"`{op_name(node, self._selection)}`" if isinstance(node, OpPattern) else "an operand"

    def _new_leaf(self, node: ValuePattern, type_: TensorType, draft: Draft) -> tuple[Value, Draft]:
        leaf: Value
        if node.kind == "const":
            leaf = self._constants.add(array_of(type_, np.random.default_rng(len(draft.leaves))))
        else:
            leaf = Var(f"x{len(draft.leaves)}", type_)
        return leaf, replace(draft, leaves=(*draft.leaves, leaf))

    def _solve_op(self, node: OpPattern, hint: TensorType | None, draft: Draft) -> Iterator[tuple[Value, Draft]]:
        for twin, binding in draft.nodes:
            # Another result of an op that is there already: `p.result(0)` and `p.result(1)` share their operands.
            same = twin.operands is node.operands and twin.ops == node.ops and dict(twin.attrs) == dict(node.attrs)
            if same and twin.result_index != node.result_index < len(binding.results):
                yield binding.results[node.result_index], replace(draft, nodes=(*draft.nodes, (node, binding)))
        name = op_name(node, self._selection)
        op = self._ops.get(name)
        if op is None:
            self._fail(draft, f"op `{name}` is not known")
            return
        for case, hints in self._operand_hints(op, node, hint):
            try:
                attrs = fitting_attrs(op, node.attrs, case.attrs if case is not None else {})
            except IRTypeError as error:
                self._fail(draft, str(error))
                continue
            patterns = node.operands if node.operands is not None else tuple(ValuePattern() for _ in hints)
            free = [case is None or operand.dtype is None for operand in case.operands] if case is not None else []
            for values, after in self._solve_made(patterns, hints, draft):
                for operands, filled in self._fill(patterns, hints, values, free, after):
                    yield from self._bind(node, op, operands, attrs, filled)

    def _operand_hints(
        self, op: OpDef, node: OpPattern, hint: TensorType | None
    ) -> Iterator[tuple[OpCase | None, tuple[TensorType, ...]]]:
        """Yields what to try for the operands of an op, so that it gives ``hint`` if possible."""
        count = len(node.operands) if node.operands is not None else None
        cases = op_cases().get(op.name, ())
        start = self._rotation % len(cases) if cases else 0
        for case in (*cases[start:], *cases[:start]):
            for dtype in dict.fromkeys((self._dtype, case.dtype)):
                types = _with_count(case.types(dtype), count, op)
                if types is None:
                    continue
                scaled = self._scale(op, node, case, types, hint)
                yield from ((case, hints) for hints in dict.fromkeys((scaled, types)) if hints is not None)
        if not cases:
            arity = count if count is not None else len(op.operands)
            wanted = [hint] if hint is not None else []
            for type_ in (*wanted, *(TensorType(shape, self._dtype) for shape in _UNKNOWN_SHAPES)):
                yield None, (type_,) * arity

    def _scale(
        self, op: OpDef, node: OpPattern, case: OpCase, types: tuple[TensorType, ...], hint: TensorType | None
    ) -> tuple[TensorType, ...] | None:
        """Gives the operand types whose sizes are changed so that the result has those of ``hint``."""
        if hint is None:
            return None
        try:
            attrs = fitting_attrs(op, node.attrs, case.attrs)
            results = infer_case(op, [Var("x", type_) for type_ in types], attrs)
        except IRTypeError:
            return None
        result = results[min(node.result_index, len(results) - 1)]
        sizes = _size_changes([(result, hint)])
        return None if sizes is None else tuple(_resized(type_, sizes) for type_ in types)

    def _solve_made(
        self,
        patterns: Sequence[Pattern],
        hints: Sequence[TensorType],
        draft: Draft,
        values: tuple[Value | None, ...] = (),
    ) -> Iterator[tuple[tuple[Value | None, ...], Draft]]:
        """Yields values for the operands that ops make or that are known already, and ``None`` for the others."""
        place = len(values)
        if place == len(patterns):
            yield values, draft
        elif self._is_leaf(patterns[place], draft):
            yield from self._solve_made(patterns, hints, draft, (*values, None))
        else:
            changes = [(h, v.type) for h, v in zip(hints, values, strict=False) if v is not None]
            hint = _resized(hints[place], _size_changes(changes) or {})
            for value, after in self._solve(patterns[place], hint, draft):
                yield from self._solve_made(patterns, hints, after, (*values, value))

    def _is_leaf(self, node: Pattern, draft: Draft) -> bool:
        while isinstance(node, Alternatives) and id(node) not in draft.values:
            node = chosen(node, self._selection)
        return isinstance(node, ValuePattern) and id(node) not in draft.values

    def _fill(
        self,
        patterns: Sequence[Pattern],
        hints: Sequence[TensorType],
        values: Sequence[Value | None],
        free: Sequence[bool],
        draft: Draft,
    ) -> Iterator[tuple[tuple[Value, ...], Draft]]:
        """Yields all operands: those that are made, and leaves that may fit them."""
        made = [value.type for value in values if value is not None and isinstance(value.type, TensorType)]
        changes = _size_changes([(h, v.type) for h, v in zip(hints, values, strict=True) if v is not None])
        options: list[list[TensorType]] = []
        for place, value in enumerate(values):
            if value is None:
                is_free = place >= len(free) or free[place]
                options.append(_leaf_types(hints[place], changes, made, is_free=is_free))
        for types in itertools.islice(itertools.product(*options), 64):
            yield from self._make_leaves(patterns, values, types, draft)

    def _make_leaves(
        self, patterns: Sequence[Pattern], values: Sequence[Value | None], types: Sequence[TensorType], draft: Draft
    ) -> Iterator[tuple[tuple[Value, ...], Draft]]:
        remaining = iter(types)
        operands: list[Value] = []
        for pattern, value in zip(patterns, values, strict=True):
            if value is None:
                solved = next(self._solve(pattern, next(remaining), draft), None)
                if solved is None:
                    return
                value, draft = solved
            operands.append(value)
        yield tuple(operands), draft

    def _bind(
        self, node: OpPattern, op: OpDef, operands: tuple[Value, ...], attrs: Mapping[str, Any], draft: Draft
    ) -> Iterator[tuple[Value, Draft]]:
        self._left -= 1
        if self._left < 0:
            raise _BudgetSpentError
        try:
            types = infer_case(op, operands, attrs)
        except IRTypeError as error:
            self._fail(draft, str(error))
            return
        if node.result_index >= len(types):
            self._fail(draft, f"op `{op.name}` has {len(types)} results, and result {node.result_index} is asked for")
            return
        results = tuple(Var(f"v{len(draft.nodes)}_{index}", type_) for index, type_ in enumerate(types))
        binding = Binding(results, op, operands, attrs)
        yield results[node.result_index], replace(draft, nodes=(*draft.nodes, (node, binding)))


def fitting_attrs(op: OpDef, wanted: Mapping[str, Any], given: Mapping[str, object]) -> Mapping[str, Any]:
    """Gives all attributes of an op: those that a pattern wants, then those of a case, then defaults.

    Raises:
        IRTypeError: the op has no such attribute, or never holds the value that the pattern wants in that form.
    """
    normal = op.normalise_attrs({**given, **wanted})
    for name, value in wanted.items():
        if type(normal[name]) is not type(value) or normal[name] != value:
            where = f"op `{op.name}`, attribute `{name}`"
            raise IRTypeError(where, "never has the value in this form", got=repr(value), expected=repr(normal[name]))
    return normal


def _with_count(types: tuple[TensorType, ...], count: int | None, op: OpDef) -> tuple[TensorType, ...] | None:
    """Gives so many types; the last one is repeated for an op that takes any number."""
    if count is None or count == len(types):
        return types
    variadic = bool(op.operands) and op.operands[-1].variadic
    if not variadic or not types or count < len(op.operands) - 1:
        return None
    return (*types, *[types[-1]] * (count - len(types)))[:count]


def _size_changes(pairs: Sequence[tuple[Type, Type]]) -> Size | None:
    """Gives what becomes of each size where types of a case are replaced by others; ``None`` where ranks differ."""
    changes: dict[Dim, Dim] = {}
    for before, after in pairs:
        old = before.shape if isinstance(before, TensorType) else None
        new = after.shape if isinstance(after, TensorType) else None
        if old is None or new is None or len(old) != len(new):
            return None
        for was, becomes in zip(old, new, strict=True):
            changes.setdefault(was, becomes)
    return changes


def _resized(type_: TensorType, changes: Size) -> TensorType:
    return TensorType(tuple(changes.get(dim, dim) for dim in type_.shape or ()), type_.dtype)


def _leaf_types(
    hint: TensorType, changes: Size | None, made: Sequence[TensorType], *, is_free: bool
) -> list[TensorType]:
    """Gives what to try for an operand from outside, best first: as in the case, then what suits the others."""
    found = [] if changes is None else [_resized(hint, changes)]
    found.append(hint)
    for type_ in made:
        shape = type_.shape or ()
        shapes: list[tuple[Dim, ...]] = [shape, *((size,) for size in dict.fromkeys(reversed(shape))), ()]
        found += [TensorType(candidate, hint.dtype) for candidate in shapes]
    if is_free and made:
        found = [TensorType(type_.shape, made[0].dtype) for type_ in found]
    return list(dict.fromkeys(found))
