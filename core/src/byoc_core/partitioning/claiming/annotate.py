"""Claims of single ops by rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from byoc_core.backend import BackendHandle, CompileContext
from byoc_core.backend.registry import Backends, find_registry
from byoc_core.ir import STRUCTURAL_OPS, Function, IRModule
from byoc_core.partitioning.claiming.answers import SupportAnswers
from byoc_core.partitioning.claiming.claim_filters import ClaimFilter, accept_all, backend_filter
from byoc_core.partitioning.log import PartitionLog, Refusal
from byoc_core.pattern import Support
from byoc_core.renamed import renamed_fields
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_functions, map_regions, with_bindings

__all__ = ["AnnotateSupported"]


@renamed_fields(admit="claim_filter")
@dataclass(frozen=True)
class AnnotateSupported(Pass):
    """A pass claiming every unclaimed op supported by a backend.

    Attributes:
        backend: a name, a plugin object or a handle.
        options: the backend's options.
        log: receives the refusals.
        claim_filter: asked before the backend; refused ops stay unclaimed.
        registry: the backends available by name; by default the backends installed for this process.
        answers: the answers of backends so far; by default the backend is asked about every op.
    """

    backend: str | object
    options: Mapping[str, object] = field(default_factory=dict)
    log: PartitionLog | None = None
    claim_filter: ClaimFilter = accept_all
    registry: Backends | None = None
    answers: SupportAnswers | None = None

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with claims.

        Raises:
            BackendNotFoundError: no such backend.
            HookError: the backend's hook failed.

        Cost: the hook is asked once per unclaimed op, with ``answers`` once per distinct op.
        """
        handle = find_registry(self.registry).get(self.backend)
        context = handle.context(module, self.options)
        claim_filter = backend_filter(handle, self.claim_filter)

        def annotate(function: Function, source: str) -> Function:
            return self._annotate(function, source, handle, context, claim_filter)

        return map_functions(module, lambda function: annotate(function, function.name))

    def _annotate(
        self, function: Function, source: str, handle: BackendHandle, context: CompileContext, claim_filter: ClaimFilter
    ) -> Function:
        if "Codegen" in function.attrs:
            return function
        supports = handle.supports if self.answers is None else partial(self.answers.supports, handle)
        bindings = []
        inner = map_regions(
            function.bindings, lambda region: self._annotate(region, source, handle, context, claim_filter)
        )
        for binding in inner:
            if binding.codegen is None and binding.op not in STRUCTURAL_OPS:
                answer = claim_filter(source, binding) or supports(binding, context)
                if isinstance(answer, Support):
                    binding = binding.claimed_by(handle.name)
                elif self.log is not None:
                    self.log.refuse(source, binding, Refusal(handle.name, answer))
            bindings.append(binding)
        return with_bindings(function, bindings)
