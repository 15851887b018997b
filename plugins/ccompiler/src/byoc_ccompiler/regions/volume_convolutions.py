"""Convolutions of volumes as convolutions of images: the taps along the depth are further input channels.

A volume becomes its windows along the depth: image ``d`` holds the channels of the slices ``d * stride + k * dilation``
for all taps ``k`` side by side. A convolution of images then sums along depth, height, width and channels at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from byoc_core.authoring.csource import SCALAR_OPS
from byoc_core.ir import Binding, Function, IRModule, Value
from byoc_core.transform import MoveTransposes, RewriteGraph, rewrite_module

from byoc_ccompiler.attributes import axis_of, int_of, ints_of
from byoc_ccompiler.rejections import FLOATS
from byoc_ccompiler.size_checks import REPLACED_WINDOWS, window_sizes
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["convolve_slices"]

_LAYOUT, _FILTER = "NDHWC", "ODIHW"
_BIAS = "nn.bias_add"
_MOST_TAPS, _LEAST_PRODUCTS = 8, 16
"""With more taps along the depth, or fewer products of an element with a tap, copies cost more than the loops save."""
_END = np.iinfo(np.int64).max


def convolve_slices(module: IRModule) -> IRModule:
    """Return the module with convolutions of images for convolutions of volumes by a constant filter.

    Filters for each channel alone stay as they are, as do strides along a depth known only at run time. Transposes
    between neighbours cancel, and elementwise ops behind a convolution are computed on its images: in the same kernel.
    """
    before = dict(module.functions)
    module = rewrite_module(module, {"nn.conv3d": (_convolve,)})
    changed = {
        name: _with_windows(function, before[name])
        for name, function in module.functions.items()
        if function is not before[name]
    }
    if not changed:
        return module
    moved = MoveTransposes(keep_bits=False)(module.with_functions(changed))
    rules = dict.fromkeys((*SCALAR_OPS, _BIAS), (_before_reshape,))
    return module.with_functions({**module.functions, **rewrite_module(moved, rules).functions})


def _with_windows(function: Function, before: Function) -> Function:
    """Record the windows of the convolutions of volumes: images without a batch, of no window, pass their checks."""
    windows = tuple(
        (binding.op.name, *window_sizes(binding, *map(shape_of, binding.operands)))
        for binding in before.bindings
        if binding.op.name == "nn.conv3d"
    )
    return replace(function, attrs={**function.attrs, REPLACED_WINDOWS: windows})


def _convolve(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    x, weight = binding.operands
    filter_, layout = graph.array(weight), str(binding.attrs["data_layout"])
    groups = int_of(binding, "groups")
    if filter_ is None or dtype_of(x) not in FLOATS:
        return None
    (step, *strides), (gap, *dilation) = ints_of(binding, "strides"), ints_of(binding, "dilation")
    (front, *before), (back, *after) = (ints_of(binding, "padding")[k : k + 3] for k in (0, 3))
    order = tuple(map(layout.index, _LAYOUT))
    batch, depth, *_ = (shape_of(x)[axis] for axis in order)
    _, num_images, *size, channels = (shape_of(binding.result)[axis] for axis in order)
    if groups > 1 and shape_of(weight)[str(binding.attrs["kernel_layout"]).index("I")] == 1:
        return None
    if (step > 1 and not isinstance(depth, int)) or not graph.may_add(filter_.nbytes):
        return None
    taps = filter_.transpose([str(binding.attrs["kernel_layout"]).index(letter) for letter in _FILTER])
    num_outputs, num_taps, num_inputs, *window = taps.shape
    if num_taps > _MOST_TAPS or num_outputs * num_inputs < _LEAST_PRODUCTS:
        return None
    volume: Value = graph.emit("permute_dims", (x,), {"axes": order}, name="volume")
    if front or back:
        volume = graph.emit("nn.pad", (volume,), {"pad_width": (0, 0, front, back, *(0,) * 6)}, name="padded")
    slices = [_slices(graph, volume, tap * gap, (num_taps - 1 - tap) * gap, step) for tap in range(num_taps)]
    if groups > 1:  # the channels of a group lie side by side
        apart = (*shape_of(slices[0])[:-1], groups, num_inputs)
        slices = [graph.emit("reshape", (part,), {"shape": apart}, name="groups") for part in slices]
    stacked = slices[0] if num_taps == 1 else graph.emit("concat", slices, {"axis": -1}, name="stacked")
    attrs = {
        "strides": tuple(strides),
        "padding": (*before, *after),
        "dilation": tuple(dilation),
        "data_layout": "NHWC",
        "kernel_layout": "OIHW",
        "groups": groups,
    }
    shape = (batch * num_images, *shape_of(volume)[2:4], groups * num_taps * num_inputs)
    images = graph.emit("reshape", (stacked,), {"shape": shape}, name="images")
    kernel = graph.const(np.ascontiguousarray(taps).reshape(num_outputs, num_taps * num_inputs, *window))
    # The convolution bears the name of the result, by which schedules are offered and chosen.
    result = graph.emit("nn.conv2d", (images, kernel), attrs, schedule=binding.schedule)
    volumes = graph.emit("reshape", (result,), {"shape": (batch, num_images, *size, channels)}, name="apart")
    return (graph.emit("permute_dims", (volumes,), {"axes": tuple(map(_LAYOUT.index, layout))}, name="volumes"),)


def _before_reshape(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    """Compute an elementwise op on the images of a convolution, before these are volumes again."""
    shape = shape_of(binding.result)
    for position, operand in enumerate(binding.operands):
        reshape = graph.maker(operand, "reshape")
        if reshape is None or shape_of(operand) != shape or graph.num_uses(operand) != 1:
            continue
        images = reshape.operands[0]
        if graph.maker(images, "nn.conv2d", *SCALAR_OPS, _BIAS) is None or graph.num_uses(images) != 1:
            continue
        sizes, attrs = shape_of(images), binding.attrs
        if sizes[1:] != shape[2:]:
            continue
        if binding.op.name == _BIAS:
            if position or axis_of(binding, len(shape)) != len(shape) - 1:
                return None
            attrs = {**attrs, "axis": len(sizes) - 1}
        operands = list(binding.operands)
        operands[position] = images
        for other, value in enumerate(binding.operands):
            if other != position and shape_of(value) == shape:
                operands[other] = graph.emit("reshape", (value,), {"shape": sizes}, name="images")
            elif other != position and shape_of(value) not in ((), shape[-1:]):
                return None
        result = graph.emit(binding.op, operands, attrs)
        return (graph.emit("reshape", (result,), {"shape": shape}, name="apart"),)
    return None


def _slices(graph: RewriteGraph, volume: Value, first: int, behind: int, step: int) -> Value:
    """Return every ``step``-th slice of a volume but for the first and for those behind the last."""
    if not (first or behind) and step == 1:
        return volume
    attrs = {"axes": (1,), "begin": (first,), "end": (-behind or _END,), "strides": (step,)}
    return graph.emit("strided_slice", (volume,), attrs, name="slices")
