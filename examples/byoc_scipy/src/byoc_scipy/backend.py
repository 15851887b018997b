"""The compile half: description, claims and code generation of the backend. Imported only for compilation."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring.graph import GraphCodegen
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Support, hookimpl
from byoc_core.ir import Binding, Function
from byoc_core.pattern import CompositePattern

from byoc_scipy.engine import Engine
from byoc_scipy.options import Options, options_of
from byoc_scipy.patterns import patterns, reject_op

__all__ = ["byoc_backend_info", "byoc_codegen", "byoc_patterns", "byoc_supports"]


@hookimpl
def byoc_backend_info() -> BackendInfo:
    """Describe the backend. Declare only capabilities of the engine: the kit checks every declaration."""
    return BackendInfo("scipy", dynamic_shapes=True, options=Options)


@hookimpl
def byoc_patterns() -> Sequence[CompositePattern]:
    """Return the groups of ops run as one call; a longer group wins over a shorter."""
    return patterns()


@hookimpl
def byoc_supports(binding: Binding, context: CompileContext) -> Support | Rejection:
    """Return support or a rejection for an op outside all patterns."""
    if not options_of(context).single_ops:
        return Rejection("option", "the option `single_ops` is off")
    return reject_op(binding) or Support()


@hookimpl
def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
    """Compile all functions to one module: a graph document citing constants by digest, with the engine."""
    return GraphCodegen(composites="keep").compile(functions, context, Engine())
