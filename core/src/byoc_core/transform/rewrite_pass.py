"""Passes composed of patterns and of functions returning the replacement of a match."""

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
"""Return the replacements of the results of a match's last op, or ``None`` to leave the match; emits new ops."""

_BASE_REWRITES, _REWRITES_PER_OP = 1000, 100


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """A rule of a :class:`RewritePass`.

    Attributes:
        name: for messages.
        patterns: the groups of ops to replace.
        build: returns the replacement of a match.
    """

    name: str
    patterns: tuple[Pattern, ...]
    build: Build

    def __post_init__(self) -> None:
        if not self.patterns:
            raise PatternError(self._where, "has no pattern", hint="Pass a pattern: @pattern_rewrite(is_op(...)(...)).")
        for pattern in self.patterns:
            if not isinstance(pattern, Pattern):
                raise PatternError(self._where, "received a value other than a pattern", got=repr(pattern))
            if not root_ops(pattern):
                raise PatternError(self._where, "has a pattern without an op at the end", got=f"`{pattern}`")

    @property
    def _where(self) -> str:
        return f"rewrite `{self.name}`"

    def checked(self, match: Match, graph: RewriteGraph) -> Sequence[Value] | None:
        """Return the replacement of a match, checked.

        Raises:
            PatternError: the function returned something other than ``None`` or values of the types of the match's
                results. An exception of the function is passed on, with a note naming the rule.
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
            got, expected = (
                type_name(wrong[0] if wrong else found),
                "a value of the graph, a sequence of values, or None",
            )
            raise PatternError(self._where, "did not return values", got=got, expected=expected)
        types = ", ".join(str(value.type) for value in values if isinstance(value, Var | Constant))
        expected = ", ".join(str(result.type) for result in match.results)
        if types != expected:
            problem = f"returned values with types differing from the results of `{match.root.op.name}`"
            raise PatternError(self._where, problem, got=types or "none", expected=expected)
        return [value for value in values if isinstance(value, Var | Constant)]


@dataclass(frozen=True, init=False)
class RewritePass(Pass):
    """Replacement of matches of patterns, until nothing matches.

    :func:`pattern_rewrite` makes a pass from a function; ``RewritePass(fuse, swap)`` combines several. If several rules
    fit an op, the first rule not returning ``None`` is taken. A match is left alone if an op outside reads one of its
    intermediate values. Also left alone: functions annotated for a backend, ops claimed by a backend, bodies of
    composites, and ops different from the op of the same name in the module's registry.

    Attributes:
        rules: the rules, in the order of application.
    """

    rules: tuple[RewriteRule, ...]
    __name__: str = field(repr=False, compare=False)

    def __init__(self, *parts: RewritePass | RewriteRule, name: str = "") -> None:
        """Combine rules.

        Args:
            parts: passes of :func:`pattern_rewrite`, or rules.
            name: name of the pass in logs and dumps; by default the rules' names joined by ``+``.

        Raises:
            OptionsError: a part is something else.
        """
        rules: list[RewriteRule] = []
        for part in cast("Sequence[object]", parts):
            if not isinstance(part, RewritePass | RewriteRule):
                hint = "Decorate the function: @pattern_rewrite(pattern)."
                raise OptionsError("RewritePass", "received a value other than a rewrite", got=repr(part), hint=hint)
            rules += part.rules if isinstance(part, RewritePass) else (part,)
        object.__setattr__(self, "rules", tuple(rules))
        object.__setattr__(self, "__name__", name or "+".join(rule.name for rule in rules))

    def __call__(self, module: IRModule) -> IRModule:
        """Return the rewritten module; the same module if nothing matches.

        Raises:
            PatternError: a function returned a value of the wrong type, or matches never end: a rule emits ops replaced
                again by the same or another rule.

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
    """The number of rewrites left before the rewriting counts as endless."""

    def __init__(self, left: int) -> None:
        self._left = left

    def counted(self, rule: RewriteRule) -> Callable[[Match, RewriteGraph], Sequence[Value] | None]:
        def build(match: Match, graph: RewriteGraph) -> Sequence[Value] | None:
            values = rule.checked(match, graph)
            self._left -= values is not None
            if self._left < 0:
                hint = "Replacements must not match rules again without end: return None if nothing is gained."
                raise PatternError(f"rewrite `{rule.name}`", "finds matches without end", hint=hint)
            return values

        return build


def pattern_rewrite(*patterns: Pattern) -> Callable[[Build], RewritePass]:
    """Turn a function into a pass replacing the matches of patterns (decorator).

    The function receives a match and the graph to emit ops into. The function returns the replacements of the results
    of the match's last op: a value, or a sequence with a value of the same type for each result; or ``None`` to leave
    the match unchanged. The pass has the function's name::

        from byoc_core.pattern import is_op, wildcard
        from byoc_core.transform import Sequential, pattern_rewrite

        x, y = wildcard().named("x"), wildcard().named("y")

        @pattern_rewrite(is_op("negative")(is_op("subtract")(x, y)))
        def swap_difference(match, graph):
            return graph.emit("subtract", [match["y"], match["x"]])

        module = Sequential([swap_difference])(module)

    Ops, including ops of plugins, have the names of the module's registry.

    Args:
        patterns: the patterns to replace; at least one has to match.

    Raises:
        PatternError: no pattern is given, or a pattern ends in no op.
    """

    def decorate(build: Build) -> RewritePass:
        if not callable(build):
            raise OptionsError("pattern_rewrite", "does not decorate a function", got=repr(build))
        rewrite = RewritePass(RewriteRule(getattr(build, "__name__", type(build).__name__), patterns, build))
        object.__setattr__(rewrite, "__doc__", build.__doc__)
        return rewrite

    return decorate
