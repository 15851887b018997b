"""Folding of batch normalisation into the preceding weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dtypes import dtype_name
from byoc_core.ir import Binding, IRModule, Value
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewriter import RewriteGraph, Rules, rewrite_module
from byoc_core.transform.tensors import rank_of, smallest_normal

__all__ = ["FoldBatchNorm", "fold_into_product", "is_sound"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class FoldBatchNorm(Pass):
    """Folding of ``nn.batch_norm`` into a preceding convolution (transposed too) or matrix product.

    The product may have a bias. With ``scale = gamma / sqrt(variance + epsilon)`` the weights become ``weight * scale``
    and the bias ``(bias - mean) * scale + beta``, computed in float64 and rounded once. The results are the same in
    real numbers; in floating point each term of a sum has an additional rounding.

    Conditions: all of these operands are constant; intermediate values have no other readers; the normalised axis is
    the axis of output channels; the new numbers are finite, and no weight leaves the range of normal numbers.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with folded weights. Cost: linear in ops and in the changed weights."""
        return rewrite_module(module, _RULES)


def _fold(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    statistics = [graph.array(operand) for operand in binding.operands[1:]]
    if any(array is None for array in statistics):
        return None
    gamma, beta, mean, variance = (_wide(array) for array in statistics)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + np.float64(_attrs(binding)["epsilon"]))
    return fold_into_product(binding.operands[0], _attrs(binding)["axis"], scale, mean, beta, graph)


def fold_into_product(
    source: Value, axis: int, scale: Array, mean: Array, shift: Array, graph: RewriteGraph
) -> Sequence[Value] | None:
    """Compute ``(source - mean) * scale + shift`` by new weights and bias; return ``None`` if not possible.

    Args:
        source: the result of a convolution or matrix product, with or without bias.
        axis: the axis of ``source`` to scale and shift.
        scale: float64 numbers, one for each element of the axis; ``mean`` and ``shift`` likewise.
        mean: numbers subtracted before scaling.
        shift: numbers added after scaling.
        graph: the graph to rewrite; the rule emits new ops into the graph.
    """
    rank = rank_of(source)
    if not rank:
        return None
    product, bias = _find_product(source, axis, rank, graph)
    if product is None:
        return None
    channel_axis, out_axis = _axes(product, rank)
    weight = graph.array(product.operands[1])
    if weight is None or weight.ndim < 2 or axis % rank != channel_axis or not graph.may_add(weight.nbytes):
        return None
    with np.errstate(all="ignore"):
        factor = _shape_factors(scale, product, weight.ndim, out_axis)
        new_weight = (_wide(weight) * factor).astype(weight.dtype)
        new_bias = ((_wide(bias) - mean) * scale + shift).astype(weight.dtype)
    if not (is_sound(new_weight, weight, factor) and np.isfinite(_wide(new_bias)).all()):
        return None
    weights = (product.operands[0], graph.const(new_weight))
    if bias is None and not new_bias.any():
        return (graph.emit(product.op.name, weights, product.attrs),)
    folded = graph.emit(product.op.name, weights, product.attrs, name=product.results[0].name)
    return (graph.emit("nn.bias_add", (folded, graph.const(new_bias)), {"axis": axis}),)


def _find_product(source: Value, axis: int, rank: int, graph: RewriteGraph) -> tuple[Binding | None, Array | None]:
    """Return the convolution or matrix product computing a value, and the constant bias after the product, if any."""
    bias: Array | None = None
    added = graph.maker(source, "nn.bias_add")
    if added is not None:
        bias = graph.array(added.operands[1])
        if bias is None or (_attrs(added)["axis"] - axis) % rank or graph.num_uses(source) != 1:
            return None, None
        source = added.operands[0]
    product = graph.maker(source, *_PRODUCTS)
    return (product if graph.num_uses(source) == 1 else None), bias


_TRANSPOSED = ("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d", *_TRANSPOSED)
_PRODUCTS = (*_CONVOLUTIONS, "nn.dense", "matmul")


def _axes(product: Binding, rank: int) -> tuple[int, int]:
    """Return the axis of output channels in the result, and in the weights."""
    if product.op.name in _CONVOLUTIONS:
        return str(product.attrs["data_layout"]).index("C"), str(product.attrs["kernel_layout"]).index("O")
    last = (rank_of(product.operands[1]) or 1) - 1
    return rank - 1, 0 if product.op.name == "nn.dense" else last


def _shape_factors(scale: Array, product: Binding, rank: int, out_axis: int) -> Array:
    """Return the factors of the output channels as an array broadcasting to the weights.

    A transposed convolution holds its output channels group by group: ``C // groups`` input channels (axis ``I``) of
    each group have only the ``O // groups`` output channels of the same group.
    """
    shape = [1] * rank
    groups = int(_attrs(product).get("groups", 1)) if product.op.name in _TRANSPOSED else 1
    shape[out_axis] = scale.size // groups
    if groups == 1:
        return scale.reshape(shape)
    in_axis = str(product.attrs["kernel_layout"]).index("I")
    weight: Any = product.operands[1].type
    parts = [
        np.repeat(part.reshape(shape), weight.shape[in_axis] // groups, axis=in_axis)
        for part in scale.reshape(groups, -1)
    ]
    return np.concatenate(parts, axis=in_axis)


def _attrs(binding: Binding) -> dict[str, Any]:
    return dict(binding.attrs)


def _wide(array: Array | None) -> Array:
    return np.zeros((), np.float64) if array is None else array.astype(np.float64)


def is_sound(new: Array, old: Array, scale: Array) -> bool:
    """Return whether old weights times ``scale`` are finite, and normal numbers wherever not truly zero."""
    wide = np.abs(_wide(new))
    is_zero = np.broadcast_to(scale == 0, old.shape) | (_wide(old) == 0)
    return bool(np.isfinite(wide).all() and ((wide >= smallest_normal(dtype_name(old.dtype))) | is_zero).all())


_RULES: Rules = {"nn.batch_norm": (_fold,)}
