"""Claims of single ops by rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from byoc_core.backend import BackendHandle, CompileContext, backends
from byoc_core.ir import (
    STRUCTURAL_OPS,
    Binding,
    Function,
    IRModule,
    TensorType,
    Trait,
    Type,
)
from byoc_core.ir.sizes import attribute_symbols, is_data_dependent
from byoc_core.partitioning.log import PartitionLog, Refusal
from byoc_core.pattern import Rejection, Support
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_functions, map_regions, with_bindings

__all__ = ["AnnotateSupported", "core_refusal"]


@dataclass(frozen=True)
class AnnotateSupported(Pass):
    """Claims every unclaimed op that a backend says it supports.

    Attributes:
        backend: its name, a plugin object or a handle.
        options: the backend's options.
        log: gets the refusals.
    """

    backend: str | object
    options: Mapping[str, object] = field(default_factory=dict)
    log: PartitionLog | None = None

    def __call__(self, module: IRModule) -> IRModule:
        """Gives the module with claims.

        Raises:
            BackendNotFoundError: no such backend.
            HookError: the backend's hook failed.

        Cost: the hook is asked once per unclaimed op.
        """
        handle = backends().get(self.backend)
        context = handle.context(module, self.options)
        return map_functions(module, lambda function: self._annotate(function, function.name, handle, context))

    def _annotate(self, function: Function, source: str, handle: BackendHandle, context: CompileContext) -> Function:
        if "Codegen" in function.attrs:
            return function
        bindings = []
        inner = map_regions(function.bindings, lambda region: self._annotate(region, source, handle, context))
        for binding in inner:
            if binding.codegen is None and binding.op not in STRUCTURAL_OPS:
                answer = core_refusal(binding, handle) or handle.supports(binding, context)
                if isinstance(answer, Support):
                    binding = replace(binding, codegen=handle.name)
                elif self.log is not None:
                    self.log.refuse(source, binding, Refusal(handle.name, answer))
            bindings.append(binding)
        return with_bindings(function, bindings)


def core_refusal(binding: Binding, handle: BackendHandle) -> Rejection | None:
    """Gives the reason for which the core does not even ask a backend about an op, or ``None``."""
    if not binding.op.has_trait(Trait.PURE):
        return Rejection("impure", f"`{binding.op.name}` has effects")
    types = [value.type for value in (*binding.operands, *binding.results)]
    if any(not isinstance(type_, TensorType) or type_.shape is None for type_ in types):
        return Rejection("unknown-rank", "a value is no tensor of known rank")
    if is_data_dependent(binding) and not handle.info().data_dependent_sizes:
        return Rejection("data-dependent-size", f"backend `{handle.name}` takes no sizes that only the data tells")
    is_static = not any(map(_has_symbols, types)) and not attribute_symbols(binding.attrs)
    if not is_static and not handle.info().dynamic_shapes:
        return Rejection("dynamic-shape", f"backend `{handle.name}` takes static shapes only")
    return None


def _has_symbols(type_: Type) -> bool:
    return isinstance(type_, TensorType) and bool(type_.symbols)
