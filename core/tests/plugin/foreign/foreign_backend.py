"""The compile half of a third-party package: claims its own ops, and leaves the rest to others."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring.graph import GraphCodegen, check_binding
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Support, hookimpl
from byoc_core.ir import Binding, Function, OpDef, TensorType
from foreign_ops import OPS
from foreign_runtime import Engine


@hookimpl
def byoc_backend_info() -> BackendInfo:
    """Introduce the backend."""
    return BackendInfo("foreign", dynamic_shapes=True)


@hookimpl
def byoc_ops() -> Sequence[OpDef]:
    """Return the package's ops."""
    return OPS


@hookimpl
def byoc_supports(binding: Binding) -> Support | Rejection:
    """Take the package's ops in float32."""
    if binding.op not in OPS:
        return Rejection("op", f"no engine for `{binding.op.name}`")
    if not isinstance(binding.result.type, TensorType) or binding.result.type.dtype != "float32":
        return Rejection("dtype", "only float32")
    return check_binding(binding) or Support()


@hookimpl
def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
    """Translate functions to a graph document."""
    return GraphCodegen().compile(functions, context, Engine())
