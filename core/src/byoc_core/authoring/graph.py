"""The compile half of the graph kit: IR functions as graph documents.

For library-style backends: the document goes to the run half (:mod:`byoc_core.runtime.graph`), and an engine there
prepares the document for execution. A backend of this kind is a rule and an engine::

    @hookimpl
    def byoc_codegen(functions, context):
        return GraphCodegen(composites="keep").compile(functions, context, MyEngine())
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from byoc_core.backend.info import CodegenResult, CompileContext, Rejection
from byoc_core.ir.constants import Constant
from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.ir.structural import COMPOSITE
from byoc_core.opset.types import TensorType, Type
from byoc_core.runtime.graph import FunctionRefused, GraphEngine, GraphModule, KernelEngine
from byoc_core.runtime.graph.document import (
    GraphAttr,
    GraphConstant,
    GraphDocument,
    GraphFunction,
    GraphNode,
    GraphTensor,
    KernelOrigin,
    attr_symbols,
)
from byoc_core.runtime.graph.engine import node_refusals
from byoc_core.runtime.graph.plugin_kernels import PluginKernel, core_kernel, find_origin, kernel_of
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.runtime.parts import ops_text

__all__ = ["GraphCodegen", "GraphTranslation", "check_binding"]


@dataclass(frozen=True, slots=True)
class GraphTranslation:
    """The translation of some functions.

    Attributes:
        document: the translated functions, by ``global_symbol``.
        constants: the arrays cited by the document, by digest.
        rejections: reasons against the other functions, by function name.
    """

    document: GraphDocument
    constants: Mapping[str, NDArray]
    rejections: Mapping[str, Rejection]


def _prepare(engine: GraphEngine, graph: GraphFunction, constants: Mapping[str, NDArray]) -> object | Rejection:
    """Return an engine's prepared form of a function, or the reason for refusing the function."""
    for refusal in node_refusals(graph, engine, ""):
        return Rejection("engine", f"{refusal.node.op}: {refusal.reason}")
    prepared = engine.prepare(graph, constants)
    return Rejection("engine", prepared.text) if isinstance(prepared, FunctionRefused) else prepared


class GraphCodegen:
    """A translator of IR functions into a graph document.

    Args:
        composites: ``"inline"``: each op of a composite becomes a node; ``"keep"``: a composite becomes a single node
            of the composite's name, with a body.
    """

    def __init__(self, *, composites: Literal["inline", "keep"] = "inline") -> None:
        self._keep_composites = composites == "keep"

    def translate(self, functions: Sequence[Function], context: CompileContext) -> GraphTranslation:
        """Return the document of the functions with a graph form, and the reason against each of the others.

        Cost: linear in the number of bindings and operands.
        """
        graphs: dict[str, GraphFunction] = {}
        constants: dict[str, NDArray] = {}
        rejections: dict[str, Rejection] = {}
        for function in functions:
            graph = self._translate_function(function)
            if isinstance(graph, Rejection):
                rejections[function.name] = graph
                continue
            symbol = str(function.attrs.get("global_symbol", function.name))
            graphs[symbol] = GraphFunction(symbol, graph.inputs, graph.constants, graph.nodes, graph.outputs)
            for constant in graph.all_constants():
                shape = tuple(dim for dim in constant.tensor.shape if isinstance(dim, int))
                type_ = TensorType(shape, constant.tensor.dtype)
                constants[constant.digest] = context.constant(Constant(constant.digest, type_))
        return GraphTranslation(
            GraphDocument(MappingProxyType(graphs)), MappingProxyType(constants), MappingProxyType(rejections)
        )

    def compile(
        self, functions: Sequence[Function], context: CompileContext, engine: GraphEngine | None = None
    ) -> CodegenResult:
        """Return the result for ``byoc_codegen``: a module for running the functions by an engine.

        Args:
            functions: the functions to compile.
            context: the source of constants.
            engine: the engine of the module; by default numpy's kernels, including kernels of plugin ops. A function is
                rejected with the engine's reason if the engine refuses the function or a node of the function.
        """
        plugin_ops = _plugin_ops(functions) if engine is None else {}
        engine = engine or KernelEngine(plugin_kernels={op: kernel for op, (kernel, _) in plugin_ops.items()})
        translation = self.translate(functions, context)
        names = {str(function.attrs.get("global_symbol", function.name)): function.name for function in functions}
        rejections = dict(translation.rejections)
        accepted: dict[str, GraphFunction] = {}
        prepared: dict[str, object] = {}
        for symbol, graph in translation.document.functions.items():
            outcome = _prepare(engine, graph, translation.constants)
            if isinstance(outcome, Rejection):
                rejections[names[symbol]] = outcome
            else:
                accepted[symbol], prepared[symbol] = graph, outcome
        if not accepted:
            return CodegenResult(None, rejections=rejections)
        used = GraphDocument(MappingProxyType(accepted)).ops()
        origins = {op: origin for op, (_, origin) in plugin_ops.items() if origin is not None and op in used}
        document = GraphDocument(MappingProxyType(accepted), MappingProxyType(origins))
        module = GraphModule(document, translation.constants, engine, prepared=prepared)
        return CodegenResult(module, rejections=rejections)

    def _translate_function(self, function: Function) -> GraphFunction | Rejection:
        for value in (*function.params, *function.results):
            rejection = _check_type(value.type, value.name if isinstance(value, Var) else "a constant")
            if rejection is not None:
                return rejection
        translator = _Translator(keep_composites=self._keep_composites)
        return translator.translate(function)


class _Translator:
    """A translator of a single function; each kept composite's body gets a separate translator."""

    def __init__(self, *, keep_composites: bool) -> None:
        self._keep_composites = keep_composites
        self._constants: dict[str, GraphConstant] = {}
        self._ids: dict[Var, int] = {}
        self._constant_ids: dict[str, int] = {}
        self._nodes: list[GraphNode] = []
        self._next_id = 0

    def translate(self, function: Function) -> GraphFunction | Rejection:
        inputs = tuple(_spec(param.name, param.type) for param in function.params)
        self._collect_constants(function)
        self._ids = {param: index for index, param in enumerate(function.params)}
        self._constant_ids = {digest: len(inputs) + index for index, digest in enumerate(self._constants)}
        self._next_id = len(inputs) + len(self._constants)
        rejection = self._translate_bindings(function)
        if rejection is not None:
            return rejection
        outputs = tuple(zip(function.output_names, map(self._id, function.results), strict=True))
        graph = GraphFunction(function.name, inputs, tuple(self._constants.values()), tuple(self._nodes), outputs)
        return _check_symbols(graph) or graph

    def _collect_constants(self, function: Function) -> None:
        """Number the constants in order of first use; constants of kept bodies belong to the bodies."""
        for binding in function.bindings:
            self._add_constants(binding.operands)
            if binding.op is COMPOSITE and not self._keep_composites:
                self._collect_constants(binding.regions[0])
        self._add_constants(function.results)

    def _add_constants(self, values: Iterable[Value]) -> None:
        for value in values:
            if isinstance(value, Constant):
                self._constants.setdefault(value.digest, GraphConstant(value.digest, _tensor(value.type)))

    def _translate_bindings(self, function: Function) -> Rejection | None:
        for binding in function.bindings:
            if binding.op is not COMPOSITE:
                rejection = check_binding(binding)
                if rejection is None:
                    self._add_node(binding, binding.op.name, _stated_attrs(binding))
            elif self._keep_composites:
                rejection = self._add_composite(binding)
            else:
                rejection = self._inline_composite(binding)
            if rejection is not None:
                return rejection
        return None

    def _inline_composite(self, binding: Binding) -> Rejection | None:
        (region,) = binding.regions
        for param, operand in zip(region.params, binding.operands, strict=True):
            self._ids[param] = self._id(operand)
        rejection = self._translate_bindings(region)
        if rejection is None:
            for result, inner in zip(binding.results, region.results, strict=True):
                self._ids[result] = self._id(inner)
        return rejection

    def _add_composite(self, binding: Binding) -> Rejection | None:
        body = _Translator(keep_composites=True).translate(binding.regions[0])
        if isinstance(body, Rejection):
            return body
        self._add_node(binding, str(binding.attrs["name"]), {}, body)
        return None

    def _add_node(
        self, binding: Binding, op: str, attrs: Mapping[str, GraphAttr], body: GraphFunction | None = None
    ) -> None:
        inputs = tuple(map(self._id, binding.operands))
        outputs = tuple(_tensor(result.type) for result in binding.results)
        origin = "" if body is not None else ops_text([(op, binding.results[0].name)])
        if not origin.isprintable():
            origin = ""
        self._nodes.append(GraphNode(op, inputs, outputs, MappingProxyType(dict(attrs)), body, origin))
        for result in binding.results:
            self._ids[result] = self._next_id
            self._next_id += 1

    def _id(self, value: Value) -> int:
        return self._ids[value] if isinstance(value, Var) else self._constant_ids[value.digest]


def _plugin_ops(functions: Sequence[Function]) -> dict[str, tuple[PluginKernel, KernelOrigin | None]]:
    """Return the kernels of ops outside the core, and the origin of each when the module is loaded."""
    ops = {binding.op.name: binding.op for function in functions for binding in function.walk()}
    found: dict[str, tuple[PluginKernel, KernelOrigin | None]] = {}
    for name, op in sorted(ops.items()):
        if op.kernel is None or core_kernel(name) is not None:
            continue
        origin = find_origin(name, op.kernel)
        kernel = PluginKernel(name, op.kernel) if origin is None else kernel_of(name, origin, f"op `{name}`")
        found[name] = kernel, origin
    return found


def check_binding(binding: Binding) -> Rejection | None:
    """Return the reason why a graph document cannot hold a binding as a node, or ``None``."""
    op = binding.op.name
    if binding.regions or binding.op.kernel is None:
        return Rejection("structural", f"`{op}` is control flow or a call, not supported by graph documents")
    if core_kernel(op) not in (None, binding.op.kernel):
        return Rejection("name", f"`{op}` has the name of another op of the core: graph documents find ops by name")
    for index, value in enumerate((*binding.operands, *binding.results)):
        name = value.name if isinstance(value, Var) else f"operand {index}"
        rejection = _check_type(value.type, f"{name} of `{op}`")
        if rejection is not None:
            return rejection
    for name, attr in binding.attrs.items():
        if _holds_type(attr):
            return Rejection("attribute", f"attribute `{name}` of `{op}` holds types, not values")
    return None


def _check_type(type_: Type, subject: str) -> Rejection | None:
    if not isinstance(type_, TensorType):
        return Rejection("object", f"{subject} is {type_}, not a tensor")
    if type_.shape is None:
        return Rejection("rank", f"the rank of {subject} is unknown")
    return None


def _check_symbols(graph: GraphFunction) -> Rejection | None:
    """Refuse a graph with an attribute size not determined by inputs or outputs."""
    for node in graph.nodes:
        for name, attr in node.attrs.items():
            unknown = attr_symbols(attr) - graph.given_symbols
            if unknown:
                return Rejection(
                    "symbol",
                    f"attribute `{name}` of `{node.op}` needs the size {min(unknown)}, not determined by the inputs",
                )
    return None


def _holds_type(attr: object) -> bool:
    return isinstance(attr, Type) or (isinstance(attr, tuple) and any(map(_holds_type, attr)))


def _stated_attrs(binding: Binding) -> Mapping[str, GraphAttr]:
    """Return the attributes of a node, with the open size of a reshape replaced by the size of the result.

    If a call's tensor has no elements, the number of elements does not determine the open size.
    """
    attrs, type_ = binding.attrs, binding.results[0].type
    if binding.op.name != "reshape" or not isinstance(type_, TensorType) or type_.shape is None:
        return attrs
    return {**attrs, "shape": type_.shape}


def _tensor(type_: Type) -> GraphTensor:
    assert isinstance(type_, TensorType)  # other types have been refused
    assert type_.shape is not None
    return GraphTensor(type_.dtype, type_.shape)


def _spec(name: str, type_: Type) -> TensorSpec:
    tensor = _tensor(type_)
    return TensorSpec(name, tensor.dtype, tensor.shape)
