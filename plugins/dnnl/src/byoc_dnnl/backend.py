"""The compile half: which ops are taken, and how regions become graph documents.

An op is taken if oneDNN really has a primitive for it: one is described, and a reference implementation is a refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from byoc_core.authoring.graph import GraphCodegen, check_binding
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Status, Support, hookimpl
from byoc_core.ir import Binding, Constant, Function, TensorType, Value, Var
from byoc_core.runtime.graph_document import GraphConstant, GraphDocument, GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.module import TensorSpec
from byoc_core.runtime.threads import num_threads

from byoc_dnnl.engine import DnnlEngine, DnnlModule, open_engine
from byoc_dnnl.library import Missing, find_library, library_status
from byoc_dnnl.lowerings import declines
from byoc_dnnl.planner import Planner

__all__ = ["byoc_backend_info", "byoc_codegen", "byoc_compile_status", "byoc_supports"]


@hookimpl
def byoc_backend_info() -> BackendInfo:
    """Says what the backend can do."""
    return BackendInfo(name="dnnl", preferred_layouts=("NHWC",))


@hookimpl
def byoc_compile_status() -> Status:
    """Says which oneDNN is in use, or what is missing."""
    return library_status()


@hookimpl
def byoc_supports(binding: Binding) -> Support | Rejection:
    """Takes an op for which a plan of its own can be made, without reference implementations."""
    rejection = check_binding(binding)
    if rejection is not None:
        return rejection
    reason = declines(binding.op.name)
    if reason is not None:
        return Rejection("op", f"`{binding.op.name}`: {reason}")
    if len(binding.results) != 1:
        return Rejection("results", f"`{binding.op.name}` gives several results")
    if isinstance(find_library(), Missing):
        return Rejection("library", library_status().reason)
    reason = _plan(_graph_of(binding))
    return Support() if reason is None else Rejection("primitive", reason)


@hookimpl
def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
    """Makes a graph document of all functions that can be planned, and creates their primitives."""
    translation = GraphCodegen().translate(functions, context)
    names = {str(function.attrs.get("global_symbol", function.name)): function.name for function in functions}
    rejections = dict(translation.rejections)
    kept: dict[str, GraphFunction] = {}
    for symbol, graph in translation.document.functions.items():
        reason = next((f"`{node.op}`: {why}" for node in graph.nodes if (why := declines(node.op))), None)
        reason = reason or _plan(graph)
        if reason is None:
            kept[symbol] = graph
        else:
            rejections[names[symbol]] = Rejection("primitive", reason)
    if not kept:
        return CodegenResult(None, rejections=rejections)
    module = DnnlModule(GraphDocument(MappingProxyType(kept)), translation.constants, DnnlEngine())
    return CodegenResult(module, rejections=rejections)


def _plan(graph: GraphFunction) -> str | None:
    """Gives the reason why a function cannot be planned without reference implementations, or ``None``."""
    engine = open_engine()
    with engine.threads(num_threads()):
        plan = Planner(engine, graph, strict=True).plan()
    return plan if isinstance(plan, str) else None


def _graph_of(binding: Binding) -> GraphFunction:
    """Gives a function of one op."""
    values = dict.fromkeys(binding.operands)
    params = [value for value in values if isinstance(value, Var)]
    constants = {value.digest: value for value in values if isinstance(value, Constant)}
    ids: dict[Var | str, int] = {param: id_ for id_, param in enumerate(params)}
    ids.update((digest, len(params) + number) for number, digest in enumerate(constants))
    inputs = tuple(ids[value if isinstance(value, Var) else value.digest] for value in binding.operands)
    node = GraphNode(binding.op.name, inputs, (_tensor(binding.result),), MappingProxyType(dict(binding.attrs)))
    return GraphFunction(
        "op",
        tuple(TensorSpec(param.name, (tensor := _tensor(param)).dtype, tensor.shape) for param in params),
        tuple(GraphConstant(digest, _tensor(constant)) for digest, constant in constants.items()),
        (node,),
        (("output0", len(ids)),),
    )


def _tensor(value: Value) -> GraphTensor:
    type_ = value.type
    assert isinstance(type_, TensorType)  # what else there is has been refused
    assert type_.shape is not None
    return GraphTensor(type_.dtype, type_.shape)
