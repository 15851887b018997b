"""The compile half: who the backend is, what it takes, and how that is compiled. Imported only where byoc compiles."""

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
    """Introduces the backend. Declare only what the engine can do: the kit holds it to every word."""
    return BackendInfo("scipy", dynamic_shapes=True, options=Options)


@hookimpl
def byoc_patterns() -> Sequence[CompositePattern]:
    """Gives the groups of ops that are one call; a longer one wins over a shorter."""
    return patterns()


@hookimpl
def byoc_supports(binding: Binding, context: CompileContext) -> Support | Rejection:
    """Says whether it takes an op that is in no pattern."""
    if not options_of(context).single_ops:
        return Rejection("option", "the option `single_ops` is off")
    return reject_op(binding) or Support()


@hookimpl
def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
    """Makes one module of all functions: a graph document, which cites constants by digest, and the engine for it."""
    return GraphCodegen(composites="keep").compile(functions, context, Engine())
