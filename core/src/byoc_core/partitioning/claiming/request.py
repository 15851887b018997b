"""The request to a policy, with the means to fulfil the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from byoc_core.backend.registry import BackendHandle, Backends, find_registry
from byoc_core.errors import ByocError
from byoc_core.ir import IRModule
from byoc_core.partitioning.claiming.annotate import AnnotateSupported
from byoc_core.partitioning.claiming.answers import SupportAnswers
from byoc_core.partitioning.claiming.claim_by_hook import claim_by_hook
from byoc_core.partitioning.claiming.claim_filters import ClaimFilter, accept_all, backend_filter, join_filters
from byoc_core.partitioning.claiming.fuse import FuseOpsByPattern
from byoc_core.partitioning.log import PartitionLog
from byoc_core.partitioning.op_sites import OpKey
from byoc_core.pattern import Rejection
from byoc_core.renamed import deprecated_name, renamed_fields, renamed_parameters

__all__ = ["PartitionRequest", "contain_patterns"]


def contain_patterns(backend: BackendHandle) -> Callable[[ByocError, str], Rejection]:
    """Return the handler of errors raised by a backend's patterns: :meth:`BackendHandle.contain`, with error and op."""
    return lambda error, op: backend.contain("byoc_patterns", error, op)


@renamed_fields(admissions="claim_filters")
@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """The request to a policy.

    Attributes:
        backends: from the first to be asked to the last.
        options: each backend's options, by backend name.
        log: receives the refusals.
        claim_filters: returns, for a backend's name, the claim filter of the user's constraints. :meth:`claim` asks
            this filter by itself; a policy setting claims in another way asks :meth:`claim_filter`.
        registry: all existing backends, including backends not taking part.
        answers: the answers of backends about single ops so far, for policies with several claims; by default the
            backends are asked about every op.
        forbids_host: whether ops left on the host are an error of the build: a policy then leaves an op there only if
            no backend takes the op.
        devices: the number of the device of each op placed by the user on another device than 0, by function and name
            of the first result.
    """

    backends: Sequence[BackendHandle]
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    log: PartitionLog = field(default_factory=PartitionLog)
    claim_filters: Callable[[str], ClaimFilter] = lambda _: accept_all
    registry: Backends = field(default_factory=find_registry, repr=False)
    answers: SupportAnswers | None = field(default=None, repr=False)
    forbids_host: bool = False
    devices: Mapping[OpKey, int] = field(default_factory=dict)

    def claim_filter(self, backend: BackendHandle) -> ClaimFilter:
        """Return the condition on a backend's claims: the core's, then the user's."""
        return backend_filter(backend, self.claim_filters(backend.name))

    def admission(self, backend: BackendHandle) -> ClaimFilter:
        """Deprecated since 0.2: use :meth:`claim_filter`."""
        deprecated_name("PartitionRequest.admission", "PartitionRequest.claim_filter")
        return self.claim_filter(backend)

    @renamed_parameters(admit="claim_filter")
    def claim(self, module: IRModule, backend: BackendHandle, claim_filter: ClaimFilter = accept_all) -> IRModule:
        """Let a backend claim unclaimed ops.

        The backend's patterns go first, then single ops; a backend with the hook ``byoc_partition`` claims by the hook
        alone.

        Args:
            module: a module, possibly with claims.
            backend: one of ``backends``.
            claim_filter: further refusals of ops, beside the user's constraints.

        Returns:
            The module with composites and claims.

        Raises:
            HookError: the backend's hook failed, or did anything but claim.
            PatternError: a pattern's check raised.
        """
        user_filter = join_filters(self.claim_filters(backend.name), claim_filter)
        full_filter = backend_filter(backend, user_filter)
        options = self.options.get(backend.name, {})
        if backend.claims_by_itself:
            context = backend.context(module, options)
            try:
                return claim_by_hook(module, backend, context, full_filter, self.log)
            except ByocError as error:
                backend.contain("byoc_partition", error)  # raises, or the backend refuses all ops below
        patterns = backend.patterns()
        if patterns:
            embeds_constants = backend.info().constants == "embedded"
            fuse = FuseOpsByPattern(
                patterns,
                bind_constants=embeds_constants,
                log=self.log,
                claim_filter=full_filter,
                contain=contain_patterns(backend),
            )
            module = fuse(module)
        annotate = AnnotateSupported(backend, options, log=self.log, claim_filter=user_filter, answers=self.answers)
        return annotate(module)
