"""The compile half: the supported ops, and the translation of functions into graphs."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.backend.hooks import BackendInfo, CodegenResult, Rejection, Support, hookimpl
from byoc_core.ir import Binding, Function, TensorType, Value

from byoc_examplejson.graph import Graph, Node
from byoc_examplejson.runtime import ExampleJsonModule

_OP_NAMES = {"add": "add", "subtract": "sub", "multiply": "mul"}


@hookimpl
def byoc_backend_info() -> BackendInfo:
    """Describe the backend. The format has no constants, so constants have to come as parameters."""
    return BackendInfo(name="examplejson", constants="lifted")


@hookimpl
def byoc_supports(binding: Binding) -> Support | Rejection:
    """Accept add, subtract and multiply of float32 tensors with equal static shapes."""
    if binding.op.name not in _OP_NAMES:
        return Rejection("op", f"the format has no `{binding.op.name}`")
    values = (*binding.operands, *binding.results)
    if any(_shape(value) is None for value in values):
        return Rejection("type", "the format supports only float32 tensors of static shape")
    if len({_shape(value) for value in values}) > 1:
        return Rejection("broadcasting", "the format has no broadcasting")
    return Support()


@hookimpl
def byoc_codegen(functions: Sequence[Function]) -> CodegenResult:
    """Build a subgraph for each function expressible in the format."""
    graphs: dict[str, Graph] = {}
    rejections: dict[str, Rejection] = {}
    for function in functions:
        rejection = _find_rejection(function)
        if rejection is None:
            graphs[str(function.attrs["global_symbol"])] = _to_graph(function)
        else:
            rejections[function.name] = rejection
    return CodegenResult(ExampleJsonModule(graphs) if graphs else None, rejections=rejections)


def _find_rejection(function: Function) -> Rejection | None:
    """Return the first reason why the format cannot express a function, perhaps annotated by hand."""
    for param in function.params:
        if _shape(param) is None:
            return Rejection("type", f"parameter `{param.name}` is not a float32 tensor of static shape")
    for binding in function.bindings:
        answer = byoc_supports(binding)
        if isinstance(answer, Rejection):
            names = ", ".join(result.name for result in binding.results)
            return Rejection(answer.code, f"`{names} = {binding.op.name}(...)`: {answer.text}")
    return None


def _to_graph(function: Function) -> Graph:
    graph = Graph()
    ids: dict[Value, int] = {}

    def append(value: Value, op: str, inputs: tuple[int, ...]) -> None:
        ids[value] = len(ids)
        graph.nodes[ids[value]] = Node(op, inputs, _shape(value) or ())

    for param in function.params:
        append(param, "input", ())
    for binding in function.bindings:
        append(binding.result, _OP_NAMES[binding.op.name], tuple(ids[operand] for operand in binding.operands))
    graph.outputs = tuple(ids[result] for result in function.results)
    return graph


def _shape(value: Value) -> tuple[int, ...] | None:
    """Return the shape of a float32 tensor of static shape, and ``None`` for everything else."""
    if not isinstance(value.type, TensorType) or value.type.dtype != "float32" or value.type.shape is None:
        return None
    sizes = tuple(dim for dim in value.type.shape if isinstance(dim, int))
    return sizes if len(sizes) == len(value.type.shape) else None
