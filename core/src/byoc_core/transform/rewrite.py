"""Copying and rewiring of bindings, shared by all passes moving code."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from byoc_core.ir import COMPOSITE, Binding, Function, IRModule, Value
from byoc_core.ir.cloning import clone_bindings, clone_function, remap

__all__ = [
    "clone_bindings",
    "clone_function",
    "inline_composites",
    "map_functions",
    "map_regions",
    "remap",
    "with_bindings",
]


def inline_composites(function: Function, is_wanted: Callable[[Binding], bool] = lambda _: True) -> Function:
    """Return the function with every wanted composite replaced by its body."""
    mapping: dict[int, Value] = {}
    bindings: list[Binding] = []
    for binding in function.bindings:
        operands = tuple(remap(operand, mapping) for operand in binding.operands)
        if binding.op is not COMPOSITE or not is_wanted(binding):
            bindings.append(replace(binding, operands=operands))
            continue
        body = binding.regions[0]
        inner: dict[int, Value] = {id(param): o for param, o in zip(body.params, operands, strict=True)}
        bindings.extend(clone_bindings(body.bindings, inner))
        mapping.update((id(r), remap(value, inner)) for r, value in zip(binding.results, body.results, strict=True))
    results = tuple(remap(result, mapping) for result in function.results)
    return replace(function, bindings=tuple(bindings), results=results)


def map_functions(module: IRModule, change: Callable[[Function], Function]) -> IRModule:
    """Return the module with ``change`` applied to each function; the same module if nothing changed."""
    changed = {name: change(function) for name, function in module.functions.items()}
    if all(changed[name] is function for name, function in module.functions.items()):
        return module
    return module.with_functions(changed)


def map_regions(bindings: Iterable[Binding], change: Callable[[Function], Function]) -> Iterator[Binding]:
    """Yield the bindings with ``change`` applied to their regions; unchanged bindings are yielded as the same object.

    The body of a composite is left alone: a composite is an indivisible unit.
    """
    for binding in bindings:
        if binding.op is COMPOSITE or not binding.regions:
            yield binding
            continue
        regions = tuple(change(region) for region in binding.regions)
        same = all(new is old for new, old in zip(regions, binding.regions, strict=True))
        yield binding if same else replace(binding, regions=regions)


def with_bindings(function: Function, bindings: Sequence[Binding]) -> Function:
    """Return the function with these bindings; the same function if none differs."""
    if len(bindings) == len(function.bindings) and all(map(operator.is_, bindings, function.bindings)):
        return function
    return replace(function, bindings=tuple(bindings))
