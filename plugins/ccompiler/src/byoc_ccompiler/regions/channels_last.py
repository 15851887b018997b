"""Convolutional parts with channels last: the layout in which their kernels are fast.

Each convolution and pooling with channels in front becomes one with channels last between two transposes; those between
neighbours meet and cancel (:class:`byoc_core.transform.MoveTransposes`), so that they remain at the borders of a region
only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from byoc_core.ir import Binding, Function, IRModule, TensorType, Value, Var
from byoc_core.transform import MoveTransposes

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.regions.writer import RegionWriter
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["channels_last"]

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d")
_LAYOUTS = {
    "nn.conv1d": "data_layout",
    "nn.conv2d": "data_layout",
    "nn.max_pool2d": "layout",
    "nn.avg_pool2d": "layout",
}
_CHANNELS_LAST = {"NCW": "NWC", "NCHW": "NHWC"}


def _last(rank: int) -> tuple[int, ...]:
    """Gives the axes of an image with channels in front, in the order in which they come last."""
    return (0, *range(2, rank), 1)


def _first(rank: int) -> tuple[int, ...]:
    """Gives the axes of an image with channels last, in the order in which they stand in front."""
    return (0, rank - 1, *range(1, rank - 1))


def _can_turn(binding: Binding, families: Mapping[str, KernelFamily]) -> bool:
    """Tells whether an op has channels in front, and its family a kernel for channels last."""
    attribute = _LAYOUTS.get(binding.op.name)
    if attribute is None or binding.attrs[attribute] not in _CHANNELS_LAST:
        return False
    image, *weights = binding.operands
    turned = replace(
        binding,
        operands=(_turned(image), *weights),
        results=(_turned(binding.result),),
        attrs={**binding.attrs, attribute: _CHANNELS_LAST[str(binding.attrs[attribute])]},
    )
    return families[binding.op.name].reject(turned) is None


def _turned(value: Value) -> Var:
    shape = shape_of(value)
    return Var("turned", TensorType(tuple(shape[axis] for axis in _last(len(shape))), dtype_of(value)))


def channels_last(module: IRModule, families: Mapping[str, KernelFamily]) -> IRModule:
    """Gives the module with channels last in convolutions, and in pooling too in functions that have a convolution."""
    changed = {name: _turn(function, families) for name, function in module.functions.items()}
    if all(changed[name] is function for name, function in module.functions.items()):
        return module
    return MoveTransposes(keep_bits=False)(module.with_functions(changed))


def _turn(function: Function, families: Mapping[str, KernelFamily]) -> Function:
    found = {binding for binding in function.bindings if _can_turn(binding, families)}
    if all(binding.op.name not in _CONVOLUTIONS for binding in found):
        return function
    writer = RegionWriter(function)
    makers: dict[Value, Binding] = {result: binding for binding in function.bindings for result in binding.results}
    for binding in function.bindings:
        if binding in found:
            image, *weights = (writer.value(operand) for operand in binding.operands)
            attribute = _LAYOUTS[binding.op.name]
            attrs = {**binding.attrs, attribute: _CHANNELS_LAST[str(binding.attrs[attribute])]}
            (turned,) = writer.emit(binding, "permute_dims", [image], {"axes": _last(len(shape_of(image)))})
            (result,) = writer.emit(binding, binding.op.name, [turned, *weights], attrs)
        elif (shuffled := _find_shuffle(binding, makers)) is not None:
            image, num_groups = shuffled
            (turned,) = writer.emit(binding, "permute_dims", [writer.value(image)], {"axes": _last(4)})
            result = _emit_shuffle(writer, binding, turned, num_groups)
        else:
            writer.copy(binding)
            continue
        axes = _first(len(shape_of(result)))
        writer.replace(binding, writer.emit(binding, "permute_dims", [result], {"axes": axes}))
    return writer.finish()


def _find_shuffle(binding: Binding, makers: Mapping[Value, Binding]) -> tuple[Value, int] | None:
    """Gives (image, number of groups) where an op is the last of a channel shuffle over NCHW.

    That is the channels seen as a matrix of groups times members, transposed, and seen as one axis again (Zhang et al.
    2018, ShuffleNet).
    """
    permute = _maker(binding, "reshape", makers)
    split = _maker(permute, "permute_dims", makers)
    if permute is None or split is None or split.op.name != "reshape" or permute.attrs["axes"] != (0, 2, 1, 3, 4):
        return None
    image = split.operands[0]
    shape, parts = shape_of(image), shape_of(split.result)
    if len(shape) != 4 or (parts[0], *parts[3:]) != (shape[0], *shape[2:]) or shape_of(binding.result) != shape:
        return None
    return (image, parts[1]) if isinstance(parts[1], int) and isinstance(parts[2], int) else None


def _maker(binding: Binding | None, op: str, makers: Mapping[Value, Binding]) -> Binding | None:
    """Gives what makes the first operand of an op of this name."""
    return makers.get(binding.operands[0]) if binding is not None and binding.op.name == op else None


def _emit_shuffle(writer: RegionWriter, binding: Binding, image: Value, num_groups: int) -> Value:
    shape = shape_of(image)
    *lead, channels = shape
    (split,) = writer.emit(binding, "reshape", [image], {"shape": (*lead, num_groups, channels // num_groups)})
    (swapped,) = writer.emit(binding, "permute_dims", [split], {"axes": (0, 1, 2, 4, 3)})
    (merged,) = writer.emit(binding, "reshape", [swapped], {"shape": shape})
    return merged
