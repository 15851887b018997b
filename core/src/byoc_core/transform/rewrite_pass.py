"""Passes made of patterns and of functions that return the replacement of a match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from byoc_core.errors import OptionsError, PatternError, type_name
from byoc_core.ir import Constant, IRModule, Value, Var
from byoc_core.pattern import Match, Pattern, root_ops
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewriter import RewriteGraph, Rule, pattern_rule, rewrite_module

__all__ = ["RewritePass", "RewriteRule", "pattern_rewrite"]

Build = Callable[[Match, RewriteGraph], Value | Sequence[Value] | None]
"""Return the replacement of the results of a match's last op, or ``None`` to leave the match; new ops are emitted."""

_BASE_REWRITES, _REWRITES_PER_OP = 1000, 100


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """One rule of a :class:`RewritePass`.

    Attributes:
        name: for messages.
        patterns: the groups of ops that it replaces.
        build: returns the replacement of a match.
    """

    name: str
    patterns: tuple[Pattern, ...]
    build: Build

    def __post_init__(self) -> None:
        if not self.patterns:
            raise PatternError(self._where, "has no pattern", hint="Give it one: @pattern_rewrite(is_op(...)(...)).")
        for pattern in self.patterns:
            if not isinstance(pattern, Pattern):
                raise PatternError(self._where, "is given something else than a pattern", got=repr(pattern))
            if not root_ops(pattern):
                raise PatternError(self._where, "has a pattern that ends in no op", got=f"`{pattern}`")

    @property
    def _where(self) -> str:
        return f"rewrite `{self.name}`"

    def checked(self, match: Match, graph: RewriteGraph) -> Sequence[Value] | None:
        """Return the replacement of a match, checked.

        Raises:
            PatternError: the function returned something else than ``None`` or values of the types of the match's
                results. An exception of the function passes, with a note that names the rule.
        """
        try:
            found: object = self.build(match, graph)
        except Exception as error:
            error.add_note(f"raised by {self._where}")
            raise
        if found is None:
            return None
        values = tuple(found) if isinstance(found, Sequence) else (found,)
        wrong = [value for value in values if not isinstance(value, Var | Constant)]
        if wrong or isinstance(found, str):
            got, expected = type_name(wrong[0] if wrong else found), "a value of the graph, a sequence of them, or None"
            raise PatternError(self._where, "returned something else than values", got=got, expected=expected)
        types = ", ".join(str(value.type) for value in values if isinstance(value, Var | Constant))
        expected = ", ".join(str(result.type) for result in match.results)
        if types != expected:
            problem = f"returned values of other types than `{match.root.op.name}` has"
            raise PatternError(self._where, problem, got=types or "none", expected=expected)
        return [value for value in values if isinstance(value, Var | Constant)]


@dataclass(frozen=True, init=False)
class RewritePass(Pass):
    """Replace what patterns match, until none matches.

    :func:`pattern_rewrite` makes it from a function; ``RewritePass(fuse, swap)`` combines several.
    Where several rules fit an op, the first that does not return ``None`` is taken. Matches that something outside
    reads from the middle of are left alone. So are functions annotated for a backend, ops that a backend has claimed,
    bodies of composites, and ops that the module's registry does not hold under their names.

    Attributes:
        rules: in the order in which they are asked.
    """

    rules: tuple[RewriteRule, ...]
    __name__: str = field(repr=False, compare=False)

    def __init__(self, *parts: RewritePass | RewriteRule, name: str = "") -> None:
        """Combine rules.

        Args:
            parts: passes of :func:`pattern_rewrite`, or rules.
            name: name of the pass in logs and dumps; by default the rules' names with ``+`` between them.

        Raises:
            OptionsError: a part is something else.
        """
        rules: list[RewriteRule] = []
        for part in cast("Sequence[object]", parts):
            if not isinstance(part, RewritePass | RewriteRule):
                hint = "Decorate the function: @pattern_rewrite(pattern)."
                raise OptionsError("RewritePass", "is given something else than rewrites", got=repr(part), hint=hint)
            rules += part.rules if isinstance(part, RewritePass) else (part,)
        object.__setattr__(self, "rules", tuple(rules))
        object.__setattr__(self, "__name__", name or "+".join(rule.name for rule in rules))

    def __call__(self, module: IRModule) -> IRModule:
        """Return the rewritten module; the same module if nothing matches.

        Raises:
            PatternError: a function returned a value of the wrong type, or there is always another match: a rule emits
                ops that this rule, or another one, replaces.

        Cost: linear in ops and rewrites.
        """
        left = _Count(_BASE_REWRITES + _REWRITES_PER_OP * sum(len(f.bindings) for f in module.functions.values()))
        table: dict[str, list[Rule]] = {}
        for rule in self.rules:
            for pattern in rule.patterns:
                found = pattern_rule(pattern, left.counted(rule))
                for op in sorted(root_ops(pattern)):
                    table.setdefault(op, []).append(found)
        return rewrite_module(module, table)


class _Count:
    """The number of rewrites that are left before they count as endless."""

    def __init__(self, left: int) -> None:
        self._left = left

    def counted(self, rule: RewriteRule) -> Callable[[Match, RewriteGraph], Sequence[Value] | None]:
        def build(match: Match, graph: RewriteGraph) -> Sequence[Value] | None:
            values = rule.checked(match, graph)
            self._left -= values is not None
            if self._left < 0:
                hint = "What a rule makes must not match a rule again and again: return None where nothing is gained."
                raise PatternError(f"rewrite `{rule.name}`", "finds matches without end", hint=hint)
            return values

        return build


def pattern_rewrite(*patterns: Pattern) -> Callable[[Build], RewritePass]:
    """Turn a function into a pass that replaces what patterns match (decorator).

    The function gets a match and the graph to emit ops into. It returns what replaces the results of the match's last
    op: a value, or a sequence of one value for each result, of the same types; or ``None`` to leave the match as it is.
    The pass has the function's name::

        from byoc_core.pattern import is_op, wildcard
        from byoc_core.transform import Sequential, pattern_rewrite

        x, y = wildcard().named("x"), wildcard().named("y")

        @pattern_rewrite(is_op("negative")(is_op("subtract")(x, y)))
        def swap_difference(match, graph):
            return graph.emit("subtract", [match["y"], match["x"]])

        module = Sequential([swap_difference])(module)

    Ops are named as the module's registry has them, those of plugins too.

    Args:
        patterns: what is replaced; one of them has to match.

    Raises:
        PatternError: no pattern is given, or one ends in no op.
    """

    def decorate(build: Build) -> RewritePass:
        if not callable(build):
            raise OptionsError("pattern_rewrite", "does not decorate a function", got=repr(build))
        made = RewritePass(RewriteRule(getattr(build, "__name__", type(build).__name__), patterns, build))
        object.__setattr__(made, "__doc__", build.__doc__)
        return made

    return decorate
