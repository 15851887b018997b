"""The second step of a compilation: a function for each region, annotated with the compiling backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.backend import BackendHandle
from byoc_core.driver.frozen import keep_frozen
from byoc_core.driver.pipeline import inserted_passes, named
from byoc_core.driver.prepare import Prepared
from byoc_core.driver.stages import Stage
from byoc_core.ir import IRModule
from byoc_core.partitioning import PartitionRequest, PeelViews, Policy
from byoc_core.partitioning.constraints.constraints import Constraints
from byoc_core.partitioning.partition import partition_pipeline

__all__ = ["Carved", "carve", "carve_for_backends", "peel_views"]


@dataclass(frozen=True)
class Carved:
    """A compilation before codegen.

    Attributes:
        prepared: the compilation before partition.
        whole: the module with all regions, including the host's.
        module: the same module after views left the regions.
    """

    prepared: Prepared
    whole: IRModule
    module: IRModule


def carve(prepared: Prepared) -> Carved:
    """Return the module with a function for each region, the host's included.

    Raises:
        PartitionError: a backend does not take an op forced to it, or a policy did anything but claim.
        PassError: a pass of the user raised, or made an invalid module.
        HookError: a hook of a backend raised, and the job is strict.
    """
    offloaded = carve_for_backends(prepared)
    whole = _partition(prepared, offloaded, [prepared.job.host], None, Constraints(), Stage.PARTITION_HOST)
    return Carved(prepared, whole, peel_views(prepared, whole))


def carve_for_backends(prepared: Prepared) -> IRModule:
    """Return the module with a function for each region of a backend, after the passes of ``after_partition``."""
    job, backends = prepared.job, prepared.offloading
    job.observers.begin(Stage.PARTITION)
    with keep_frozen(prepared.module, backends):
        module = _partition(
            prepared, prepared.module, backends, job.request.policy, prepared.constraints, Stage.PARTITION
        )
    passes = inserted_passes(job, Stage.AFTER_PARTITION, backends)
    return job.observers.sequence(passes, Stage.AFTER_PARTITION, verify_input=False)(module) if passes else module


def peel_views(prepared: Prepared, module: IRModule) -> IRModule:
    """Return the module with views at region borders moved to the callers, except views placed by the user."""
    job = prepared.job
    forced = prepared.constraints.forced
    peel = PeelViews(job.backends, lambda function, name: (function, name) in forced, job.registry)
    return job.observers.sequence([peel], Stage.PEEL, verify_input=False)(module)


def _partition(
    prepared: Prepared,
    module: IRModule,
    backends: Sequence[BackendHandle],
    policy: Policy | None,
    constraints: Constraints,
    stage: Stage,
) -> IRModule:
    job = prepared.job
    if not backends:
        constraints.check_forced(module, job.log)
        return module
    names = {handle.name for handle in backends}
    options = {name: given for name, given in job.request.options.items() if name in names}
    request = PartitionRequest(backends, options, job.log, registry=job.registry)
    pipeline = partition_pipeline(request, lambda _: constraints, policy, verify_input=False)
    return job.observers.sequence([named(stage.value, pipeline)], verify=False)(module)  # verifies its own steps
