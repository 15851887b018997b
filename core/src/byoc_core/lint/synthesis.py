"""Synthesis of a function for a reading of a pattern: operands accepted by the type rules, found by a bounded search.

The canonical cases of the ops give common operands. If another op of the pattern makes an operand, the case gives the
desired type of the operand, and the operand's real sizes replace the sizes of the case in the other operands.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.errors import IRTypeError
from byoc_core.ir import Binding, ConstantStore, Function, OpDef, OpRegistry, TensorType, Value, Var
from byoc_core.lint.candidates import fitting_attrs, leaf_types, refined, resized, size_changes, with_count
from byoc_core.lint.selections import Selection, op_key, op_name, selected_option, walk
from byoc_core.ops.cases import OpCase, array_of, infer_case
from byoc_core.pattern import FunctionIndex, Pattern
from byoc_core.pattern.conditions import Condition, HoldsArray, Where
from byoc_core.pattern.language import Alternatives, OpPattern, ValuePattern
from byoc_core.pattern.readers import ReadBy

__all__ = ["Draft", "Synthesis"]

_BUDGET = 400
_UNKNOWN_SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (2, 16, 9, 8), (2, 5, 3), (3,), ())


@dataclass(frozen=True, slots=True)
class Draft:
    """Ops on values, in order.

    Attributes:
        values: the value for each pattern node, by the node's identity.
        op_bindings: the binding for each op node, by the key of the node.
        bindings: all ops.
        leaves: the values from outside, in order of making.
        root: the last op of the pattern.
        readers: ops behind the pattern's own, added because a condition asks for readers.
    """

    values: Mapping[int, Value]
    op_bindings: Mapping[int, Binding]
    bindings: tuple[Binding, ...]
    leaves: tuple[Value, ...]
    root: Binding | None = None
    readers: tuple[Binding, ...] = ()

    def function(self, *, is_root_result: bool = True) -> Function:
        """Return the draft as a function; the results are the results of the root and of the extra readers."""
        params = tuple(leaf for leaf in self.leaves if isinstance(leaf, Var))
        last = [self.root] if self.root is not None and is_root_result else []
        results = tuple(result for binding in (*last, *self.readers) for result in binding.results)
        return Function("main", params, self.bindings, results)


class _BudgetSpentError(Exception):
    """Ends a search that takes too long."""


class Synthesis:
    """A search for functions matched by a reading of a pattern.

    Args:
        pattern: the pattern to make an instance of.
        ops: the registry of op names.
        selection: the reading of the pattern.
        dtype: the dtype of free operands, if accepted by the ops.
        rotation: the number of each op's cases to move to the end, to let other searches find other instances.
        constants: gets the constants.
    """

    def __init__(
        self,
        pattern: Pattern,
        ops: OpRegistry,
        selection: Selection,
        dtype: str,
        rotation: int,
        constants: ConstantStore,
    ) -> None:
        self._pattern = pattern
        self._ops = ops
        self._selection = selection
        self._dtype = dtype
        self._rotation = rotation
        self._constants = constants
        self._left = _BUDGET
        self._failure = (-1, "")
        once = {id(node) for node in walk(pattern, repeated=False)}
        self._each_anew = {id(node): op_key(node) for node in walk(pattern) if id(node) not in once}

    @property
    def failure(self) -> str:
        """The cause of failure at the furthest point of the search."""
        return f"the search stopped after {_BUDGET} trials" if self._left < 0 else self._failure[1]

    def solve(self) -> Iterator[Draft]:
        """Yield drafts, most common first."""
        try:
            for value, draft in self._solve(self._pattern, None, Draft({}, {}, (), ())):
                root = next((b for b in draft.bindings if any(value is result for result in b.results)), None)
                if root is not None:
                    yield self._with_readers(replace(draft, root=root))
        except _BudgetSpentError:
            return

    def _with_readers(self, draft: Draft) -> Draft:
        """Add readers of values for conditions on readers, if the pattern's own ops do not fulfil the condition."""
        for node in walk(self._pattern, self._selection):
            for condition in node.conditions:
                value = draft.values.get(id(node))
                if value is None or not isinstance(condition, ReadBy) or self._holds(condition, value, draft):
                    continue
                reader = replace(condition.reader, reads=node)
                found = next(self._solve(reader, None, draft), None)
                if found is not None:
                    draft = replace(found[1], readers=(*draft.readers, found[1].bindings[-1]))
        return draft

    def _holds(self, condition: Condition, value: Value, draft: Draft) -> bool:
        try:
            return condition.holds(value, FunctionIndex(draft.function(is_root_result=False), self._constants))
        except Exception:
            if not isinstance(condition, Where):
                raise
            return True  # the op may refuse the value; if not, the match on the whole function raises too

    def _fail(self, draft: Draft, text: str) -> None:
        if len(draft.bindings) > self._failure[0]:
            self._failure = (len(draft.bindings), text)

    def _solve(self, node: Pattern, hint: TensorType | None, draft: Draft) -> Iterator[tuple[Value, Draft]]:
        """Yield possible values of a node, of the type ``hint`` if possible."""
        solved = draft.values.get(id(node))
        if solved is not None:
            yield solved, draft
            return
        hint = refined(hint, node.conditions, self._dtype)
        if isinstance(node, Alternatives):
            found = self._solve(selected_option(node, self._selection), hint, draft)
        elif isinstance(node, OpPattern):
            found = self._solve_op(node, hint, draft)
        elif isinstance(node, ValuePattern) and hint is not None:
            found = iter([self._new_leaf(node, hint, draft)])
        else:
            self._fail(draft, f"the search has no candidate for {node}")
            return
        for value, after in found:
            conditions = [condition for condition in node.conditions if not isinstance(condition, ReadBy)]
            if all(self._holds(condition, value, after) for condition in conditions):
                yield value, replace(after, values={**after.values, id(node): value})
            else:
                self._fail(draft, f"no candidate fits `{node}`; the first is {value.type}")

    def _new_leaf(self, node: ValuePattern, type_: TensorType, draft: Draft) -> tuple[Value, Draft]:
        leaf: Value = Var(f"x{len(draft.leaves)}", type_)
        if node.kind == "const":
            array = array_of(type_, np.random.default_rng(len(draft.leaves)))
            required = next((c.array for c in node.conditions if isinstance(c, HoldsArray)), None)
            if required is not None:
                with np.errstate(all="ignore"):
                    array = np.broadcast_to(required, required.shape or array.shape).astype(to_numpy(type_.dtype))
            leaf = self._constants.add(array)
        return leaf, replace(draft, leaves=(*draft.leaves, leaf))

    def _solve_op(self, node: OpPattern, hint: TensorType | None, draft: Draft) -> Iterator[tuple[Value, Draft]]:
        name, twin = op_name(node, self._selection), draft.op_bindings.get(op_key(node))
        if twin is not None:
            if node.result_index < len(twin.results):
                yield twin.results[node.result_index], draft
            return
        op = self._ops.get(name)
        if op is None:
            self._fail(draft, f"op `{name}` is unknown")
            return
        for case, patterns, hints in self._operand_hints(op, node, hint):
            try:
                attrs = fitting_attrs(op, node.attrs, case.attrs if case is not None else {})
            except IRTypeError as error:
                self._fail(draft, str(error))
                continue
            free = [operand.dtype is None for operand in case.operands] if case is not None else []
            hints = self._conditioned(patterns, hints)
            for values, after in self._solve_inner_operands(patterns, hints, draft):
                for operands, filled in self._fill(patterns, hints, values, free, after):
                    yield from self._bind(node, op, operands, attrs, filled)

    def _operand_hints(
        self, op: OpDef, node: OpPattern, hint: TensorType | None
    ) -> Iterator[tuple[OpCase | None, tuple[Pattern, ...], tuple[TensorType, ...]]]:
        """Yield operand patterns, and types to try for the operands; with these the op returns ``hint`` if possible."""
        cases = op.canonical_cases
        start = self._rotation % len(cases) if cases else 0
        for case in (*cases[start:], *cases[:start]):
            for patterns in _operand_patterns(node, len(case.operands)):
                for dtype in dict.fromkeys((self._dtype, case.dtype)):
                    types = with_count(case.types(dtype), len(patterns), op)
                    if types is not None:
                        tried = dict.fromkeys((self._scale(op, node, case, types, hint), types))
                        yield from ((case, patterns, hints) for hints in tried if hints is not None)
        if not cases:
            first_types = [hint] if hint is not None else []
            for type_ in (*first_types, *(TensorType(shape, self._dtype) for shape in _UNKNOWN_SHAPES)):
                for patterns in _operand_patterns(node, len(op.operands)):
                    yield None, patterns, (type_,) * len(patterns)

    def _conditioned(self, patterns: Sequence[Pattern], hints: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """Change the hints to fulfil the operands' conditions, and the sizes shared with other operands accordingly."""
        refined_hints = [refined(h, p.conditions, self._dtype) or h for p, h in zip(patterns, hints, strict=True)]
        changed = [(h, w) for h, w in zip(hints, refined_hints, strict=True) if h.shape != w.shape and h.rank == w.rank]
        sizes = size_changes(changed) or {}
        return tuple(w if h.shape != w.shape else resized(w, sizes) for h, w in zip(hints, refined_hints, strict=True))

    def _scale(
        self, op: OpDef, node: OpPattern, case: OpCase, types: tuple[TensorType, ...], hint: TensorType | None
    ) -> tuple[TensorType, ...] | None:
        """Return the operand types with sizes changed to give the result the sizes of ``hint``."""
        if hint is None:
            return None
        try:
            attrs = fitting_attrs(op, node.attrs, case.attrs)
            results = infer_case(op, [Var("x", type_) for type_ in types], attrs)
        except IRTypeError:
            return None
        result = results[min(node.result_index, len(results) - 1)]
        sizes = size_changes([(result, hint)])
        return None if sizes is None else tuple(resized(type_, sizes) for type_ in types)

    def _solve_inner_operands(
        self,
        patterns: Sequence[Pattern],
        hints: Sequence[TensorType],
        draft: Draft,
        values: tuple[Value | None, ...] = (),
    ) -> Iterator[tuple[tuple[Value | None, ...], Draft]]:
        """Yield values for the operands made by ops or already known, and ``None`` for the others."""
        position = len(values)
        if position == len(patterns):
            yield values, draft
        elif self._is_leaf(patterns[position], draft):
            yield from self._solve_inner_operands(patterns, hints, draft, (*values, None))
        else:
            changes = [(h, v.type) for h, v in zip(hints, values, strict=False) if v is not None]
            hint = resized(hints[position], size_changes(changes) or {})
            for value, after in self._solve(patterns[position], hint, draft):
                yield from self._solve_inner_operands(patterns, hints, self._without_repeated(after), (*values, value))

    def _is_leaf(self, node: Pattern, draft: Draft) -> bool:
        while isinstance(node, Alternatives) and id(node) not in draft.values:
            node = selected_option(node, self._selection)
        return isinstance(node, ValuePattern) and id(node) not in draft.values

    def _without_repeated(self, draft: Draft) -> Draft:
        """Forget the values of nodes for any number of operands: the next operand may differ."""
        if not self._each_anew:
            return draft
        values = {key: value for key, value in draft.values.items() if key not in self._each_anew}
        repeated = set(self._each_anew.values())
        return replace(
            draft, values=values, op_bindings={k: b for k, b in draft.op_bindings.items() if k not in repeated}
        )

    def _fill(
        self,
        patterns: Sequence[Pattern],
        hints: Sequence[TensorType],
        values: Sequence[Value | None],
        free: Sequence[bool],
        draft: Draft,
    ) -> Iterator[tuple[tuple[Value, ...], Draft]]:
        """Yield all operands: the made operands, and leaves likely to fit."""
        operand_types = [value.type for value in values if value is not None and isinstance(value.type, TensorType)]
        changes = size_changes([(h, v.type) for h, v in zip(hints, values, strict=True) if v is not None])
        options = [
            leaf_types(hints[position], changes, operand_types, is_free=position >= len(free) or free[position])
            for position, value in enumerate(values)
            if value is None
        ]
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
                value, draft = solved[0], self._without_repeated(solved[1])
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
            self._fail(
                draft, f"op `{op.name}` has {len(types)} results, but the pattern requires result {node.result_index}"
            )
            return
        results = tuple(Var(f"v{len(draft.bindings)}_{index}", type_) for index, type_ in enumerate(types))
        binding = Binding(results, op, operands, attrs)
        op_bindings = {**draft.op_bindings, op_key(node): binding}
        yield results[node.result_index], replace(draft, op_bindings=op_bindings, bindings=(*draft.bindings, binding))


def _operand_patterns(node: OpPattern, usual: int) -> Iterator[tuple[Pattern, ...]]:
    """Yield patterns of all operands, for an op with ``usual`` operands."""
    if node.reads is not None:
        for position in range(usual):
            yield tuple(node.reads if index == position else ValuePattern() for index in range(usual))
    elif node.operands is None:
        yield tuple(ValuePattern() for _ in range(usual))
    elif node.rest is None:
        yield node.operands
    else:
        count = max(usual - len(node.operands), node.rest.at_least)
        yield (*node.operands, *[node.rest.pattern] * count)
