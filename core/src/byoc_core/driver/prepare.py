"""The first step of a compilation: the module ready for partition, and the available backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byoc_core.backend import BackendHandle
from byoc_core.driver.caller import warn_caller
from byoc_core.driver.job import Job
from byoc_core.driver.pipeline import prepare_passes
from byoc_core.driver.stages import Stage
from byoc_core.ir import IRModule
from byoc_core.partitioning import Refusal
from byoc_core.partitioning.constraints.constraints import Constraints
from byoc_core.pattern import Rejection

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True)
class Prepared:
    """A compilation before partition.

    Attributes:
        job: the compilation.
        module: the module after the passes before partition, with unique names.
        constraints: the user's constraints, on this module.
        missing: the backends unable to compile on this machine, with the reason; these take nothing.
    """

    job: Job
    module: IRModule
    constraints: Constraints
    missing: Mapping[str, Rejection]

    @property
    def offloading(self) -> tuple[BackendHandle, ...]:
        """The backends allowed to claim ops, without the host."""
        return tuple(handle for handle in self.job.asked if handle.name not in self.missing)


def prepare(job: Job) -> Prepared:
    """Return the module of a job after the passes before partition.

    Raises:
        VerifyError: the module breaks an IR law.
        OptionsError: a constraint names something missing, or contradicts another.
        PassError: a pass of the user raised, or made an invalid module.
        HookError: a hook of a backend raised, and the job is strict.
    """
    missing = _find_missing(job)
    if job.request.fallback != "error":
        for name, rejection in missing.items():
            warn_caller(f"backend `{name}` {rejection.text}.\nOther backends and the host take its ops.")
    job.observers.begin(Stage.PREPARE)
    able = [handle for handle in job.asked if handle.name not in missing]
    module = job.observers.sequence(prepare_passes(job, able), Stage.PREPARE)(job.module)
    names = [handle.name for handle in job.backends]
    prepared = Prepared(job, module, Constraints.resolve(job.request.partition_options, module, names), missing)
    _log_missing(prepared)
    return prepared


def _find_missing(job: Job) -> dict[str, Rejection]:
    missing = {}
    for handle in job.asked:
        status = handle.compile_status(handle.context(job.module, job.options(handle)))
        if not status.ok:
            text = ". ".join(filter(None, (f"cannot compile here: {status.reason}", status.remedy)))
            missing[handle.name] = Rejection("unavailable", text.removesuffix("."))
    return missing


def _log_missing(prepared: Prepared) -> None:
    for backend, rejection in prepared.missing.items():
        admit = prepared.constraints.admission(backend)
        for function in prepared.module.functions.values():
            for binding in function.walk():
                reason = admit(function.name, binding) or rejection
                prepared.job.log.refuse(function.name, binding, Refusal(backend, reason))
