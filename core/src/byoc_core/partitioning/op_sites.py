"""The place of each op of a partitioned module: the region, the composite, and the values read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from byoc_core.ir import CALL, COMPOSITE, STRUCTURAL_OPS, Binding, Constant, Function, IRModule, Value

__all__ = ["OpKey", "OpSite", "bodies_of", "members_of", "op_key", "walk_bodies", "walk_ops"]

OpKey = tuple[str, str]
"""An op of a module: the names of the original function and of the op's first result. Unique only after the pass
:class:`~byoc_core.transform.UniqueNames`, run first by partitioning.
"""


def op_key(source: str, binding: Binding) -> OpKey:
    """Return the key of an op."""
    return source, binding.results[0].name


def members_of(binding: Binding) -> tuple[Binding, ...]:
    """Return the ops of a composite; of any other binding, the binding itself."""
    return binding.regions[0].bindings if binding.op is COMPOSITE else (binding,)


@dataclass(frozen=True, slots=True)
class OpSite:
    """An op and its place.

    Attributes:
        source: the name of the op's original function in the module.
        function: the function containing the op: the region's function, or the function named ``source``.
        binding: the op.
        composite: the name of the composite containing the op, or ``None``.
        outer: the outside values for the parameters of the composite's body, by the parameter's ``id``.
    """

    source: str
    function: Function
    binding: Binding
    composite: str | None
    outer: Mapping[int, Value]

    @property
    def name(self) -> str:
        """The op's name: the name of the first result."""
        return self.binding.results[0].name

    @property
    def backend(self) -> str | None:
        """The annotated backend of the region; ``None`` outside regions."""
        backend = self.function.attrs.get("Codegen")
        return None if backend is None else str(backend)

    @property
    def region(self) -> str | None:
        """The region's global symbol; ``None`` outside regions."""
        return None if self.backend is None else str(self.function.attrs.get("global_symbol", self.function.name))

    @property
    def inputs(self) -> list[str]:
        """The names of the values read by the op, each once; constants have none."""
        values = (self.outer.get(id(operand), operand) for operand in self.binding.operands)
        return list({value.name: None for value in values if not isinstance(value, Constant)})


def walk_bodies(function: Function) -> Iterator[Function]:
    """Yield a function and the bodies of the contained control flow, at any depth; composites are left alone."""
    yield function
    for binding in function.bindings:
        for region in binding.regions if binding.op is not COMPOSITE else ():
            yield from walk_bodies(region)


def bodies_of(module: IRModule) -> Iterator[tuple[str, Function]]:
    """Yield the bodies open to partitioning, with the names of their functions; nested bodies after outer bodies."""
    for function in module.functions.values():
        if "Codegen" not in function.attrs:
            yield from ((function.name, body) for body in walk_bodies(function))


def walk_ops(module: IRModule) -> Iterator[OpSite]:
    """Yield every op of a module, including composites and bodies of control flow.

    Control flow itself, calls and composites are no ops. A region's ops come at the first call of the region; the ops
    of a function come in execution order.
    """
    regions = {name: function for name, function in module.functions.items() if "Codegen" in function.attrs}
    for function in module.functions.values():
        if "Codegen" not in function.attrs:
            yield from _walk(function, function, regions)
    for function in list(regions.values()):
        yield from _walk(function, function, {})


def _walk(function: Function, body: Function, regions: dict[str, Function]) -> Iterator[OpSite]:
    """Yield the ops of a body; remove the called regions from ``regions``."""
    source = str(function.attrs.get("source", function.name))
    for binding in body.bindings:
        if binding.op is COMPOSITE:
            inner = binding.regions[0]
            outer = {id(param): operand for param, operand in zip(inner.params, binding.operands, strict=True)}
            for part in inner.bindings:
                yield OpSite(source, function, part, str(binding.attrs["name"]), outer)
        elif binding.op not in STRUCTURAL_OPS:
            yield OpSite(source, function, binding, None, {})
        elif binding.op is CALL:
            callee = regions.pop(str(binding.attrs["callee"]), None)
            if callee is not None:
                yield from _walk(callee, callee, {})
        else:
            for region in binding.regions:
                yield from _walk(function, region, regions)
