"""Folding of per-channel scales and shifts into the preceding parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.ir import Binding, IRModule, Value
from byoc_core.transform.fold_batch_norm import fold_into_product, is_sound
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewriter import RewriteGraph, Rules, rewrite_module
from byoc_core.transform.tensors import rank_of, shape_of

__all__ = ["FoldScales"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class FoldScales(Pass):
    """Folding of a constant factor, or term, of each channel into the op computing the channels.

    The op is a convolution (transposed too) or matrix product, with or without bias, or ``nn.batch_norm``. A product
    gets new weights and bias, ``nn.batch_norm`` a new ``gamma`` and ``beta``. A term is folded only into an existing
    bias or ``beta``. In some networks, these factors and terms follow a batch normalisation.

    New numbers are computed in float64 and rounded once. The results are the same in real numbers; in floating point
    each term of a sum has an additional rounding.

    Conditions: all of these operands are constant; intermediate values have no other readers; the new numbers are
    finite, and no factor leaves the range of normal numbers. The pass is meant for backends calling a library without a
    cheap place for such ops; a backend generating code loses nothing by such ops.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with folded parameters. Cost: linear in ops and in the changed parameters."""
        return rewrite_module(module, _RULES)


def _fold_factor(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    found = _find_numbers(binding, graph)
    if found is None:
        return None
    source, axis, scale = found
    nothing = np.zeros_like(scale)
    return _fold_into_norm(source, axis, scale, nothing, graph) or fold_into_product(
        source, axis, scale, nothing, nothing, graph
    )


def _fold_term(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    found = _find_numbers(binding, graph)
    if found is None:
        return None
    source, axis, shift = found
    if graph.maker(source, "nn.bias_add") is not None:
        return fold_into_product(source, axis, np.ones_like(shift), np.zeros_like(shift), shift, graph)
    return _fold_into_norm(source, axis, np.ones_like(shift), shift, graph)


def _find_numbers(binding: Binding, graph: RewriteGraph) -> tuple[Value, int, Array] | None:
    """Return the operand other than the constant, the channel axis, and the channels' numbers in float64.

    The axis is the only axis of the constant with a size other than 1. ``None`` if the constant has another form or the
    other operand has further readers.
    """
    for source, other in (binding.operands, binding.operands[::-1]):
        array, shape = graph.array(other), shape_of(source)
        if array is None or shape is None or shape != shape_of(binding.results[0]) or graph.num_uses(source) != 1:
            continue
        sizes = (1,) * (len(shape) - array.ndim) + array.shape
        axes = [axis for axis, size in enumerate(sizes) if size != 1]
        if len(axes) == 1 and sizes[axes[0]] == shape[axes[0]]:
            return source, axes[0], array.astype(np.float64).reshape(-1)
    return None


def _fold_into_norm(
    source: Value, axis: int, scale: Array, shift: Array, graph: RewriteGraph
) -> Sequence[Value] | None:
    norm = graph.maker(source, "nn.batch_norm")
    rank = rank_of(source)
    if norm is None or not rank:
        return None
    attrs: dict[str, Any] = dict(norm.attrs)
    gamma, beta = (graph.array(operand) for operand in norm.operands[1:3])
    if gamma is None or beta is None or (attrs["axis"] - axis) % rank:
        return None
    with np.errstate(all="ignore"):
        new_gamma = (gamma.astype(np.float64) * scale).astype(gamma.dtype)
        new_beta = (beta.astype(np.float64) * scale + shift).astype(beta.dtype)
    if not (is_sound(new_gamma, gamma, scale) and np.isfinite(new_beta.astype(np.float64)).all()):
        return None
    operands = (norm.operands[0], graph.const(new_gamma), graph.const(new_beta), *norm.operands[3:])
    return (graph.emit("nn.batch_norm", operands, norm.attrs),)


_RULES: Rules = {"multiply": (_fold_factor,), "add": (_fold_term,)}
