"""The request to a policy, with the means to fulfil the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from byoc_core.backend.registry import BackendHandle, Backends, find_registry
from byoc_core.errors import ByocError
from byoc_core.ir import IRModule
from byoc_core.partitioning.claiming.admission import Admission, admit_all, join_admissions, new_admission
from byoc_core.partitioning.claiming.annotate import AnnotateSupported
from byoc_core.partitioning.claiming.claim_by_hook import claim_by_hook
from byoc_core.partitioning.claiming.fuse import FuseOpsByPattern
from byoc_core.partitioning.log import PartitionLog
from byoc_core.pattern import Rejection

__all__ = ["PartitionRequest", "contain_patterns"]


def contain_patterns(backend: BackendHandle) -> Callable[[ByocError, str], Rejection]:
    """Return the handler of errors raised by a backend's patterns: :meth:`BackendHandle.contain`, with error and op."""
    return lambda error, op: backend.contain("byoc_patterns", error, op)


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """The request to a policy.

    Attributes:
        backends: from the first to be asked to the last.
        options: each backend's options, by backend name.
        log: receives the refusals.
        admissions: returns, for a backend's name, the admission by the user's constraints. :meth:`claim` asks this
            admission by itself; a policy setting claims in another way asks :meth:`admission`.
        registry: all existing backends, including backends not taking part.
    """

    backends: Sequence[BackendHandle]
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    log: PartitionLog = field(default_factory=PartitionLog)
    admissions: Callable[[str], Admission] = lambda _: admit_all
    registry: Backends = field(default_factory=find_registry, repr=False)

    def admission(self, backend: BackendHandle) -> Admission:
        """Return the condition on a backend's claims: the core's, then the user's."""
        return new_admission(backend, self.admissions(backend.name))

    def claim(self, module: IRModule, backend: BackendHandle, admit: Admission = admit_all) -> IRModule:
        """Let a backend claim unclaimed ops.

        The backend's patterns go first, then single ops; a backend with the hook ``byoc_partition`` claims by the hook
        alone.

        Args:
            module: a module, possibly with claims.
            backend: one of ``backends``.
            admit: further refusals of ops, beside the user's constraints.

        Returns:
            The module with composites and claims.

        Raises:
            HookError: the backend's hook failed, or did anything but claim.
            PatternError: a pattern's check raised.
        """
        wished = join_admissions(self.admissions(backend.name), admit)
        admitted = new_admission(backend, wished)
        options = self.options.get(backend.name, {})
        if backend.claims_by_itself:
            context = backend.context(module, options)
            try:
                return claim_by_hook(module, backend, context, admitted, self.log)
            except ByocError as error:
                backend.contain("byoc_partition", error)  # raises, or the backend refuses all ops below
        patterns = backend.patterns()
        if patterns:
            embed = backend.info().constants == "embedded"
            fuse = FuseOpsByPattern(
                patterns, bind_constants=embed, log=self.log, admit=admitted, contain=contain_patterns(backend)
            )
            module = fuse(module)
        return AnnotateSupported(backend, options, log=self.log, admit=wished)(module)
