"""The first step of a compilation: the module ready for partition, and the available backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byoc_core.backend import BackendHandle
from byoc_core.driver.caller import warn_caller
from byoc_core.driver.compilation import Compilation
from byoc_core.driver.pipeline import prepare_passes
from byoc_core.driver.stages import Stage
from byoc_core.driver.swappable import separate_weights
from byoc_core.ir import IRModule
from byoc_core.partitioning import Refusal
from byoc_core.partitioning.constraints.constraints import Constraints
from byoc_core.pattern import Rejection
from byoc_core.transform.hoist_weights import HoistedWeights

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True)
class Prepared:
    """A compilation before partition.

    Attributes:
        compilation: the compilation.
        module: the module after the passes before partition, with unique names.
        constraints: the user's constraints, on this module.
        missing: the backends unable to compile on this machine, with the reason; these take nothing.
        weights: the swappable weights of each function with such weights, and the values computed from weights.
    """

    compilation: Compilation
    module: IRModule
    constraints: Constraints
    missing: Mapping[str, Rejection]
    weights: tuple[HoistedWeights, ...] = ()

    @property
    def offloading(self) -> tuple[BackendHandle, ...]:
        """The backends allowed to claim ops, without the host."""
        return tuple(handle for handle in self.compilation.offload_backends if handle.name not in self.missing)


def prepare(compilation: Compilation) -> Prepared:
    """Return the module of a compilation after the passes before partition.

    Raises:
        VerifyError: the module breaks an IR law.
        OptionsError: a constraint names something missing, or contradicts another.
        PassError: a pass of the user raised, or made an invalid module.
        HookError: a hook of a backend raised, and the compilation is strict.
    """
    missing = _find_missing(compilation)
    if compilation.request.fallback != "error":
        for name, rejection in missing.items():
            warn_caller(f"backend `{name}` {rejection.text}.\nOther backends and the host take its ops.")
    compilation.observers.begin(Stage.PREPARE)
    able = [handle for handle in compilation.offload_backends if handle.name not in missing]
    module = compilation.observers.sequence(prepare_passes(compilation, able), Stage.PREPARE)(compilation.module)
    module, weights = separate_weights(module, compilation.host)
    names = [handle.name for handle in compilation.backends]
    constraints = Constraints.resolve(compilation.request.partition_options, module, names)
    prepared = Prepared(compilation, module, constraints, missing, weights)
    _log_missing(prepared)
    return prepared


def _find_missing(compilation: Compilation) -> dict[str, Rejection]:
    missing = {}
    for handle in compilation.offload_backends:
        status = handle.compile_status(handle.context(compilation.module, compilation.options(handle)))
        if not status.ok:
            text = ". ".join(filter(None, (f"cannot compile here: {status.reason}", status.remedy)))
            missing[handle.name] = Rejection("unavailable", text.removesuffix("."))
    return missing


def _log_missing(prepared: Prepared) -> None:
    for backend, rejection in prepared.missing.items():
        claim_filter = prepared.constraints.claim_filter(backend)
        for function in prepared.module.functions.values():
            for binding in function.walk():
                reason = claim_filter(function.name, binding) or rejection
                prepared.compilation.log.refuse(function.name, binding, Refusal(backend, reason))
