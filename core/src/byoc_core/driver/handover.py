"""Handover of regions refused in codegen: each region goes to the next backend accepting all its ops."""

from __future__ import annotations

from byoc_core.backend import BackendHandle
from byoc_core.driver.prepare import Prepared
from byoc_core.errors import PartitionError
from byoc_core.ir import Function
from byoc_core.partitioning import Refusal
from byoc_core.partitioning.claiming.claim_filters import backend_filter
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
        self._compilation = prepared.compilation
        self._by_hand = {name for name, f in self._compilation.module.functions.items() if "Codegen" in f.attrs}
        self.moved: dict[str, Function] = {}

    def __call__(self, function: Function, backend: str, refusal: Rejection) -> Function:
        """Return a refused region, annotated for the next backend accepting all its ops.

        Raises:
            CodegenError: the user annotated the function, so no other backend may take over.
            PartitionError: no other backend takes the region, or an op of the region is forced to the backend.
        """
        compilation, constraints = self._compilation, self._prepared.constraints
        names = [handle.name for handle in compilation.backends]
        if function.name in self._by_hand or backend not in names:
            compilation.codegen().refuse(compilation.module, function, backend, refusal)
        inlined = inline_composites(function)
        source = str(function.attrs.get("source", function.name))
        compilation.log.refuse_region(str(function.attrs["global_symbol"]), backend)
        for binding in inlined.bindings:
            compilation.log.refuse(source, binding, Refusal(backend, refusal))
            constraints.check_handover(source, binding, backend, refusal)
        for handle in compilation.backends[names.index(backend) + 1 :]:
            if handle.name not in self._prepared.missing and self._takes(handle, inlined, source):
                self.moved[function.name] = inlined.with_attrs(Codegen=handle.name)
                return self.moved[function.name]
        problem = f"backend `{backend}` refused the region ({refusal.text}), and no other backend takes the region"
        raise PartitionError(f"region `{function.name}`", problem)

    def _takes(self, handle: BackendHandle, region: Function, source: str) -> bool:
        """Return whether a backend takes every op of a region; log the reasons if not."""
        context = handle.context(self._compilation.module, self._compilation.options(handle))
        claim_filter = backend_filter(handle, self._prepared.constraints.claim_filter(handle.name))
        refusals = {}
        for position, binding in enumerate(region.bindings):
            answer = claim_filter(source, binding) or handle.supports(binding, context)
            if not isinstance(answer, Support):
                refusals[position] = answer
        if not refusals:
            return True
        refused = region.bindings[min(refusals)]
        name = refused.results[0].name
        text = f"refuses `{refused.op.name}` (`{name}`) in the same region"
        for position, binding in enumerate(region.bindings):
            own_refusal = Refusal(handle.name, refusals[position]) if position in refusals else None
            region_refusal = Refusal(handle.name, Rejection("same-region", text), ops=(name,))
            self._compilation.log.refuse(source, binding, own_refusal or region_refusal)
        return False
