"""Who takes what: a policy turns a module into one with claims. Codegen knows nothing of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from byoc_core.backend import BackendHandle
from byoc_core.ir import IRModule
from byoc_core.partitioning.annotate import AnnotateSupported, core_refusal
from byoc_core.partitioning.fuse import FuseOpsByPattern
from byoc_core.partitioning.log import PartitionLog
from byoc_core.pattern import CompositePattern, Match, Rejection

__all__ = ["GreedyByOrder", "PartitionRequest", "Policy"]


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """What a policy is asked to do.

    Attributes:
        backends: from the first to be asked to the last.
        options: each backend's options, by backend name.
        log: gets the refusals.
    """

    backends: Sequence[BackendHandle]
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    log: PartitionLog = field(default_factory=PartitionLog)


class Policy(Protocol):
    """A policy: sets ``codegen`` on bindings, or makes claimed composites; it need not care for convexity."""

    def __call__(self, module: IRModule, request: PartitionRequest, /) -> IRModule:
        """Gives the module with claims."""


@dataclass(frozen=True)
class GreedyByOrder:
    """Lets each backend, in order, take all it can: its patterns first, then single ops."""

    def __call__(self, module: IRModule, request: PartitionRequest) -> IRModule:
        """Gives the module with claims.

        Raises:
            HookError: a backend's hook failed.
            PatternError: a pattern's check raised.
        """
        for handle in request.backends:
            patterns = [_guarded(pattern, handle) for pattern in handle.patterns()]
            options = request.options.get(handle.name, {})
            if patterns:
                module = FuseOpsByPattern(patterns, log=request.log)(module)
            module = AnnotateSupported(handle, options, log=request.log)(module)
        return module


def _guarded(pattern: CompositePattern, handle: BackendHandle) -> CompositePattern:
    """Gives the pattern with the core's own conditions checked before the backend's."""

    def check(match: Match) -> Rejection | None:
        for binding in match.bindings:
            refusal = core_refusal(binding, handle)
            if refusal is not None:
                return refusal
        return pattern.check(match) if pattern.check is not None else None

    return CompositePattern(pattern.name, pattern.pattern, check, pattern.priority)
