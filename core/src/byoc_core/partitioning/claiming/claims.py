"""Reading claims from a module, and dropping claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from byoc_core.ir import COMPOSITE, STRUCTURAL_OPS, Binding, Function, IRModule
from byoc_core.partitioning.op_sites import members_of, walk_bodies
from byoc_core.transform.rewrite import inline_composites, map_functions, map_regions, with_bindings

__all__ = ["Claim", "claims_of", "drop_claims", "unclaimed_ops", "without_claims"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A binding claimed by a backend.

    Attributes:
        source: the name of the original function.
        binding: an op, or a composite.
        backend: the claiming backend.
        region: the annotated function of the binding; empty before there is a region.
    """

    source: str
    binding: Binding
    backend: str
    region: str = ""

    @property
    def ops(self) -> tuple[Binding, ...]:
        """The op itself, or the ops of the composite."""
        return members_of(self.binding)


def claims_of(module: IRModule) -> Iterator[Claim]:
    """Yield all claims, including bodies of ``if`` and ``loop`` and the contents of annotated functions."""
    for function in module.functions.values():
        source = str(function.attrs.get("source", function.name))
        backend = function.attrs.get("Codegen")
        for binding in _bindings(function):
            if backend is not None:
                yield Claim(source, binding, str(backend), function.name)
            elif binding.codegen is not None:
                yield Claim(source, binding, binding.codegen)


def unclaimed_ops(module: IRModule) -> Iterator[tuple[str, Binding]]:
    """Yield the unclaimed ops, each with the name of the function."""
    for function in module.functions.values():
        for binding in _bindings(function) if "Codegen" not in function.attrs else ():
            if binding.codegen is None and binding.op not in STRUCTURAL_OPS:
                yield function.name, binding


def _bindings(function: Function) -> Iterator[Binding]:
    return (binding for body in walk_bodies(function) for binding in body.bindings)


def without_claims(module: IRModule) -> IRModule:
    """Return the module with no binding claimed; composites and annotated functions stay."""

    def change(function: Function) -> Function:
        if "Codegen" in function.attrs:
            return function
        inner = map_regions(function.bindings, change)
        return with_bindings(function, [b if b.codegen is None else b.claimed_by(None) for b in inner])

    return map_functions(module, change)


def drop_claims(module: IRModule, is_dropped: Callable[[Claim], bool]) -> IRModule:
    """Return the module without some claims; dropped composites are split into ops. Annotated functions stay."""

    def change(function: Function, source: str) -> Function:
        if "Codegen" in function.attrs:
            return function
        inner = map_regions(function.bindings, lambda region: change(region, source))
        bindings, dropped_ids = [], set()
        for binding in inner:
            if binding.codegen is not None and is_dropped(Claim(source, binding, binding.codegen)):
                binding = binding.claimed_by(None)
                dropped_ids.update([id(binding)] if binding.op is COMPOSITE else [])
            bindings.append(binding)
        function = with_bindings(function, bindings)
        return inline_composites(function, lambda binding: id(binding) in dropped_ids) if dropped_ids else function

    return map_functions(module, lambda function: change(function, function.name))
