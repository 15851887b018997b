"""Local rewriting: rules looking backwards from an op, applied until none fits.

A rule is a function ``rule(binding, graph)`` returning replacements for the binding's results, or ``None``. A rule
emits new ops into the graph; :func:`pattern_rule` turns patterns into rules.

Functions are walked in order: a rule sees operands already rewritten, and ops emitted by a rule are rewritten in turn
before the walk continues. Functions annotated for a backend, ops claimed by a backend and bodies of composites are left
alone.

The module's registry (:attr:`IRModule.ops`) defines the meaning of names: a rule for the op named N applies to the op
registered under N, from the core or from a plugin, and ``emit`` finds the same op. A different op called N is left
alone and matches no pattern.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from byoc_core.ir import Binding, Constant, Function, IRModule, OpDef, Trait, Value, Var, has_effect, infer_results
from byoc_core.ir.sizes import learnt_symbols
from byoc_core.pattern import FunctionIndex, Match, Pattern, find_matches
from byoc_core.transform.folding_budget import declared_nbytes
from byoc_core.transform.rewrite import map_functions, map_regions, with_bindings

__all__ = ["RewriteGraph", "Rule", "Rules", "is_open", "pattern_rule", "rewrite_module"]


_BASE_NBYTES = 1 << 26


class RewriteGraph(FunctionIndex):
    """The rewritten part of a function, and queries about this part for rules.

    ``users`` and ``Match.leaked`` cover this part only; :meth:`num_uses` and :meth:`is_private` cover the whole
    function.
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

    def maker(self, value: Value, *ops: str | Trait) -> Binding | None:
        """Return the unclaimed binding producing a value, if its op has any of these names or traits.

        Ops missing in the module's registry have no name here.
        """
        found = self.producer(value)
        if found is None or found[0].codegen is not None:
            return None
        op = found[0].op
        is_wanted = op.name in ops or not op.traits.isdisjoint(ops)
        return found[0] if is_wanted and self._module.knows(op) else None

    def knows(self, *ops: OpDef) -> bool:
        """Return whether the module's registry holds exactly these ops under their names."""
        return all(map(self._module.knows, ops))

    def num_uses(self, value: Value) -> int:
        """Return the number of reads of a value: as an operand, and as a result of the function."""
        return self.uses[id(value)]

    def is_private(self, match: Match) -> bool:
        """Return whether the values produced inside the match, except results of the root, have no readers outside."""
        inside = Counter(id(operand) for binding in match.bindings for operand in binding.operands)
        produced = (result for binding in match.bindings if binding is not match.root for result in binding.results)
        return all(self.uses[id(result)] == inside[id(result)] for result in produced)

    def scalar(self, value: Value) -> float | None:
        """Return the number in a constant of one element; ``None`` for other values."""
        array = self.array(value)
        return float(array.astype(np.float64).item()) if array is not None and array.size == 1 else None

    def const(self, array: npt.ArrayLike) -> Constant:
        """Store an array and return a reference to the stored array."""
        return self._module.constants.add(array)

    def may_add(self, nbytes: int) -> bool:
        """Return whether a rule may store a constant of ``nbytes`` bytes computed from other constants.

        All constants ever computed for a module may occupy 64 MiB plus four times its declared constants: a weight
        scaled by thousands of ops is not copied for each.
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
        schedule: str | None = None,
        keeps_schedule: bool = True,
    ) -> Var:
        """Add an op with a single result to the replacement of the root.

        Args:
            op: the name of an op of the module's registry, or the ``OpDef`` of any op.
            operands: the operands of the op.
            attrs: the attributes of the op.
            name: name hint of the result; the name of the root's result by default.
            schedule: the name of the schedule; by default the root's, if the root is the same op.
            keeps_schedule: whether the root's schedule is the default; else no schedule is.

        Raises:
            IRTypeError: the registry has no such op, or operands or attributes do not fit the op.
            IRError: the op has several results.
        """
        return self.bind(op, operands, attrs, name=name, schedule=schedule, keeps_schedule=keeps_schedule).result

    def bind(
        self,
        op: str | OpDef,
        operands: Sequence[Value],
        attrs: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        schedule: str | None = None,
        keeps_schedule: bool = True,
    ) -> Binding:
        """Add an op with any number of results to the replacement of the root, and return it; see also :meth:`emit`.

        Results are named after the results of the root, in order; further results after the last.
        """
        opdef = self._module.ops.find(op) if isinstance(op, str) else op
        normal = opdef.normalise_attrs(attrs or {})
        types = infer_results(opdef, operands, normal)
        hints, location = [""], None
        if self._root is not None:
            hints, location = [result.name for result in self._root.results], self._root.location
            if schedule is None and keeps_schedule and self._root.op is opdef:
                schedule = self._root.schedule  # the same op in another form
        results = tuple(Var(name or hints[min(k, len(hints) - 1)], type_) for k, type_ in enumerate(types))
        self._drafts.append(Binding(results, opdef, tuple(operands), normal, location=location, schedule=schedule))
        return self._drafts[-1]

    def draft(self, rule: Rule, root: Binding) -> tuple[Sequence[Value] | None, list[Binding]]:
        """Apply a rule to a binding; return its answer and the emitted bindings."""
        self._root, self._drafts = root, []
        return rule(root, self), self._drafts


Rule = Callable[[Binding, RewriteGraph], Sequence[Value] | None]
"""Return replacements of the same types for the results of a binding, or ``None``; must make progress."""

Rules = Mapping[str, Sequence[Rule]]
"""Rules by the name of the root op; the first rule to fit is taken."""


def pattern_rule(pattern: Pattern, build: Callable[[Match, RewriteGraph], Value | Sequence[Value] | None]) -> Rule:
    """Return the rule replacing the matches of a pattern by the result of ``build``.

    ``build`` returns the value of the only result, or a value for each. A match is not taken if an op outside reads one
    of its intermediate values.
    """

    def rule(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
        for match in find_matches(pattern, binding, graph):
            is_whole = graph.is_private(match) and graph.knows(*(inner.op for inner in match.bindings))
            found = build(match, graph) if is_whole else None
            if found is not None:
                return (found,) if isinstance(found, Var | Constant) else found
        return None

    return rule


def rewrite_module(module: IRModule, rules: Rules) -> IRModule:
    """Return the module with rules applied until none fits; the same module if nothing changed.

    Pure ops read only by a replaced op are removed together with the replaced op.

    Cost: linear in ops and in rewrites for rules looking at a bounded neighbourhood. A last walk confirms the absence
    of further matches.
    """
    return map_functions(module, lambda function: _rewrite(function, module, rules) if is_open(function) else function)


def is_open(function: Function) -> bool:
    """Return whether passes may change a function; functions handed over to a backend must stay unchanged."""
    return "Codegen" not in function.attrs


def _rewrite(function: Function, module: IRModule, rules: Rules) -> Function:
    inner = tuple(map_regions(function.bindings, lambda region: _rewrite(region, module, rules)))
    before, after = None, with_bindings(function, inner)
    if rules.keys().isdisjoint(binding.op.name for binding in inner):
        return after
    while after is not before:
        before, after = after, _Walk(after, module, rules).run()
    return after


class _Walk:
    """A single walk over a function."""

    def __init__(self, function: Function, module: IRModule, rules: Rules) -> None:
        self._function = function
        self._functions = module.functions
        self._rules = rules
        self._graph = RewriteGraph(function, module)
        self._mapping: dict[int, Value] = {}
        self._replaced: list[Binding] = []  # keeps the ids in `_mapping` alive
        self._dead: set[int] = set()

    def run(self) -> Function:
        remaining: list[Binding] = []
        pending = list(reversed(self._function.bindings))
        while pending:
            binding = self._rewired(pending.pop())
            self._graph.add(binding)
            emitted = self._apply(binding)
            if emitted is None:
                remaining.append(binding)
            else:
                pending.extend(reversed(emitted))
        if not self._replaced:
            return self._function
        bindings = tuple(binding for binding in remaining if id(binding) not in self._dead)
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
        """Return the replacement of a binding after rewiring its readers; ``None`` if no rule fits."""
        if binding.codegen is not None or binding.op.name not in self._rules or not self._graph.knows(binding.op):
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
        """Subtract the reads of a removed binding from the uses of its operands; remove dead producers."""
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
        return unread and not has_effect(binding, self._functions) and not learnt_symbols(binding, self._functions)
