"""Convolutional parts with channels last: the fast layout of their kernels.

Each convolution, pooling, resizing and local response normalisation with channels first becomes the same op with
channels last between two transposes. Transposes between neighbours meet and cancel
(:class:`byoc_core.transform.MoveTransposes`), and remain at the borders of a region only. There they meet the inverse
transposes of values planned to cross borders with channels last (:class:`byoc_core.partitioning.PlanLayouts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from byoc_core.authoring.csource import SCALAR_OPS
from byoc_core.backend.hooks import AxisOrders
from byoc_core.ir import AttrValue, Binding, Function, IRModule, TensorType, Value, Var
from byoc_core.transform import MoveTransposes, RewriteGraph, rewrite_module

from byoc_ccompiler.attributes import axis_of, ints_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.regions.few_results import keeps_channels_first
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["channels_last", "preferred_orders"]

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d")
_LAYOUTS = {
    "nn.conv1d": "data_layout",
    "nn.conv2d": "data_layout",
    "nn.max_pool2d": "layout",
    "nn.avg_pool2d": "layout",
}
_RESIZE, _LRN, _BIAS = "nn.resize", "nn.lrn", "nn.bias_add"
_ELEMENTWISE = frozenset(SCALAR_OPS) | {_BIAS}
_CHANNELS_LAST = {"NCW": "NWC", "NCHW": "NHWC"}


def _last(rank: int) -> tuple[int, ...]:
    """Return the permutation of an image from channels first to channels last."""
    return (0, *range(2, rank), 1)


def _first(rank: int) -> tuple[int, ...]:
    """Return the permutation of an image from channels last to channels first."""
    return (0, rank - 1, *range(1, rank - 1))


def _turned_attrs(binding: Binding) -> Mapping[str, AttrValue] | None:
    """Return the attributes of an op for channels last; ``None`` unless the op has channels first."""
    attribute = _LAYOUTS.get(binding.op.name)
    if attribute is not None and binding.attrs[attribute] in _CHANNELS_LAST:
        return {**binding.attrs, attribute: _CHANNELS_LAST[str(binding.attrs[attribute])]}
    if binding.op.name == _LRN:
        return _turned_lrn_attrs(binding)
    return _turned_resize_attrs(binding) if binding.op.name == _RESIZE else None


def _turned_lrn_attrs(binding: Binding) -> Mapping[str, AttrValue] | None:
    rank = len(shape_of(binding.operands[0]))
    return {**binding.attrs, "axis": rank - 1} if rank in (3, 4) and axis_of(binding, rank) == 1 else None


def _turned_resize_attrs(binding: Binding) -> Mapping[str, AttrValue] | None:
    rank, axes = len(shape_of(binding.operands[0])), ints_of(binding, "axes")
    # Only all spatial axes together tell where the channels are.
    if rank not in (3, 4) or set(axes) != set(range(2, rank)):
        return None
    return {**binding.attrs, "axes": tuple(axis - 1 for axis in axes)}


def _can_turn(binding: Binding, families: Mapping[str, KernelFamily]) -> bool:
    """Return whether an op has channels first, and the family a kernel for channels last."""
    attrs = _turned_attrs(binding)
    if attrs is None:
        return False
    image, *weights = binding.operands
    operands, results = (_turned(image), *weights), (_turned(binding.result),)
    turned = replace(binding, operands=operands, results=results, attrs=attrs)
    return families[binding.op.name].reject(turned) is None


def _turned(value: Value) -> Var:
    shape = shape_of(value)
    return Var("turned", TensorType(tuple(shape[axis] for axis in _last(len(shape))), dtype_of(value)))


def preferred_orders(binding: Binding, families: Mapping[str, KernelFamily]) -> Sequence[AxisOrders] | None:
    """Return the orders of an op with kernels for channels last, best first; ``None`` for other ops."""
    if not _can_turn(binding, families):
        return None
    order = _last(len(shape_of(binding.operands[0])))
    rest = (None,) * (len(binding.operands) - 1)
    last = AxisOrders((order, *rest), (order,))
    return [last] if binding.op.name in _CONVOLUTIONS else [last, AxisOrders((None, *rest), (None,))]


def channels_last(module: IRModule, families: Mapping[str, KernelFamily]) -> IRModule:
    """Return the module with channels last in convolutions, and in other ops on images with channels last.

    These are functions with a convolution, or with a transpose from or to channels last at the border.
    """

    def turn(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
        attrs = _turned_attrs(binding)
        if attrs is None or not _can_turn(binding, families):
            return None
        if binding.op.name in _CONVOLUTIONS and keeps_channels_first(binding, graph):
            return None
        image, *weights = binding.operands
        turned = graph.emit("permute_dims", (image,), {"axes": _last(len(shape_of(image)))})
        return _with_channels_first(graph, graph.emit(binding.op, (turned, *weights), attrs))

    def is_turned(binding: Binding, function: Function) -> bool:
        if binding.op.name in _CONVOLUTIONS:
            return _can_turn(binding, families)
        return binding.op.name == "permute_dims" and _is_at_border(binding, function)

    turning = {
        name: function
        for name, function in module.functions.items()
        if any(is_turned(binding, function) for binding in function.bindings)
    }
    if not turning:
        return module
    rules = {
        **dict.fromkeys(_ELEMENTWISE, (_before_transpose,)),
        **dict.fromkeys((*_LAYOUTS, _RESIZE, _LRN), (turn,)),
        "reshape": (_turn_shuffle,),
    }
    turned = rewrite_module(module.with_functions(turning), rules)
    return MoveTransposes(keep_bits=False)(module.with_functions({**module.functions, **turned.functions}))


def _is_at_border(transpose: Binding, function: Function) -> bool:
    """Return whether a transpose reads a parameter with channels last, or makes a result with channels last."""
    rank, axes = len(shape_of(transpose.result)), transpose.attrs["axes"]
    is_read = axes == _first(rank) and any(transpose.operands[0] is param for param in function.params)
    is_made = axes == _last(rank) and any(transpose.result is result for result in function.results)
    return rank > 2 and (is_read or is_made)


def _with_channels_first(graph: RewriteGraph, image: Value) -> Sequence[Value]:
    return (graph.emit("permute_dims", (image,), {"axes": _first(len(shape_of(image)))}),)


def _before_transpose(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    """Compute an elementwise op behind a convolution before the transpose to channels first: in the same kernel."""
    image, *rest = binding.operands
    transpose = graph.maker(image, "permute_dims")
    if (
        transpose is None
        or transpose.attrs["axes"] != _first(rank := len(shape_of(image)))
        or graph.num_uses(image) != 1
    ):
        return None
    source, attrs = transpose.operands[0], binding.attrs
    if graph.maker(source, *_CONVOLUTIONS, *_ELEMENTWISE) is None or graph.num_uses(source) != 1:
        return None
    if binding.op.name == _BIAS:
        if axis_of(binding, rank) != 1:
            return None
        attrs = {**attrs, "axis": rank - 1}
    elif any(shape_of(operand) != () for operand in rest) or shape_of(binding.result) != shape_of(image):
        return None
    return _with_channels_first(graph, graph.emit(binding.op, (source, *rest), attrs))


def _turn_shuffle(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    """Shuffle channels last if an op is the last of a channel shuffle over NCHW.

    A channel shuffle views the channels as a matrix of groups times members, transposes the matrix, and views the
    result as one axis again (Zhang et al. 2018, ShuffleNet).
    """
    permute = graph.maker(binding.operands[0], "permute_dims")
    split = None if permute is None else graph.maker(permute.operands[0], "reshape")
    if permute is None or split is None or permute.attrs["axes"] != (0, 2, 1, 3, 4):
        return None
    image = split.operands[0]
    shape, (batch, num_groups, num_members, *size) = shape_of(image), shape_of(split.result)
    if len(shape) != 4 or (batch, *size) != (shape[0], *shape[2:]) or shape_of(binding.result) != shape:
        return None
    if not isinstance(num_groups, int) or not isinstance(num_members, int):
        return None
    turned = graph.emit("permute_dims", (image,), {"axes": _last(4)})
    *lead, channels = shape_of(turned)
    parts = graph.emit("reshape", (turned,), {"shape": (*lead, num_groups, channels // num_groups)})
    swapped = graph.emit("permute_dims", (parts,), {"axes": (0, 1, 2, 4, 3)})
    return _with_channels_first(graph, graph.emit("reshape", (swapped,), {"shape": (*lead, channels)}))
