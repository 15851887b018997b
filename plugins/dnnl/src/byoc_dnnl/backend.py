"""The compile half: the supported ops, and the translation of regions into graph documents.

An op is supported if oneDNN really has a primitive. To find out, a primitive is described; a reference implementation
means a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from byoc_core.authoring.cost_table import is_amd
from byoc_core.authoring.graph import GraphCodegen, check_binding
from byoc_core.backend.hooks import (
    AxisOrders,
    BackendInfo,
    CodegenResult,
    CompileContext,
    Estimate,
    Rejection,
    Status,
    Support,
    hookimpl,
)
from byoc_core.dims import bound_symbols
from byoc_core.errors import ArtifactError, IRTypeError
from byoc_core.ir import Binding, Constant, Function, IRModule, TensorType, Value, Var
from byoc_core.runtime.graph.document import GraphConstant, GraphDocument, GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.runtime.parts import ops_text
from byoc_core.runtime.threads import num_threads
from byoc_core.transform import FoldScales, RecogniseComposites

from byoc_dnnl.engine import DnnlModule, open_engine
from byoc_dnnl.layouts import preferred_orders
from byoc_dnnl.library import Library, Missing, find_library, library_status
from byoc_dnnl.lowerings import declines, is_decided
from byoc_dnnl.measured_costs import measured_costs
from byoc_dnnl.options import DnnlOptions
from byoc_dnnl.plan import Plan
from byoc_dnnl.planner import Planner
from byoc_dnnl.precision import Precision, lacks_instructions
from byoc_dnnl.ranges_constants import ConstantRanges
from byoc_dnnl.regions import parts_of_attention, spell_out_attention
from byoc_dnnl.regions.batch_norm import spell_batch_norm
from byoc_dnnl.regions.integer_products import spell_integer_products
from byoc_dnnl.static_form import sample_forms, symbols_in
from byoc_dnnl.stored.plans import PlanStore

__all__ = [
    "byoc_backend_info",
    "byoc_codegen",
    "byoc_compile_status",
    "byoc_estimate",
    "byoc_layouts",
    "byoc_prepare",
    "byoc_schedules",
    "byoc_supports",
]


@hookimpl
def byoc_backend_info() -> BackendInfo:
    """Describe the capabilities of the backend."""
    return BackendInfo(name="dnnl", options=DnnlOptions, quantised=True, dynamic_shapes=True)


@hookimpl
def byoc_compile_status(context: CompileContext) -> Status:
    """Return the oneDNN in use, or the missing part; refuse a precision without instructions on this processor."""
    found, precision = find_library(), _options(context).precision
    if isinstance(found, Library) and lacks_instructions(found.isa, precision):
        problem = (
            f"precision={precision!r} is slow without {precision} instructions, and oneDNN uses {found.isa_name} here"
        )
        return Status(ok=False, reason=problem, remedy="Leave the option out: float32 is faster on this processor.")
    return library_status()


@hookimpl
def byoc_prepare(module: IRModule) -> IRModule:
    """Rewrite the module into the form preferred by oneDNN.

    Products of integers become products of dequantised tensors. Ops spelled out by exporters become a single op again
    if oneDNN has the op but not all parts. Scales and shifts of channels are folded away, because each would be a
    further post-op or primitive. The remaining batch normalisations are spelled out.
    """
    return spell_batch_norm(FoldScales()(RecogniseComposites(_RECOGNISED)(spell_integer_products(module))))


_RECOGNISED = ("nn.layer_norm", "nn.softmax", "nn.gelu", "nn.swish", "nn.hard_swish")


@hookimpl
def byoc_supports(binding: Binding, context: CompileContext) -> Support | Rejection:
    """Accept an op if a plan exists for the op alone, with its constants and without reference implementations."""
    rejection = check_binding(binding)
    if rejection is not None:
        return rejection
    types = [value.type for value in (*binding.operands, *binding.results)]
    if any(isinstance(type_, TensorType) and type_.oversized_axis is not None for type_ in types):
        return Rejection("size", f"`{binding.op.name}`: a tensor exceeds the largest array")
    if parts := parts_of_attention(binding):
        return next((no for part in parts if isinstance(no := byoc_supports(part, context), Rejection)), Support())
    if not is_decided(binding.op.name):
        return Rejection.of_new_op(binding.op.name)
    reason = declines(binding.op.name)
    if reason is not None:
        return Rejection("op", f"`{binding.op.name}`: {reason}")
    if isinstance(find_library(), Missing):
        return Rejection("library", library_status().reason)
    plans = _plans(_graph_of(binding), context.constants, _options(context).precision)
    return Rejection("primitive", plans) if isinstance(plans, str) else Support()


@hookimpl
def byoc_estimate(function: Function, context: CompileContext) -> Estimate | None:
    """Return the cost of an op by measurements of similar ops."""
    found = find_library()
    if isinstance(found, Missing):
        return None
    return measured_costs(found.isa, is_amd=is_amd()).estimate(function, context.num_threads)


@hookimpl
def byoc_layouts(function: Function) -> Sequence[AxisOrders] | None:
    """Return the orders of axes preferred by an op on images."""
    return preferred_orders(function.bindings[0])


_WITH_SCHEDULES = ("nn.conv", "nn.dense", "matmul")
"""The beginnings of the names of ops with a choice."""


@hookimpl
def byoc_schedules(function: Function, context: CompileContext) -> Mapping[str, Sequence[str]]:
    """Return other layouts and implementations of convolutions and products of float32, by op."""
    if not any(binding.op.name.startswith(_WITH_SCHEDULES) for binding in function.walk()):
        return {}
    translation = GraphCodegen().translate([function.with_attrs(global_symbol="op")], context)
    graph = translation.document.functions.get("op")
    if graph is None or symbols_in(graph):
        return {}
    engine = open_engine()
    with engine.threads(num_threads()):
        ranges, precision = ConstantRanges(translation.constants), _options(context).precision
        planner = Planner(engine, graph, ranges, strict=True, precision=precision, collects=True)
        planner.plan()
    return planner.offered


@hookimpl
def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
    """Compile all plannable functions into a graph document, and create the primitives."""
    spelled_out, constants = spell_out_attention(functions)
    context = replace(context, constants={**context.constants, **constants})
    translation = GraphCodegen().translate([spelled_out[function.name] for function in functions], context)
    named = {str(function.attrs.get("global_symbol", function.name)): function for function in functions}
    names = {symbol: function.name for symbol, function in named.items()}
    rejections = dict(translation.rejections)
    accepted: dict[str, GraphFunction] = {}
    schedules = {symbol: names_of for symbol in named if (names_of := _schedules_of(named[symbol]))}
    precision, sizes = _options(context).precision, _options(context).stored_plans
    store = PlanStore(translation.constants, sizes, precision) if sizes else None
    for symbol, graph in translation.document.functions.items():
        reason = next((f"`{node.op}`: {why}" for node in graph.nodes if (why := declines(node.op))), None)
        reason = reason or _undetermined(graph)
        if reason is None and isinstance(plans := _plans(graph, translation.constants, precision), str):
            reason = plans
        with_origins = _with_origins(graph, named[symbol])
        if reason is None and store is not None:
            reason = store.add(with_origins, schedules.get(symbol, {}))
        if reason is None:
            accepted[symbol] = with_origins
        else:
            rejections[names[symbol]] = Rejection("primitive", reason)
    if not accepted:
        return CodegenResult(None, rejections=rejections)
    schedules = {symbol: schedules[symbol] for symbol in accepted if symbol in schedules}
    document, stored = GraphDocument(MappingProxyType(accepted)), None if store is None else store.finish()
    module = DnnlModule(document, translation.constants, precision, schedules, stored)
    return CodegenResult(module, constants, rejections)


def _schedules_of(function: Function) -> dict[str, str]:
    """Return the names of schedules chosen for ops, by the name of the result."""
    return {op.results[0].name: op.schedule for op in function.walk() if op.schedule is not None}


def _options(context: CompileContext) -> DnnlOptions:
    return context.options if isinstance(context.options, DnnlOptions) else DnnlOptions.model_validate({})


def _with_origins(graph: GraphFunction, function: Function) -> GraphFunction:
    """Return the graph with origins in a function: the parts of a spelled-out op have the name of the op's value."""
    ops = {binding.results[0].name: binding.op.name for binding in function.walk() if not binding.regions}
    nodes = []
    for node in graph.nodes:
        _, _, name = node.origin.partition(" ")
        nodes.append(replace(node, origin=ops_text([(ops[name], name)])) if name in ops else node)
    return replace(graph, nodes=tuple(nodes))


def _undetermined(graph: GraphFunction) -> str | None:
    """Return the reason why the shapes of the inputs do not determine all others, or ``None``."""
    unknown = symbols_in(graph) - bound_symbols(spec.shape for spec in graph.inputs)
    return f"no input determines the size {min(unknown)}" if unknown else None


def _plans(graph: GraphFunction, constants: Mapping[str, NDArray], precision: Precision) -> list[Plan] | str:
    """Return plans of a function, or the reason why no plan without reference implementations exists.

    A function with symbols is planned at representative sizes.
    """
    engine, ranges, plans = open_engine(), ConstantRanges(constants), []
    try:
        forms = sample_forms(graph)
        with engine.threads(num_threads()):
            for form in forms:
                plan = Planner(engine, form, ranges, strict=True, precision=precision).plan()
                if isinstance(plan, str):
                    return plan
                plans.append(plan)
    except (ArtifactError, IRTypeError) as error:
        if not symbols_in(graph):
            raise
        return f"not all sizes of the symbols are compatible: {error}"
    return plans or "a tensor is empty at all trial sizes"


def _graph_of(binding: Binding) -> GraphFunction:
    """Return a function of one op."""
    values = dict.fromkeys(binding.operands)
    params = [value for value in values if isinstance(value, Var)]
    constants = {value.digest: value for value in values if isinstance(value, Constant)}
    ids: dict[Var | str, int] = {param: id_ for id_, param in enumerate(params)}
    ids.update((digest, len(params) + number) for number, digest in enumerate(constants))
    inputs = tuple(ids[value if isinstance(value, Var) else value.digest] for value in binding.operands)
    results = tuple(map(_tensor, binding.results))
    node = GraphNode(binding.op.name, inputs, results, MappingProxyType(dict(binding.attrs)))
    return GraphFunction(
        "op",
        tuple(TensorSpec(param.name, (tensor := _tensor(param)).dtype, tensor.shape) for param in params),
        tuple(GraphConstant(digest, _tensor(constant)) for digest, constant in constants.items()),
        (node,),
        tuple((f"output{number}", len(ids) + number) for number in range(len(results))),
    )


def _tensor(value: Value) -> GraphTensor:
    type_ = value.type
    assert isinstance(type_, TensorType)  # other types are refused before
    assert type_.shape is not None
    return GraphTensor(type_.dtype, type_.shape)
