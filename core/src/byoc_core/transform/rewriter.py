"""Local rewriting: rules that look backwards from one op, applied until none fits.

A rule is a function ``rule(binding, graph)``: it gives the values that replace the binding's results, or ``None``. What
it needs, it emits into the graph; patterns become rules by :func:`pattern_rule`.

Functions are walked in order, so that a rule sees operands that are rewritten already, and what a rule emits is
rewritten in turn before the walk goes on. Functions annotated for a backend, ops that a backend has claimed, bodies of
composites and ops that are not byoc's own (whatever their names) are left alone.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from byoc_core.ir import Binding, Constant, Function, IRModule, OpDef, Value, Var, infer_results, is_pure
from byoc_core.ir.sizes import learnt_symbols
from byoc_core.ops import default_ops
from byoc_core.pattern import FunctionIndex, Match, Pattern, find_matches
from byoc_core.transform.folding_budget import declared_nbytes
from byoc_core.transform.rewrite import map_functions, map_regions, with_bindings

__all__ = ["RewriteGraph", "Rule", "Rules", "is_open", "is_own", "pattern_rule", "rewrite_module"]


_BASE_NBYTES = 1 << 26


class RewriteGraph(FunctionIndex):
    """The part of a function that is rewritten already, and what a rule may ask of it.

    ``users`` and ``Match.leaked`` know this part only; :meth:`num_uses` and :meth:`is_private` know the whole function.
    """

    def __init__(self, function: Function, module: IRModule) -> None:
        super().__init__(replace(function, bindings=()), module.constants)
        self._module = module
        self._declared: int | None = None
        self._root: Binding | None = None
        self._drafts: list[Binding] = []
        self.uses: Counter[int] = Counter()
        for binding in function.bindings:
            self.uses.update(map(id, binding.operands))
        self.uses.update(map(id, function.results))

    def maker(self, value: Value, *ops: str) -> Binding | None:
        """Gives the binding that makes a value, if it is one of these ops of byoc's own and no backend claims it."""
        found = self.producer(value)
        if found is None or found[0].codegen is not None or found[0].op.name not in ops:
            return None
        return found[0] if is_own(found[0].op) else None

    def num_uses(self, value: Value) -> int:
        """Gives how often a value is read: as an operand, and as a result of the function."""
        return self.uses[id(value)]

    def is_private(self, match: Match) -> bool:
        """Tells whether nothing but the match reads what it makes, the results of its root apart."""
        inside = Counter(id(operand) for binding in match.bindings for operand in binding.operands)
        made = (result for binding in match.bindings if binding is not match.root for result in binding.results)
        return all(self.uses[id(result)] == inside[id(result)] for result in made)

    def scalar(self, value: Value) -> float | None:
        """Gives the number that a constant of one element holds; ``None`` for other values."""
        array = self.array(value)
        return float(array.astype(np.float64).item()) if array is not None and array.size == 1 else None

    def const(self, array: npt.ArrayLike) -> Constant:
        """Stores an array and gives a reference to it."""
        return self._module.constants.add(array)

    def may_add(self, nbytes: int) -> bool:
        """Return whether a rule may store a constant of so many bytes that it computes from others.

        All constants that were ever made of a module may occupy 64 MiB plus four times what it has: one weight that
        thousands of ops scale is not copied for each.
        """
        if self._declared is None:
            self._declared = declared_nbytes(self._module)
        return self._module.constants.nbytes + nbytes <= _BASE_NBYTES + 4 * self._declared

    def emit(
        self,
        op: str | OpDef,
        operands: Sequence[Value],
        attrs: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
    ) -> Var:
        """Adds an op of one result to what replaces the root.

        Args:
            op: one of the core's ops by its name, or the ``OpDef`` of any op: a plugin's, say.
            operands: what it reads.
            attrs: its attributes.
            name: name hint of its result; the root's by default.

        Raises:
            IRTypeError: operands or attributes do not fit the op.
        """
        opdef = default_ops().find(op) if isinstance(op, str) else op
        normal = opdef.normalise_attrs(attrs or {})
        (type_,) = infer_results(opdef, operands, normal)
        hint, location = ("", None) if self._root is None else (self._root.results[0].name, self._root.location)
        result = Var(name or hint, type_)
        self._drafts.append(Binding((result,), opdef, tuple(operands), normal, location=location))
        return result

    def draft(self, rule: Rule, root: Binding) -> tuple[Sequence[Value] | None, list[Binding]]:
        """Asks a rule about a binding: gives its answer, and what it emitted."""
        self._root, self._drafts = root, []
        return rule(root, self), self._drafts


Rule = Callable[[Binding, RewriteGraph], Sequence[Value] | None]
"""Gives what replaces the results of a binding, of the same types, or ``None``; must make progress."""

Rules = Mapping[str, Sequence[Rule]]
"""Rules by the name of the op that they look at; the first that fits is taken."""


def pattern_rule(pattern: Pattern, build: Callable[[Match, RewriteGraph], Value | None]) -> Rule:
    """Gives the rule that replaces what a pattern matches by what ``build`` makes of the match.

    Matches that something outside reads from the middle of are not taken.
    """

    def rule(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
        for match in find_matches(pattern, binding, graph):
            is_whole = graph.is_private(match) and all(is_own(inner.op) for inner in match.bindings)
            value = build(match, graph) if is_whole else None
            if value is not None:
                return (value,)
        return None

    return rule


def rewrite_module(module: IRModule, rules: Rules) -> IRModule:
    """Gives the module with rules applied until none fits; the same module where none does.

    Pure ops that only a replaced op read are removed with it.

    Cost: linear in ops and in rewrites for rules that look at a bounded neighbourhood; one more walk tells that
    nothing is left to do.
    """
    return map_functions(module, lambda function: _rewrite(function, module, rules) if is_open(function) else function)


def is_open(function: Function) -> bool:
    """Tells whether passes may change a function: it is not handed to a backend as it is."""
    return "Codegen" not in function.attrs


def _rewrite(function: Function, module: IRModule, rules: Rules) -> Function:
    inner = tuple(map_regions(function.bindings, lambda region: _rewrite(region, module, rules)))
    before, after = None, with_bindings(function, inner)
    if rules.keys().isdisjoint(binding.op.name for binding in inner):
        return after
    while after is not before:
        before, after = after, _Walk(after, module, rules).run()
    return after


def is_own(op: OpDef) -> bool:
    """Tells whether an op is byoc's own, whatever it is called."""
    return default_ops().get(op.name) is op


class _Walk:
    """One walk over one function."""

    def __init__(self, function: Function, module: IRModule, rules: Rules) -> None:
        self._function = function
        self._functions = module.functions
        self._rules = rules
        self._graph = RewriteGraph(function, module)
        self._mapping: dict[int, Value] = {}
        self._replaced: list[Binding] = []  # keeps the ids in `_mapping` alive
        self._dead: set[int] = set()

    def run(self) -> Function:
        kept: list[Binding] = []
        pending = list(reversed(self._function.bindings))
        while pending:
            binding = self._rewired(pending.pop())
            self._graph.add(binding)
            emitted = self._apply(binding)
            if emitted is None:
                kept.append(binding)
            else:
                pending.extend(reversed(emitted))
        if not self._replaced:
            return self._function
        bindings = tuple(binding for binding in kept if id(binding) not in self._dead)
        return replace(self._function, bindings=bindings, results=tuple(map(self._resolve, self._function.results)))

    def _resolve(self, value: Value) -> Value:
        while isinstance(value, Var) and id(value) in self._mapping:
            value = self._mapping[id(value)]
        return value

    def _rewired(self, binding: Binding) -> Binding:
        operands = tuple(map(self._resolve, binding.operands))
        same = all(map(operator.is_, operands, binding.operands))
        return binding if same else replace(binding, operands=operands)

    def _apply(self, binding: Binding) -> list[Binding] | None:
        """Gives what replaces a binding, after rewiring its readers; ``None`` where no rule fits."""
        if binding.codegen is not None or binding.op.name not in self._rules or not is_own(binding.op):
            return None
        types = [result.type for result in binding.results]
        for rule in self._rules[binding.op.name]:
            values, emitted = self._graph.draft(rule, binding)
            if values is not None and [value.type for value in values] == types:
                self._replace(binding, values, emitted)
                return emitted
        return None

    def _replace(self, binding: Binding, values: Sequence[Value], emitted: Sequence[Binding]) -> None:
        uses = self._graph.uses
        for new in emitted:
            uses.update(map(id, new.operands))
        for old, value in zip(binding.results, values, strict=True):
            uses[id(value)] += uses.pop(id(old), 0)
            self._mapping[id(old)] = value
        self._replaced.append(binding)
        self._release(binding)

    def _release(self, binding: Binding) -> None:
        """Forgets that a removed binding read its operands; removes what nothing reads any more."""
        removed = [binding]
        while removed:
            for operand in removed.pop().operands:
                self._graph.uses[id(operand)] -= 1
                found = self._graph.producer(operand)
                if found is not None and self._is_dead(found[0]) and id(found[0]) not in self._dead:
                    self._dead.add(id(found[0]))
                    removed.append(found[0])

    def _is_dead(self, binding: Binding) -> bool:
        unread = all(self._graph.uses[id(result)] <= 0 for result in binding.results)
        return unread and is_pure(binding, self._functions) and not learnt_symbols(binding, self._functions)
