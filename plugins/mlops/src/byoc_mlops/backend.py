"""The compile half: the ops of the package, claimed one by one and computed by their kernels, or by C.

Regions of ensembles with constant trees and of couplings become C if a compiler is present.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring.graph import GraphCodegen, check_binding
from byoc_core.backend.hooks import (
    BackendInfo,
    CodegenResult,
    CompileContext,
    Estimate,
    LoweringBuilder,
    Rejection,
    Support,
    hookimpl,
)
from byoc_core.ir import Binding, Function
from byoc_core.native.toolchain import Toolchain
from byoc_core.opset import OpDef

from byoc_mlops.coupling_lowering import can_lower_coupling, lower_coupling
from byoc_mlops.ops import OPS
from byoc_mlops.runtime import KERNELS, Engine
from byoc_mlops.tree_lowering import can_lower_trees, lower_trees, read_tables

_FLOPS_PER_SECOND = 1e11
"""The rate of trees in C, as many times the measured rate as the core's guess for the host is above numpy's rate: only
the ratio decides about the place of an op."""

_CALL_SECONDS = 3e-7


@hookimpl
def byoc_backend_info() -> BackendInfo:
    """Describe the backend."""
    return BackendInfo(name="mlops", dynamic_shapes=True, native=True)


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
def byoc_estimate(function: Function) -> Estimate | None:
    """Return the cost of trees and couplings in C; ``None`` for other ops, and without a C compiler."""
    bindings = list(function.walk())
    if not (all(map(_can_lower, bindings)) and Toolchain.status().ok):
        return None
    flops = sum(flops for binding in bindings if isinstance(flops := binding.op.flops(binding.context()), int))
    return Estimate(seconds=flops / _FLOPS_PER_SECOND, call_seconds=_CALL_SECONDS)


@hookimpl
def byoc_lower(function: Function, builder: LoweringBuilder, context: CompileContext) -> None:
    """Lower regions of constant trees and couplings to C; leave other regions to the kernels.

    Without a C compiler, all regions are left to the kernels.
    """
    if not (all(map(_can_lower, function.bindings)) and Toolchain.status().ok):
        return
    trees = [binding for binding in function.bindings if can_lower_trees(binding)]
    tables = [read_tables(binding, context.constants) for binding in trees]
    if None in tables:
        return
    following = iter(tables)
    for binding in function.bindings:
        if can_lower_coupling(binding):
            lower_coupling(binding, builder)
        elif (found := next(following)) is not None:
            lower_trees(binding, found, builder)


def _can_lower(binding: Binding) -> bool:
    return can_lower_trees(binding) or can_lower_coupling(binding)


@hookimpl
def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
    """Return the functions as graphs, run by :class:`byoc_mlops.runtime.Engine`."""
    return GraphCodegen().compile(functions, context, Engine())
