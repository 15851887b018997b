"""The compile half: a few ops and one pattern, handed to the run half as a graph document."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

from byoc_core.authoring.graph import GraphCodegen, check_binding
from byoc_core.backend.hooks import (
    BackendInfo,
    CodegenResult,
    CompileContext,
    Estimate,
    Rejection,
    Support,
    hookimpl,
)
from byoc_core.ir import Binding, Function, IRModule, OpDef, OperandSpec, TensorType
from byoc_core.ops import EXACT, example
from byoc_core.pattern import CompositePattern, is_const, is_op, wildcard
from byoc_core.runtime import GraphModule
from byoc_core.transform import EliminateCommonSubexpressions, FoldConstants
from pydantic import BaseModel, Field

from fakenpu.faults import break_compile_half
from fakenpu.runtime import KERNELS, FakeEngine, fake_module

FLOATS = ("float32", "float64")
DOUBLE = OpDef(
    "fakenpu.double",
    (OperandSpec("x"),),
    infer=lambda context: (context.tensor(0),),
    flops=lambda context: context.elements(),
    kernel=lambda x: x + x,  # the reference, which stays right where the kernel that runs is broken
    rounding=EXACT,
    cases=lambda: (example((2, 3)), example((2, 3, 4, 5)), example(())),
    doc="Gives twice x.",
)


class Options(BaseModel):
    """The user's options."""

    effort: int = Field(1, ge=0, le=3, description="how hard to try")


@hookimpl
def byoc_backend_info() -> BackendInfo:
    """Introduce the backend."""
    return BackendInfo("fakenpu", dynamic_shapes=True, options=Options)


@hookimpl
def byoc_ops() -> Sequence[OpDef]:
    """Return an own op."""
    return [DOUBLE]


@hookimpl
def byoc_prepare(module: IRModule) -> IRModule:
    """Compute constant values."""
    return FoldConstants()(module)


@hookimpl
def byoc_after_partition(module: IRModule) -> IRModule:
    """Compute equal values of the own regions once."""
    own = {name: function for name, function in module.functions.items() if function.attrs.get("Codegen") == "fakenpu"}
    bare = module.with_functions({name: replace(function, attrs={}) for name, function in own.items()})
    simpler = EliminateCommonSubexpressions()(bare)
    changed = {name: replace(function, attrs=own[name].attrs) for name, function in simpler.functions.items()}
    return module.with_functions({**module.functions, **changed})


@hookimpl
def byoc_after_codegen(module: IRModule) -> IRModule:
    """Copy the own modules, free of links, as a linker would."""
    compiled = module.attrs.get("external_functions", {})
    own = {symbol for symbol, function in compiled.items() if function.attrs.get("Codegen") == "fakenpu"}
    externals = module.attrs.get("external_mods", ())
    return module.with_attrs(external_mods=tuple(copy(e) if own.issuperset(e.function_names) else e for e in externals))


@hookimpl
def byoc_patterns() -> Sequence[CompositePattern]:
    """Claim a dense layer of float32 with bias and activation as a single composite."""
    dense = is_op("nn.dense")(wildcard().has_dtype("float32").has_rank(2), is_const())
    return [CompositePattern("fakenpu.dense_relu", is_op("nn.relu")(is_op("nn.bias_add")(dense, is_const())))]


@hookimpl
def byoc_supports(binding: Binding) -> Support | Rejection:
    """Support floats of 32 and 64 bits, and arithmetic on int32."""
    if binding.op.name not in KERNELS or binding.op.name == "nn.bias_add":
        return Rejection("op", f"no kernel for `{binding.op.name}`")
    numbers = binding.operands[:1] if binding.op.name == "take" else binding.operands
    dtypes = {value.type.dtype for value in numbers if isinstance(value.type, TensorType)}
    is_arithmetic = binding.op.name in {"add", "subtract", "multiply"}
    if not dtypes <= {*FLOATS, *(["int32"] if is_arithmetic else [])}:
        return Rejection("dtype", f"no kernel for {', '.join(sorted(dtypes))}")
    return check_binding(binding) or Support()


@hookimpl
def byoc_estimate(function: Function) -> Estimate:
    """Estimate a microsecond for each op."""
    return Estimate(seconds=1e-6 * len(list(function.walk())))


@hookimpl
def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
    """Compile the functions to a graph document."""
    result = GraphCodegen().compile(functions, context, FakeEngine())
    if isinstance(result.module, GraphModule):
        result = replace(result, module=fake_module(result.module))
    return result


break_compile_half(globals())
