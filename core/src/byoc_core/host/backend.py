"""The backend ``host``: the core's own numpy host behind the same hooks as any other backend.

The host takes every op with a reference kernel, at the lowest priority. Falling back is therefore no special case.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring.graph import GraphCodegen, check_binding
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Status, Support, hookimpl
from byoc_core.ir.module import Binding, Function
from byoc_core.ir.structural import COMPOSITE

__all__ = ["byoc_backend_info", "byoc_codegen", "byoc_compile_status", "byoc_supports"]


@hookimpl
def byoc_backend_info() -> BackendInfo:
    """Return the name ``host``; sizes may be symbolic and may depend on the data, and values may be strided."""
    return BackendInfo("host", dynamic_shapes=True, data_dependent_sizes=True, strided=True)


@hookimpl
def byoc_compile_status() -> Status:
    """Return ``ok``: nothing is needed for compiling."""
    return Status(ok=True)


@hookimpl
def byoc_supports(binding: Binding) -> Support | Rejection:
    """Accept an op with a kernel, from the core or a plugin, on tensors of known rank."""
    if binding.op is COMPOSITE:
        inner = (byoc_supports(item) for region in binding.regions for item in region.bindings)
        return next((answer for answer in inner if isinstance(answer, Rejection)), Support())
    rejection = check_binding(binding)
    if rejection is not None:
        return rejection
    return Support()


@hookimpl
def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
    """Compile the functions into a graph module, run with numpy's kernels."""
    return GraphCodegen().compile(functions, context)
