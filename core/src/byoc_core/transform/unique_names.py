"""Unique names of values, for references to ops in constraints, reports and messages.

Partitioning identifies an op by the names of the function and of the first result, so :class:`UniqueNames` runs before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from byoc_core.ir import COMPOSITE, Binding, Function, IRModule, Value, Var
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_functions, remap

__all__ = ["NamePool", "UniqueNames", "defined_values"]


@dataclass(frozen=True)
class UniqueNames(Pass):
    """Renaming of values to make each name unique in a function, nested regions included.

    The body of a composite is left alone: its ops keep their names from before the composite.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with unique names; functions already without duplicates stay unchanged. Cost: linear."""
        return map_functions(module, _renamed)


def _renamed(function: Function) -> Function:
    names = [var.name for var in defined_values(function)]
    return function if len(set(names)) == len(names) else _Renamer().function(function)


def defined_values(function: Function) -> Iterator[Var]:
    """Yield parameters and results, nested regions included.

    Bodies of composites are skipped: their values have separate names.
    """
    yield from function.params
    for binding in function.bindings:
        for region in binding.regions if binding.op is not COMPOSITE else ():
            yield from defined_values(region)
        yield from binding.results


class NamePool:
    """A pool of taken names.

    Args:
        used_names: the names taken initially.
    """

    def __init__(self, used_names: Iterable[str] = ()) -> None:
        self._used_names = set(used_names)
        self._next: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._used_names

    def fresh(self, base: str) -> str:
        """Reserve and return a name: the base, followed by a number if the base is already used.

        Cost: constant on average.
        """
        name, number = base, self._next.get(base, 1)
        while name in self._used_names:
            name = f"{base}_{number}"
            number += 1
        self._next[base] = number
        self._used_names.add(name)
        return name


class _Renamer:
    def __init__(self) -> None:
        self._names = NamePool()

    def function(self, function: Function) -> Function:
        mapping: dict[int, Value] = {}
        params = tuple(self._fresh(param, mapping) for param in function.params)
        bindings = tuple(self._binding(binding, mapping) for binding in function.bindings)
        results = tuple(remap(result, mapping) for result in function.results)
        return replace(function, params=params, bindings=bindings, results=results)

    def _binding(self, binding: Binding, mapping: dict[int, Value]) -> Binding:
        operands = tuple(remap(operand, mapping) for operand in binding.operands)
        is_kept = binding.op is COMPOSITE
        regions = binding.regions if is_kept else tuple(self.function(region) for region in binding.regions)
        results = tuple(self._fresh(result, mapping) for result in binding.results)
        return replace(binding, operands=operands, regions=regions, results=results)

    def _fresh(self, var: Var, mapping: dict[int, Value]) -> Var:
        mapping[id(var)] = fresh = Var(self._names.fresh(var.name), var.type)
        return fresh
