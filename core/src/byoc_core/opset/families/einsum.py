"""Einstein sums."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from byoc_core.dims import Dim, broadcast_dim, product
from byoc_core.errors import IRTypeError
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray, native_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.rounding import SUM
from byoc_core.opset.type_rules import NUMBER_KINDS, require_kind, require_same_dtype
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]


def _einsum(*operands: NDArray, equation: str) -> NDArray:
    """Gives the sum of products that an equation says, by matrix products where these can do it.

    Cost: that of the cheapest order of pairs found greedily.
    """
    dtype = operands[0].dtype
    wide = native_dtype(dtype)  # older numpy sums no products of other types
    result = np.einsum(equation, *(operand.astype(wide, copy=False) for operand in operands), optimize="greedy")
    return np.array(result).astype(dtype, copy=False)


def _infer_einsum(context: TypeContext) -> tuple[Type, ...]:
    if not context.operands:
        raise context.error("multiplies no operands", expected="one operand or more")
    require_kind(context, 0, NUMBER_KINDS)
    dtype = require_same_dtype(context, 0, *range(1, len(context.operands)))
    equation = context.attrs["equation"].replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if not all(_is_term(term) for term in (*terms, right)):
        raise context.error(
            "attribute `equation` is malformed",
            got=repr(equation),
            expected="letters and `...`, operands apart by commas, then `->` and the result",
        )
    if len(terms) != len(context.operands):
        raise context.error(
            f"attribute `equation` names {len(terms)} operands", got=repr(equation), expected=len(context.operands)
        )
    sizes: dict[str, Dim] = {}
    rank = 0  # of the axes that `...` stands for
    for index, term in enumerate(terms):
        labels = _labels(context, index, term)
        rank = max(rank, sum(label.isdigit() for label in labels))
        for axis, (label, size) in enumerate(zip(labels, context.shape(index), strict=True)):
            _join(context, sizes, label, size, index, axis)
    if not arrow:
        right = _implicit_result(left)
    names = right.replace("...", "")
    unknown = sorted(set(names) - sizes.keys())
    if unknown or len(set(names)) != len(names):
        raise context.error(
            "attribute `equation` has a result with an axis that no operand has, or with one twice", got=right
        )
    ellipsis = [str(place) for place in reversed(range(rank))] if "..." in right else []
    before, _, after = right.partition("...")
    return (TensorType(tuple(sizes[label] for label in (*before, *ellipsis, *after)), dtype),)


def _is_term(term: str) -> bool:
    letters = term.replace("...", "", 1)
    return letters.isascii() and (letters.isalpha() or not letters)


def _implicit_result(left: str) -> str:
    """Gives the result of an equation without ``->``: the letters that stand once, in order."""
    once = sorted(letter for letter in set(left) if letter.isalpha() and left.count(letter) == 1)
    return ("..." if "..." in left else "") + "".join(once)


def _labels(context: TypeContext, index: int, term: str) -> list[str]:
    """Gives a label for each axis of an operand; those under ``...`` are numbered from the last."""
    shape = context.shape(index)
    before, ellipsis, after = term.partition("...")
    hidden = len(shape) - len(before) - len(after)
    if hidden < 0 or (hidden and not ellipsis):
        raise context.error(
            f"has rank {len(shape)}, but attribute `equation` names {len(before) + len(after)} axes",
            operand=index,
            got=repr(term),
        )
    return [*before, *(str(place) for place in reversed(range(hidden))), *after]


def _join(context: TypeContext, sizes: dict[str, Dim], label: str, size: Dim, index: int, axis: int) -> None:
    try:
        sizes[label] = broadcast_dim(sizes.get(label, 1), size)
    except IRTypeError as error:
        raise context.error(
            f"axis {axis} has size {size}", operand=index, expected=f"{sizes[label]}, as other axes of its label"
        ) from error


def _einsum_flops(context: OpContext) -> Dim:
    """One operation for each operand and each combination of indices, as if in one loop nest."""
    sizes: dict[str, Dim] = {}
    left = context.attrs["equation"].replace(" ", "").partition("->")[0]
    for term, type_ in zip(left.split(","), context.operands, strict=True):
        if not isinstance(type_, TensorType) or type_.shape is None:
            return 0
        before, _, after = term.partition("...")
        hidden = len(type_.shape) - len(before) - len(after)
        labels = [*before, *(str(place) for place in reversed(range(hidden))), *after]
        _widen(sizes, dict(zip(labels, type_.shape, strict=True)))
    return product(sizes.values()) * len(context.operands)


def _widen(sizes: dict[str, Dim], found: Mapping[str, Dim]) -> None:
    for label, size in found.items():
        sizes[label] = broadcast_dim(sizes.get(label, 1), size)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "einsum",
        (OperandSpec("operands", variadic=True),),
        _infer_einsum,
        attrs=(
            AttrSpec(
                "equation",
                AttrKind.STR,
                doc="A letter for each axis of each operand, and after ``->`` those of the result; ``...`` stands for "
                "any axes, which broadcast.",
            ),
        ),
        flops=_einsum_flops,
        kernel=NumpyKernel(_einsum),
        rounding=SUM,
        cases=lambda: (
            example((2, 3), (3, 4), equation="ij,jk->ik"),
            example((6, 2, 3), (6, 3, 4), equation="bij,bjk->bik"),
            example((2, 3), equation="ij->ji"),
        ),
        doc="Gives the products of elements whose letters agree, summed over the letters that the result lacks.\n\n"
        "Shapes: axes of one letter have one size, or 1; the result has the sizes of its letters.",
    ),
)
"""The family's ops."""
