"""The hooks of the backend: the supported ops, and the lowering of regions to calls of a BLAS."""

from __future__ import annotations

from byoc_core.authoring.csource import PARALLEL_HEADER
from byoc_core.backend.hooks import (
    BackendInfo,
    CompileContext,
    LoweringBuilder,
    Rejection,
    Status,
    Support,
    hookimpl,
)
from byoc_core.ir import Binding, Function
from byoc_core.native.toolchain import BuildOptions
from byoc_core.pattern import CompositePattern

from byoc_cblas.layer import find_layers, read_layer
from byoc_cblas.library import Missing, find_library, library_status
from byoc_cblas.lowering import lower_layer
from byoc_cblas.options import CblasOptions
from byoc_cblas.patterns import composite_patterns
from byoc_cblas.source import sources

__all__ = ["byoc_backend_info", "byoc_compile_status", "byoc_lower", "byoc_patterns", "byoc_supports"]


@hookimpl
def byoc_backend_info() -> BackendInfo:
    """Describe the capabilities of the backend."""
    return BackendInfo(name="cblas", options=CblasOptions, dynamic_shapes=True, native=True)


@hookimpl
def byoc_compile_status(context: CompileContext) -> Status:
    """Return the library in use, or the missing part with the remedy."""
    return library_status(_options(context).library)


@hookimpl
def byoc_patterns() -> list[CompositePattern]:
    """Return the patterns of products with a bias and ReLU."""
    return composite_patterns()


@hookimpl
def byoc_supports(binding: Binding, context: CompileContext) -> Support | Rejection:
    """Accept products of matrices and convolutions of float32 and float64."""
    layer = read_layer([binding])
    if isinstance(layer, Rejection):
        return layer
    library = find_library(_options(context).library)
    return Rejection("library", library.reason) if isinstance(library, Missing) else Support()


@hookimpl
def byoc_lower(function: Function, builder: LoweringBuilder, context: CompileContext) -> Rejection | None:
    """Lower each layer of a region to calls of the library."""
    options = _options(context)
    library = find_library(options.library)
    if isinstance(library, Missing):
        return Rejection("library", library.reason)
    builder.options = BuildOptions(opt_level=options.opt_level)
    builder.include(PARALLEL_HEADER)
    builder.include("byoc_fork_gate.h")
    builder.link(libraries=[library.name], library_dirs=[library.folder] if library.folder else [])
    for layer in find_layers(function):
        if isinstance(layer, Rejection):
            return layer
        for text in sources(library, layer.dtype, convolution=layer.op == "nn.conv2d"):
            builder.add_source(text)
        lower_layer(layer, builder)
    return None


def _options(context: CompileContext) -> CblasOptions:
    return context.options if isinstance(context.options, CblasOptions) else CblasOptions.model_validate({})
