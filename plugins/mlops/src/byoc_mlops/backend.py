"""The compile half: the ops of the package, claimed one by one and computed by their kernels."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring.graph import GraphCodegen, check_binding
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Support, hookimpl
from byoc_core.ir import Binding, Function
from byoc_core.opset import OpDef

from byoc_mlops.ops import OPS
from byoc_mlops.runtime import KERNELS, Engine


@hookimpl
def byoc_backend_info() -> BackendInfo:
    """Describe the backend."""
    return BackendInfo(name="mlops", data_dependent_sizes=True, dynamic_shapes=True)


@hookimpl
def byoc_ops() -> Sequence[OpDef]:
    """Return the ops of the package."""
    return OPS


@hookimpl
def byoc_supports(binding: Binding) -> Support | Rejection:
    """Accept the ops of the package; all others are faster elsewhere."""
    if binding.op.name not in KERNELS:
        return Rejection("op", f"the package has no kernel of `{binding.op.name}`")
    return check_binding(binding) or Support()


@hookimpl
def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
    """Return the functions as graphs, run by :class:`byoc_mlops.runtime.Engine`."""
    return GraphCodegen().compile(functions, context, Engine())
