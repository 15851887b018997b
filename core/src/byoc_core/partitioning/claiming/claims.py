"""Claims read off a module, and taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from byoc_core.ir import COMPOSITE, STRUCTURAL_OPS, Binding, Function, IRModule
from byoc_core.partitioning.op_sites import members_of, walk_bodies
from byoc_core.transform.rewrite import inline_composites, map_functions, map_regions, with_bindings

__all__ = ["Claim", "claims_of", "drop_claims", "unclaimed_ops", "without_claims"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A binding that a backend has claimed.

    Attributes:
        source: the name of the function it came from.
        binding: an op, or a composite.
        backend: who claimed it.
        region: the annotated function that it stands in; empty where it stands in none yet.
    """

    source: str
    binding: Binding
    backend: str
    region: str = ""

    @property
    def ops(self) -> tuple[Binding, ...]:
        """The op itself, or those of the composite."""
        return members_of(self.binding)


def claims_of(module: IRModule) -> Iterator[Claim]:
    """Yields all claims, those in bodies of ``if`` and ``loop`` and what stands in annotated functions included."""
    for function in module.functions.values():
        source = str(function.attrs.get("source", function.name))
        backend = function.attrs.get("Codegen")
        for binding in _bindings(function):
            if backend is not None:
                yield Claim(source, binding, str(backend), function.name)
            elif binding.codegen is not None:
                yield Claim(source, binding, binding.codegen)


def unclaimed_ops(module: IRModule) -> Iterator[tuple[str, Binding]]:
    """Yields the ops that nobody has claimed, each with the name of its function."""
    for function in module.functions.values():
        for binding in _bindings(function) if "Codegen" not in function.attrs else ():
            if binding.codegen is None and binding.op not in STRUCTURAL_OPS:
                yield function.name, binding


def _bindings(function: Function) -> Iterator[Binding]:
    return (binding for body in walk_bodies(function) for binding in body.bindings)


def without_claims(module: IRModule) -> IRModule:
    """Gives the module with no binding claimed; composites and annotated functions stay."""

    def change(function: Function) -> Function:
        if "Codegen" in function.attrs:
            return function
        inner = map_regions(function.bindings, change)
        return with_bindings(function, [b if b.codegen is None else replace(b, codegen=None) for b in inner])

    return map_functions(module, change)


def drop_claims(module: IRModule, is_dropped: Callable[[Claim], bool]) -> IRModule:
    """Gives the module without some claims; a composite is taken apart into its ops. Annotated functions stay."""

    def change(function: Function, source: str) -> Function:
        if "Codegen" in function.attrs:
            return function
        inner = map_regions(function.bindings, lambda region: change(region, source))
        bindings, loose = [], set()
        for binding in inner:
            if binding.codegen is not None and is_dropped(Claim(source, binding, binding.codegen)):
                binding = replace(binding, codegen=None)
                loose.update([id(binding)] if binding.op is COMPOSITE else [])
            bindings.append(binding)
        function = with_bindings(function, bindings)
        return inline_composites(function, lambda binding: id(binding) in loose) if loose else function

    return map_functions(module, lambda function: change(function, function.name))
