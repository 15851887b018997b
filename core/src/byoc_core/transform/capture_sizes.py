"""Sizes needed by bodies of control flow, passed in through parameters.

Partitioning runs the pass before merging: a region inside a body needs all sizes from values of the body. Symbols are
cited, given and learnt in the sense of :mod:`byoc_core.ir.sizes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from byoc_core.ir import IF, LOOP, Binding, Function, IRModule, Var
from byoc_core.ir.sizes import SizeSources, cited_symbols, given_symbols, learnt_symbols, type_symbols
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_functions, with_bindings
from byoc_core.transform.unique_names import defined_values

__all__ = ["CaptureSizes"]


@dataclass(frozen=True)
class CaptureSizes(Pass):
    """Values passed into bodies of ``if`` and ``loop`` for sizes needed there but not given by parameters.

    Each value is the first value of the surrounding function whose shape determines the size. A loop carries the value
    unchanged at no cost: the machine leaves such a value in place. A size not given by any value stays unchanged.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with the operands added. Cost: linear in ops and in the depth of nesting."""
        return map_functions(module, lambda function: _close(function, module.functions, _FreshNames(function)))


class _FreshNames:
    """Names for new values, distinct from all names in a function; existing values keep their names."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._used_names: set[str] = set()

    def find(self, base: str) -> str:
        """Return the base followed by a number; the first search costs one walk over the function."""
        if not self._used_names:
            self._used_names.update(var.name for var in defined_values(self._function))
        name = next(name for number in count(1) if (name := f"{base}_{number}") not in self._used_names)
        self._used_names.add(name)
        return name


def _close(function: Function, functions: Mapping[str, Function], names: _FreshNames) -> Function:
    if not any(binding.op in (IF, LOOP) for binding in function.bindings):
        return function
    size_sources = SizeSources(function.params)
    bindings: list[Binding] = []
    for binding in function.bindings:
        if binding.op in (IF, LOOP):
            binding = _with_sizes(binding, size_sources, functions, names)
            regions = tuple(_close(region, functions, names) for region in binding.regions)
            if any(new is not old for new, old in zip(regions, binding.regions, strict=True)):
                binding = replace(binding, regions=regions)
        bindings.append(binding)
        size_sources.add(binding.results)
    return with_bindings(function, bindings)


def _with_sizes(
    binding: Binding, size_sources: SizeSources, functions: Mapping[str, Function], names: _FreshNames
) -> Binding:
    values = size_sources.find({name for region in binding.regions for name in _missing(region, functions)})
    if not values:
        return binding
    regions = tuple(_with_params(region, values, names, is_loop=binding.op is LOOP) for region in binding.regions)
    carried = tuple(Var(names.find(value.name), value.type) for value in values) if binding.op is LOOP else ()
    return replace(
        binding,
        operands=(*binding.operands, *values),
        regions=regions,
        results=(*binding.results, *carried),
    )


def _missing(region: Function, functions: Mapping[str, Function]) -> set[str]:
    """Return the sizes cited by ops of a region but given neither by parameters nor by bindings of the region."""
    missing = set(cited_symbols(region.bindings))
    for param in region.params:
        missing -= given_symbols(param.type)
    param_symbols = type_symbols(region.params)
    for binding in region.bindings:
        missing -= learnt_symbols(binding, functions) - param_symbols
    return missing


def _with_params(region: Function, values: Sequence[Var], names: _FreshNames, *, is_loop: bool) -> Function:
    params = tuple(Var(names.find(value.name), value.type) for value in values)
    results = (*region.results, *params) if is_loop else region.results
    return replace(region, params=(*region.params, *params), results=results)
