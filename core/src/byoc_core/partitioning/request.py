"""What a policy is asked to do, and the means to do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from byoc_core.backend import BackendHandle
from byoc_core.ir import IRModule
from byoc_core.partitioning.admission import Admission, admit_all, new_admission
from byoc_core.partitioning.annotate import AnnotateSupported
from byoc_core.partitioning.fuse import FuseOpsByPattern
from byoc_core.partitioning.log import PartitionLog

__all__ = ["PartitionRequest"]


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

    def claim(self, module: IRModule, backend: BackendHandle, admit: Admission = admit_all) -> IRModule:
        """Lets a backend claim what nobody has claimed yet: its patterns first, then single ops.

        Args:
            module: perhaps with claims.
            backend: one of ``backends``.
            admit: turns ops away from it.

        Returns:
            The module with composites and claims.

        Raises:
            HookError: the backend's hook failed.
            PatternError: a pattern's check raised.
        """
        patterns = backend.patterns()
        if patterns:
            embed = backend.info().constants == "embedded"
            admitted = new_admission(backend, admit)
            module = FuseOpsByPattern(patterns, bind_constants=embed, log=self.log, admit=admitted)(module)
        options = self.options.get(backend.name, {})
        return AnnotateSupported(backend, options, log=self.log, admit=admit)(module)
