"""The second step of a compilation: a function for each region, annotated with the compiling backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.backend import BackendHandle
from byoc_core.driver.frozen import keep_frozen
from byoc_core.driver.pipeline import left_passes, named
from byoc_core.driver.prepare import Prepared
from byoc_core.driver.stages import Stage
from byoc_core.ir import IRModule
from byoc_core.partitioning import PartitionRequest, PeelViews, PlanLayouts, Policy
from byoc_core.partitioning.constraints.constraints import Constraints
from byoc_core.partitioning.layouts.plan_layouts import LayoutPlan
from byoc_core.partitioning.partition import partition_pipeline

__all__ = ["Carved", "carve", "carve_for_backends", "peel_views", "plan_layouts"]


@dataclass(frozen=True)
class Carved:
    """A compilation before codegen.

    Attributes:
        prepared: the compilation before partition.
        unpeeled: the module with all regions, including the host's; read only by the report.
        layouts: the module with values crossing borders in planned layouts.
        module: the same module after views left the regions; the input of codegen.
    """

    prepared: Prepared
    unpeeled: IRModule
    layouts: LayoutPlan
    module: IRModule


def carve(prepared: Prepared) -> Carved:
    """Return the module with a function for each region, the host's included.

    Raises:
        PartitionError: a backend does not take an op forced to it, or a policy did anything but claim.
        PassError: a pass of the user raised, or made an invalid module.
        HookError: a hook of a backend raised, and the compilation is strict.
    """
    offloaded = carve_for_backends(prepared)
    unpeeled = _partition(prepared, offloaded, [prepared.compilation.host], None, Constraints(), Stage.PARTITION_HOST)
    layouts = plan_layouts(prepared, unpeeled)
    return Carved(prepared, unpeeled, layouts, peel_views(prepared, layouts))


def carve_for_backends(prepared: Prepared) -> IRModule:
    """Return the module with a function for each region of a backend, after the passes of ``after_partition``."""
    compilation, backends = prepared.compilation, prepared.offloading
    compilation.observers.begin(Stage.PARTITION)
    with keep_frozen(prepared.module, backends):
        module = _partition(
            prepared, prepared.module, backends, compilation.request.policy, prepared.constraints, Stage.PARTITION
        )
    passes = left_passes(compilation, backends)
    return (
        compilation.observers.sequence(passes, Stage.AFTER_PARTITION, verify_input=False)(module) if passes else module
    )


def plan_layouts(prepared: Prepared, module: IRModule) -> LayoutPlan:
    """Return the module with values crossing borders of regions in layouts preferred on both sides."""
    compilation = prepared.compilation
    found: list[LayoutPlan] = []

    def run(module: IRModule) -> IRModule:
        found.append(PlanLayouts(compilation.backends, compilation.request.options, compilation.registry).plan(module))
        return found[-1].module

    compilation.observers.sequence([named(PlanLayouts.__name__, run)], Stage.LAYOUTS, verify_input=False)(module)
    return found[-1]


def peel_views(prepared: Prepared, layouts: LayoutPlan) -> IRModule:
    """Return the module with views at region borders moved to the callers.

    Views placed by the user stay, and so do the transposes of planned layouts.
    """
    compilation = prepared.compilation
    forced = prepared.constraints.forced
    transposes = {name for _, name in layouts.conversions}

    def keeps(function: str, name: str) -> bool:
        return name in transposes or (function, name) in forced

    peel = PeelViews(compilation.backends, keeps, compilation.registry)
    return compilation.observers.sequence([peel], Stage.PEEL, verify_input=False)(layouts.module)


def _partition(
    prepared: Prepared,
    module: IRModule,
    backends: Sequence[BackendHandle],
    policy: Policy | None,
    constraints: Constraints,
    stage: Stage,
) -> IRModule:
    compilation = prepared.compilation
    if not backends:
        constraints.check_forced(module, compilation.log)
        return module
    names = {handle.name for handle in backends}
    options = {name: backend_options for name, backend_options in compilation.request.options.items() if name in names}
    request = PartitionRequest(
        backends,
        options,
        compilation.log,
        registry=compilation.registry,
        forbids_host=compilation.request.forbids_host,
    )
    pipeline = partition_pipeline(request, lambda _: constraints, policy, verify_input=False)
    return compilation.observers.sequence([named(stage.value, pipeline)], verify=False)(
        module
    )  # verifies its own steps
