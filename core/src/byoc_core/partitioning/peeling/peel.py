"""The pass moving view ops out of regions at the borders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from byoc_core.backend.registry import HOST_NAME, Backends, find_registry
from byoc_core.dims import bound_symbols
from byoc_core.ir import CALL, Binding, Function, IRModule, TensorType, Var
from byoc_core.ir.sizes import cited_symbols, is_data_dependent
from byoc_core.partitioning.op_sites import walk_bodies
from byoc_core.partitioning.peeling.region import Peeled, peel_region
from byoc_core.partitioning.peeling.views import is_view
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_regions, with_bindings

__all__ = ["PeelViews"]

Keeps = Callable[[str, str], bool]


def _keep_nothing(function: str, name: str) -> bool:
    return False


@dataclass(frozen=True)
class PeelViews(Pass):
    """A pass moving view ops out of regions, at the borders, into the caller; lowering makes views of these ops.

    A host region with view ops only is opened. Out of other regions move:

    - in front of the call, the readers of a parameter, if none of the readers must stay: ops that reshape; slices and
      splits with contiguous parts; all of these and ``permute_dims`` if the backend takes strided views
      (``BackendInfo.strided``); and a ``concat`` of parameters, if its result is a result of the region, whatever else
      reads the result;
    - behind the call, the producers of results without readers in the region: ops that reshape; ``concat``, if each
      part of the result is contiguous, or a strided view writable by the backend; a ``split`` with all parts being
      results, each contiguous.

    Repeated until nothing moves; an empty region disappears. Only regions made by partition and called from one place
    are changed, and only ops with sizes known from the caller's parameters move; composites stay.

    Attributes:
        backends: plugin objects, or handles, to use under their names instead of installed plugins.
        keeps: returns whether an op stays in the region, by function and name.
        registry: the backends available by name; by default the backends installed for this process.
    """

    backends: Sequence[object] = ()
    keeps: Keeps = field(default=_keep_nothing, repr=False)
    registry: Backends | None = None

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with views in the callers; a second run changes nothing. Cost: linear.

        Raises:
            BackendNotFoundError: a region is annotated for a backend not installed.
            HookError: a backend's hook failed.
        """
        regions = _regions_called_once(module)
        if not regions:
            return module
        run = _Run(regions, self._is_strided(regions), self.keeps)
        changed = {
            name: function if "Codegen" in function.attrs else run.function(function)
            for name, function in module.functions.items()
        }
        if not run.peeled:
            return module
        functions = {name: run.peeled.get(name, function) for name, function in changed.items()}
        return module.with_functions({name: function for name, function in functions.items() if function is not None})

    def _is_strided(self, regions: Mapping[str, Function]) -> dict[str, bool]:
        find = find_registry(self.registry).lookup(self.backends)
        names = dict.fromkeys(str(region.attrs["Codegen"]) for region in regions.values())
        return {name: find(name).info().strided for name in names}


def _regions_called_once(module: IRModule) -> dict[str, Function]:
    """Return the functions made by partition and called from one place."""
    calls = Counter(str(b.attrs["callee"]) for f in module.functions.values() for b in _walk(f) if b.op is CALL)
    return {
        name: function
        for name, function in module.functions.items()
        if "Codegen" in function.attrs and "source" in function.attrs and calls[name] == 1
    }


def _walk(function: Function) -> Iterator[Binding]:
    for body in walk_bodies(function):
        yield from body.bindings


class _Run:
    def __init__(self, regions: Mapping[str, Function], strided: Mapping[str, bool], keeps: Keeps) -> None:
        self._regions = regions
        self._strided = strided
        self._keeps = keeps
        self.peeled: dict[str, Function | None] = {}

    def function(self, function: Function) -> Function:
        """Return a function with the views of the called regions; :attr:`peeled` has the remainder of each region."""
        shapes = [p.type.shape for p in function.params if isinstance(p.type, TensorType) and p.type.shape is not None]
        return self._body(function, bound_symbols(shapes))

    def _body(self, body: Function, sizes: frozenset[str]) -> Function:
        bindings: list[Binding] = []
        for binding in map_regions(body.bindings, lambda inner: self._body(inner, sizes)):
            peeled = self._peel(binding, sizes)
            bindings += [binding] if peeled is None else peeled.bindings
        return with_bindings(body, bindings)

    def _peel(self, call: Binding, sizes: frozenset[str]) -> Peeled | None:
        region = self._regions.get(str(call.attrs["callee"])) if call.op is CALL else None
        if region is None or not _is_plain(call, region):
            return None
        source, backend = str(region.attrs["source"]), str(region.attrs["Codegen"])
        leaving = {
            id(binding)
            for binding in region.bindings
            if is_view(binding)
            and cited_symbols([binding]) <= sizes
            and not self._keeps(source, binding.results[0].name)
        }
        peeled = peel_region(
            call,
            region,
            lambda binding: id(binding) in leaving,
            strided=self._strided[backend],
            views_only=backend == HOST_NAME and len(leaving) == len(region.bindings),
        )
        if peeled is not None:
            self.peeled[region.name] = peeled.region
        return peeled


def _is_plain(call: Binding, region: Function) -> bool:
    """Return whether a region is as left by partition: with the types of its call, and results made by its ops."""
    op_results = {id(result) for binding in region.bindings for result in binding.results}
    pairs = [*zip(region.params, call.operands, strict=True), *zip(region.results, call.results, strict=True)]
    return (
        all(inner.type == outer.type for inner, outer in pairs)
        and all(isinstance(result, Var) and id(result) in op_results for result in region.results)
        and len(set(map(id, region.results))) == len(region.results)
        and not any(is_data_dependent(binding) for binding in region.bindings)
    )
