"""Handover of regions refused in codegen: each region goes to the next backend accepting all its ops."""

from __future__ import annotations

from byoc_core.backend import BackendHandle
from byoc_core.driver.prepare import Prepared
from byoc_core.errors import PartitionError
from byoc_core.ir import Function
from byoc_core.partitioning import Refusal
from byoc_core.partitioning.claiming.admission import new_admission
from byoc_core.pattern import Rejection, Support
from byoc_core.transform.rewrite import inline_composites

__all__ = ["RegionHandover"]


class RegionHandover:
    """A handler of refused regions, with a record of all handovers.

    Args:
        prepared: the compilation.

    Attributes:
        moved: the regions handed over, annotated for their new backend, by name.
    """

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._job = prepared.job
        self._by_hand = {name for name, f in self._job.module.functions.items() if "Codegen" in f.attrs}
        self.moved: dict[str, Function] = {}

    def __call__(self, function: Function, backend: str, refusal: Rejection) -> Function:
        """Return a refused region, annotated for the next backend accepting all its ops.

        Raises:
            CodegenError: the user annotated the function, so no other backend may take over.
            PartitionError: no other backend takes the region, or an op of the region is forced to the backend.
        """
        job, constraints = self._job, self._prepared.constraints
        names = [handle.name for handle in job.backends]
        if function.name in self._by_hand or backend not in names:
            job.codegen().refuse(job.module, function, backend, refusal)
        inlined = inline_composites(function)
        source = str(function.attrs.get("source", function.name))
        job.log.refuse_region(str(function.attrs["global_symbol"]), backend)
        for binding in inlined.bindings:
            job.log.refuse(source, binding, Refusal(backend, refusal))
            constraints.check_left(source, binding, backend, refusal)
        for handle in job.backends[names.index(backend) + 1 :]:
            if handle.name not in self._prepared.missing and self._takes(handle, inlined, source):
                self.moved[function.name] = inlined.with_attrs(Codegen=handle.name)
                return self.moved[function.name]
        problem = f"backend `{backend}` refused it ({refusal.text}) and no other backend takes it"
        raise PartitionError(f"region `{function.name}`", problem)

    def _takes(self, handle: BackendHandle, region: Function, source: str) -> bool:
        """Return whether a backend takes every op of a region; log the reasons if not."""
        context = handle.context(self._job.module, self._job.options(handle))
        admit = new_admission(handle, self._prepared.constraints.admission(handle.name))
        refusals = {}
        for position, binding in enumerate(region.bindings):
            answer = admit(source, binding) or handle.supports(binding, context)
            if not isinstance(answer, Support):
                refusals[position] = answer
        if not refusals:
            return True
        guilty = region.bindings[min(refusals)]
        name = guilty.results[0].name
        text = f"takes no `{guilty.op.name}` (`{name}`), which stands in the same region"
        for position, binding in enumerate(region.bindings):
            own = Refusal(handle.name, refusals[position]) if position in refusals else None
            mate = Refusal(handle.name, Rejection("same-region", text), ops=(name,))
            self._job.log.refuse(source, binding, own or mate)
        return False
