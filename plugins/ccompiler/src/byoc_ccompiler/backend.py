"""The backend ``ccompiler``: regions become C, and the C a shared library.

The hooks and the code generator ask the same :func:`~byoc_ccompiler.support.reject_step`: a supported op is compiled in
any region, unless sizes are missing. Reports prepare the regions and write the kernels as code generation does, but
compile nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from byoc_core.authoring.cost_table import is_amd
from byoc_core.authoring.csource import CSourceCodegen
from byoc_core.backend.hooks import (
    AxisOrders,
    BackendInfo,
    CodegenResult,
    CompileContext,
    Estimate,
    KernelReport,
    Rejection,
    Status,
    Support,
    hookimpl,
)
from byoc_core.errors import OptionsError, ToolchainError
from byoc_core.ir import Binding, Function, cited_symbols, given_symbols, type_symbols
from byoc_core.native.toolchain import BuildOptions, Toolchain, find_toolchain
from byoc_core.pattern import CompositePattern

from byoc_ccompiler.codegen import FusedCodegen
from byoc_ccompiler.measured_costs import measured_costs
from byoc_ccompiler.options import CCompilerOptions
from byoc_ccompiler.patterns import is_supported_whole, patterns
from byoc_ccompiler.regions import preferred_orders, prepare_regions
from byoc_ccompiler.registry import FAMILIES
from byoc_ccompiler.support import reject_step
from byoc_ccompiler.vector_unit import NO_VECTORS, VectorUnit

__all__ = [
    "byoc_backend_info",
    "byoc_codegen",
    "byoc_compile_status",
    "byoc_estimate",
    "byoc_generated_kernels",
    "byoc_layouts",
    "byoc_patterns",
    "byoc_schedules",
    "byoc_supports",
]


def _options(context: CompileContext) -> CCompilerOptions:
    return context.options if isinstance(context.options, CCompilerOptions) else CCompilerOptions.model_validate({})


@hookimpl
def byoc_backend_info() -> BackendInfo:
    """Return the capabilities of the backend."""
    return BackendInfo(
        name="ccompiler",
        dynamic_shapes=True,
        native=True,
        options=CCompilerOptions,
        quantised=True,
    )


@hookimpl
def byoc_compile_status() -> Status:
    """Return whether there is a C compiler, and its version."""
    status = Toolchain.status()
    if not status.ok:
        return Status(ok=False, reason=status.reason, remedy=status.remedy)
    return Status(ok=True, reason=find_toolchain().version.partition("\n")[0])


@hookimpl
def byoc_patterns() -> Sequence[CompositePattern]:
    """Return convolution and matrix products with bias and ReLU."""
    return patterns()


@hookimpl
def byoc_supports(binding: Binding, context: CompileContext) -> Support | Rejection:
    """Return whether there is a C kernel for an op's dtypes and layouts."""
    return reject_step(binding, tutorial=_options(context).tutorial) or Support()


@hookimpl
def byoc_estimate(function: Function, context: CompileContext) -> Estimate | None:
    """Return the cost of an op by measurements of similar ops, with AVX-512 or AVX2."""
    options = _options(context)
    if options.tutorial or options.portable or options.target:
        return None
    return measured_costs(_vector_unit(options).nbytes, is_amd=is_amd()).estimate(function, context.num_threads)


@hookimpl
def byoc_layouts(function: Function, context: CompileContext) -> Sequence[AxisOrders] | None:
    """Return the orders of axes preferred by an op on images."""
    return None if _options(context).tutorial else preferred_orders(function.bindings[0], FAMILIES)


@hookimpl
def byoc_schedules(function: Function, context: CompileContext) -> Mapping[str, Sequence[str]]:
    """Return the schedules near the choice of the code generator, by op.

    Convolutions, products of floats and bytes, attention and recurrent layers have a choice.
    """
    codegen = _codegen(context, BuildOptions())
    if (
        not isinstance(codegen, FusedCodegen)
        or _options(context).portable
        or next(_reject_function(function, tutorial=False), None) is not None
    ):
        return {}
    codegen.offered = {}
    functions, constants = _prepared([function.with_attrs(global_symbol="op")], context)
    codegen.generated_kernels(functions, constants)
    results = {result.name for binding in function.walk() for result in binding.results}
    return {name: offered for name, offered in codegen.offered.items() if name in results}


@hookimpl
def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
    """Return a compiled C module of the supported functions, and a rejection for each of the other functions."""
    options = _options(context)
    march = "generic" if options.portable else options.march
    build = BuildOptions(options.opt_level, march, options.extra_flags, options.target)
    rejections = {}
    accepted = []
    for function in functions:
        rejection = next(_reject_function(function, tutorial=options.tutorial), None)
        if rejection is None:
            accepted.append(function)
        else:
            rejections[function.name] = rejection
    if not accepted:
        return CodegenResult(None, rejections=rejections)
    toolchain = find_toolchain(options.target)
    codegen, prepared_weights = _codegen(context, build), {}
    module = codegen.generate(*_prepared(accepted, context))
    if isinstance(codegen, FusedCodegen):
        params = {function.name: function.params for function in accepted}
        prepared_weights = {
            name: {number: order.to_function(params[name][number].type) for number, order in orders.items()}
            for name, orders in codegen.panel_orders.items()
        }
    if options.keep_source is not None:
        try:
            toolchain.keep_source(options.keep_source, module.function_names[0], module.get_source(), build)
        except ToolchainError as error:  # the user's folder, not a failure of this backend
            raise OptionsError(error.where, error.problem, got=error.got, hint=error.hint) from error
    module.build()
    new_constants = {digest: array for digest, array in module.constants.items() if digest not in context.constants}
    return CodegenResult(module, new_constants, rejections, prepared_weights=prepared_weights)


@hookimpl
def byoc_generated_kernels(functions: Sequence[Function], context: CompileContext) -> Sequence[KernelReport]:
    """Return the kernels written by :func:`byoc_codegen` for functions."""
    return _codegen(context, BuildOptions()).generated_kernels(*_prepared(functions, context))


def _codegen(context: CompileContext, build: BuildOptions) -> CSourceCodegen:
    """Return the C code generator for the vector unit of the target."""
    options = _options(context)
    if options.tutorial:
        return CSourceCodegen(build)
    if options.portable:
        return FusedCodegen(build, NO_VECTORS, options, context.weights)
    return FusedCodegen(build, _vector_unit(options), options, context.weights)


def _vector_unit(options: CCompilerOptions) -> VectorUnit:
    """Return the vector unit of the target."""
    target = find_toolchain(options.target).target(options.march, options.target)
    unit = VectorUnit.of_features(target.machine, target.features)
    return unit.on_amd() if options.march == "native" and not options.target and is_amd() else unit


def _prepared(functions: Sequence[Function], context: CompileContext) -> tuple[Sequence[Function], Mapping[str, Any]]:
    """Return the functions rewritten for C, and their constants."""
    if _options(context).tutorial:
        return functions, context.constants
    module = prepare_regions(functions, context.constants, FAMILIES)
    return tuple(module.functions.values()), module.constants


def _reject_function(function: Function, *, tutorial: bool) -> Iterator[Rejection]:
    """Yield a reason for every unsupported op, and a reason for sizes not given by any tensor of a call.

    A size may come from any parameter or result of the function: a region gets a parameter giving the sizes of the ops.
    """
    for binding in _checked_ops(function, tutorial=tutorial):
        rejection = reject_step(binding, tutorial=tutorial)
        if rejection is not None:
            yield rejection
    values = (*function.params, *function.results)
    cited = type_symbols(values) | cited_symbols(function.bindings)
    unknown = cited.difference(*(given_symbols(value.type) for value in values))
    if unknown:
        names = ", ".join(f"`{name}`" for name in sorted(unknown))
        yield Rejection("dynamic-shape", f"no shape of a parameter or result of the region determines {names}")


def _checked_ops(function: Function, *, tutorial: bool) -> Iterator[Binding]:
    """Yield the ops of a function, except composites, and the ops of composites compiled as a whole."""
    for binding in function.bindings:
        if tutorial or not is_supported_whole(binding):
            for region in binding.regions:
                yield from _checked_ops(region, tutorial=tutorial)
        if binding.op.name != "composite":
            yield binding
