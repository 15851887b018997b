"""Fusion by pattern: groups of ops computed together by a backend become composites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from byoc_core.errors import ByocError, InternalError, PatternError, type_name
from byoc_core.ir import COMPOSITE, Binding, Constant, Function, IRModule, Value, Var, binding_window
from byoc_core.ir.sizes import is_data_dependent
from byoc_core.partitioning.claiming.claim_filters import ClaimFilter, accept_all
from byoc_core.partitioning.claiming.selection import Candidate, select
from byoc_core.partitioning.log import PartitionLog, Refusal
from byoc_core.partitioning.merging.ordering import barrier_epochs, sort_groups
from byoc_core.partitioning.merging.outline import outline_claims
from byoc_core.pattern import CompositePattern, FunctionIndex, Match, Rejection, find_matches, root_ops
from byoc_core.renamed import renamed_fields
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import clone_bindings, map_functions, map_regions, remap, with_bindings

__all__ = ["FuseOpsByPattern"]


@renamed_fields(admit="claim_filter")
@dataclass(frozen=True)
class FuseOpsByPattern(Pass):
    """A pass replacing pattern matches by composites, claimed for the patterns' backends.

    Overlapping matches are chosen by one total order, :attr:`byoc_core.partitioning.claiming.selection.Candidate.rank`.

    Attributes:
        patterns: the patterns to look for.
        bind_constants: constants go into the composite's body; else constants are operands of the composite.
        annotate_codegen: each composite becomes a function annotated for ``RunCodegen``; else
            ``MergeCompositeFunctions`` makes regions of neighbours.
        log: receives the refusals.
        claim_filter: asked about every op of a match before the pattern's check; a refused op declines the match.
        contain: converts an error of a pattern's condition or check to a refusal, or raises; called with the error and
            the name of the pattern's last op. Without ``contain`` the error is raised.
    """

    patterns: Sequence[CompositePattern]
    bind_constants: bool = True
    annotate_codegen: bool = False
    log: PartitionLog | None = None
    claim_filter: ClaimFilter = accept_all
    contain: Callable[[ByocError, str], Rejection] | None = None

    def __post_init__(self) -> None:
        patterns: Sequence[object] = self.patterns
        for index, pattern in enumerate(patterns):
            if not isinstance(pattern, CompositePattern):
                name = pattern[0] if isinstance(pattern, tuple) and len(pattern) >= 2 else None
                hint = f"Write `CompositePattern({name!r}, pattern, check)`." if isinstance(name, str) else None
                raise PatternError(
                    f"pattern {index}",
                    "is not a composite pattern",
                    got=type_name(pattern),
                    expected="CompositePattern",
                    hint=hint,
                )

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with composites.

        Raises:
            PatternError: a condition or the check of a pattern raised, or a check returned something else than a
                ``Rejection`` or ``None``, and :attr:`contain` does not convert the error to a refusal.

        Cost: per op, the patterns with this op at the end; then
        :func:`byoc_core.partitioning.claiming.selection.select`.
        """
        fuser = _Fuser(self, module)
        fused = map_functions(module, lambda function: fuser.fuse(function, function.name))
        return outline_claims(fused, lambda binding: binding.op is COMPOSITE) if self.annotate_codegen else fused


class _Fuser:
    def __init__(self, options: FuseOpsByPattern, module: IRModule) -> None:
        self._options = options
        self._module = module
        self._by_root: dict[str, list[tuple[int, CompositePattern]]] = {}
        for order, pattern in enumerate(options.patterns):
            for op in sorted(root_ops(pattern.pattern)):
                self._by_root.setdefault(op, []).append((order, pattern))

    def fuse(self, function: Function, source: str) -> Function:
        if "Codegen" in function.attrs:
            return function
        inner = map_regions(function.bindings, lambda region: self.fuse(region, source))
        function = with_bindings(function, list(inner))
        index = FunctionIndex(function, self._module.constants)
        epochs = barrier_epochs(function, self._module.functions)
        candidates = list(self._candidates(index, epochs, source))
        if not candidates:
            return function

        def refuse(candidate: Candidate, rejection: Rejection, ops: tuple[str, ...]) -> None:
            self._refuse(candidate.pattern, candidate.match.root, source, rejection, ops)

        group_of, selected = select(index, candidates, refuse)
        ordered = sort_groups(function.bindings, group_of, epochs)
        if ordered is None:
            window = binding_window(function, None, self._module.constants)
            raise InternalError(f"function `{source}`", "the composites depend on each other in a cycle", detail=window)
        return self._rebuild(function, ordered, selected) if selected else function

    def _candidates(self, index: FunctionIndex, epochs: Sequence[int], source: str) -> Iterator[Candidate]:
        for root in index.function.bindings:
            for order, pattern in self._by_root.get(root.op.name, ()):
                limits: list[str] = []
                for number, match in enumerate(self._matches(pattern, root, index, source, limits)):
                    candidate = Candidate(
                        pattern, order, match, tuple(index.position[id(b)] for b in match.bindings), number
                    )
                    barriers = _barriers(candidate, epochs)
                    refusal = self._refusal(pattern, match, source, barriers)
                    if refusal is None:
                        yield candidate
                    else:
                        names = tuple(b.results[0].name for b in barriers if refusal.code == "barrier")
                        self._refuse(pattern, root, source, refusal, names)
                for limit in limits:
                    self._refuse(pattern, root, source, Rejection("search-limit", limit), ())

    def _matches(
        self, pattern: CompositePattern, root: Binding, index: FunctionIndex, source: str, limits: list[str]
    ) -> Iterator[Match]:
        try:
            yield from self._find_matches(pattern, root, index, limits)
        except PatternError as error:
            self._refuse(pattern, root, source, self._contain(error, root), ())

    def _find_matches(
        self, pattern: CompositePattern, root: Binding, index: FunctionIndex, limits: list[str]
    ) -> Iterator[Match]:
        matches = find_matches(pattern.pattern, root, index, limits.append)
        while True:
            try:
                match = next(matches, None)
            except (ByocError, MemoryError):
                raise
            except Exception as error:
                problem = f"a condition raised {type(error).__name__}: {error}"
                window = binding_window(index.function, root, self._module.constants)
                raise PatternError(f"pattern `{pattern.name}`", problem, detail=window) from error
            if match is None:
                return
            yield match

    def _contain(self, error: ByocError, root: Binding) -> Rejection:
        if self._options.contain is None:
            raise error
        return self._options.contain(error, root.results[0].name)

    def _refuse(
        self, pattern: CompositePattern, root: Binding, source: str, rejection: Rejection, ops: tuple[str, ...]
    ) -> None:
        if self._options.log is not None:
            self._options.log.refuse(source, root, Refusal(pattern.backend, rejection, pattern.name, ops))

    def _refusal(
        self, pattern: CompositePattern, match: Match, source: str, barriers: Sequence[Binding]
    ) -> Rejection | None:
        for binding in match.bindings:
            op_refusal = self._options.claim_filter(source, binding)
            if op_refusal is not None:
                return op_refusal
        if barriers:
            listed = ", ".join(f"`{barrier.op.name}` at `{barrier.results[0].name}`" for barrier in barriers)
            return Rejection("barrier", f"ops with effects lie between the ops of the match: {listed}")
        if match.leaked and pattern.leaked == "decline":
            names = ", ".join(f"`{value.name}`" for value in match.leaked)
            return Rejection("used-elsewhere", f"values inside the match are read outside: {names}")
        dependent = next((b for b in match.bindings if is_data_dependent(b)), None)
        if dependent is not None:
            return Rejection("data-dependent-size", f"the result sizes of `{dependent.op.name}` depend on data")
        try:
            return self._check(pattern, match)
        except PatternError as error:
            return self._contain(error, match.root)

    def _check(self, pattern: CompositePattern, match: Match) -> Rejection | None:
        where = f"pattern `{pattern.name}`"
        try:
            answer: object = pattern.check(match) if pattern.check is not None else None
        except MemoryError:
            raise
        except Exception as error:
            problem = f"the check raised {type(error).__name__}: {error}"
            raise PatternError(where, problem, detail=self._window(match)) from error
        if answer is not None and not isinstance(answer, Rejection):
            problem = "the check returned neither a Rejection nor None"
            raise PatternError(where, problem, got=repr(answer), detail=self._window(match))
        return answer

    def _window(self, match: Match) -> str:
        return binding_window(match.index.function, match.root, self._module.constants)

    def _rebuild(
        self, function: Function, ordered: Sequence[Sequence[int]], selected: Mapping[int, Candidate]
    ) -> Function:
        bindings = []
        for positions in ordered:
            candidate = selected.get(positions[0])
            bindings.append(function.bindings[positions[0]] if candidate is None else self._composite(candidate))
        return replace(function, bindings=tuple(bindings))

    def _composite(self, candidate: Candidate) -> Binding:
        """Make the composite; the results are the match's own values, and readers stay unchanged."""
        match = candidate.match
        embeds_constants = self._options.bind_constants
        inputs = [value for value in match.inputs if not (embeds_constants and isinstance(value, Constant))]
        params = [Var(value.name if isinstance(value, Var) else f"c{i}", value.type) for i, value in enumerate(inputs)]
        mapping: dict[int, Value] = {}
        lifted: dict[Constant, Value] = {}
        for value, param in zip(inputs, params, strict=True):
            if isinstance(value, Constant):
                lifted[value] = param
            else:
                mapping[id(value)] = param
        bodies = [
            replace(b, operands=tuple(lifted.get(o, o) if isinstance(o, Constant) else o for o in b.operands))
            for b in match.bindings
        ]
        inner = clone_bindings(bodies, mapping)
        results = (*match.root.results, *match.leaked)
        body_name = candidate.pattern.name.partition(".")[2]
        body = Function(body_name, tuple(params), tuple(inner), tuple(remap(r, mapping) for r in results))
        matched = "".join(f"{binding.op.name}_" for binding in match.bindings)
        attrs = COMPOSITE.normalise_attrs({"name": candidate.pattern.name, "pattern": matched})
        location = match.root.location
        return Binding(
            results, COMPOSITE, tuple(inputs), attrs, (body,), codegen=candidate.pattern.backend, location=location
        )


def _barriers(candidate: Candidate, epochs: Sequence[int]) -> list[Binding]:
    """Return the impure bindings inside a match or between its ops: nothing crosses an impure binding."""
    first, last = candidate.positions[0], candidate.positions[-1]
    if epochs[first] == epochs[last] and not epochs[first] % 2:
        return []
    bindings = candidate.match.index.function.bindings
    return [bindings[position] for position in range(first, last + 1) if epochs[position] % 2]
