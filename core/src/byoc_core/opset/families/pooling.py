"""Pooling over one, two or three spatial axes: by sliding windows, and by a given number of windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from byoc_core.dims import Dim, product
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec, AttrValue
from byoc_core.opset.cases import OpCase, example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.families import pooling_kernels as kernels
from byoc_core.opset.opdef import PURE, SELECTING, OpDef, OperandSpec
from byoc_core.opset.rounding import EXACT, NORM, SUM, Rounding
from byoc_core.opset.type_rules import FLOAT_KINDS, NUMBER_KINDS, require_kind, require_rank
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.value_bounds import BoundRule, ValueFacts, bound_of_first, mean_bound
from byoc_core.opset.windows import (
    DATA_LAYOUTS,
    RANKS,
    axes_of,
    axis_letters,
    axis_names,
    canonicalise_windows,
    count_windows,
    example_image,
    layout_text,
)

__all__ = ["OPS"]


def _infer_pool(
    context: TypeContext, kinds: tuple[str, ...], *, layout: str | None = None, dtype: str | None = None
) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, kinds)
    attrs = context.attrs
    layout = attrs["layout"] if layout is None else layout
    shape = require_rank(context, 0, len(layout), layout_text(layout))
    axes = axes_of(layout, "NC")[2:]
    for axis, name in enumerate(axis_names(len(axes))):
        reach = (attrs["pool_size"][axis] - 1) * attrs["dilation"][axis] + 1
        for side, padding in (("begin", attrs["padding"][axis]), ("end", attrs["padding"][axis + len(axes)])):
            if padding >= reach:
                raise context.error(
                    f"attribute `padding` at the {side} of the {name} is not smaller than the window",
                    got=padding,
                    expected=f"less than {reach}",
                )
    result = list(shape)
    for axis, count in zip(axes, count_windows(context, [shape[a] for a in axes], attrs["pool_size"]), strict=True):
        result[axis] = count
    return (TensorType(tuple(result), type_.dtype if dtype is None else dtype),)


def _infer_argmax_pool(context: TypeContext) -> tuple[Type, ...]:
    layout = DATA_LAYOUTS[len(context.attrs["pool_size"])][0]
    return _infer_pool(context, NUMBER_KINDS, layout=layout, dtype="int64")


def _infer_max_pool(context: TypeContext) -> tuple[Type, ...]:
    return _infer_pool(context, NUMBER_KINDS)


def _infer_float_pool(context: TypeContext) -> tuple[Type, ...]:
    return _infer_pool(context, FLOAT_KINDS)


def _infer_lp_pool(context: TypeContext) -> tuple[Type, ...]:
    if context.attrs["p"] < 1:
        raise context.error("attribute `p` is too small", got=context.attrs["p"], expected="1 or more")
    return _infer_pool(context, FLOAT_KINDS)


def _infer_adaptive(kinds: tuple[str, ...]) -> Callable[[TypeContext], tuple[Type, ...]]:
    def infer(context: TypeContext) -> tuple[Type, ...]:
        type_ = require_kind(context, 0, kinds)
        layout, out_sizes = context.attrs["layout"], context.attrs["output_size"]
        shape = list(require_rank(context, 0, len(layout), layout_text(layout)))
        axes = axes_of(layout, "NC")[2:]
        if len(out_sizes) != len(axes) or min(out_sizes) < 1:
            raise context.error(
                "attribute `output_size` does not fit",
                got=out_sizes,
                expected=f"{len(axes)} sizes of 1 or more: {', '.join(axis_names(len(axes)))}",
            )
        for axis, count in zip(axes, out_sizes, strict=True):
            if shape[axis] == 0:
                raise context.error(f"axis {axis} is empty", operand=0, got=type_, expected="a size of 1 or more")
            shape[axis] = count
        return (TensorType(tuple(shape), type_.dtype),)

    return infer


def _pool_flops(context: OpContext) -> Dim:
    return context.elements() * product(context.attrs["pool_size"])


def _lp_pool_flops(context: OpContext) -> Dim:
    return context.elements() * (product(context.attrs["pool_size"]) + 1) * 2


def _adaptive_flops(context: OpContext) -> Dim:
    """Return one operation for each element of the image; overlapping windows need slightly more."""
    return context.operand_elements(0)


def _window_elements(context: OpContext) -> int:
    return math.prod(context.ints("pool_size"))


def _largest_bound(facts: ValueFacts) -> float:
    """Return the bound of the largest elements of windows.

    Infinity if all taps of a window may lie outside the image, on both sides of the image along an axis: the largest
    element of padding alone is minus infinity.
    """
    attrs, shape = facts.context.attrs, facts.context.operand_shape()
    sizes = (shape[axis] for axis in axes_of(attrs["layout"], "NC")[2:])
    reaches = all(isinstance(size, int) and step <= size for size, step in zip(sizes, attrs["dilation"], strict=True))
    return facts.bound(0) if reaches or not any(attrs["padding"]) else math.inf


def _mean_bound(facts: ValueFacts) -> float:
    return mean_bound(facts, _window_elements(facts.context))


def _adaptive_mean_bound(facts: ValueFacts) -> float:
    return mean_bound(facts, math.prod(facts.sizes(0)[1:]))  # no window holds more


def _pool_cases(rank: int) -> Iterator[OpCase]:
    first, last = DATA_LAYOUTS[rank]
    ones, twos, threes = (1,) * rank, (2,) * rank, (3,) * rank
    yield example(example_image(first), pool_size=twos, strides=twos)
    yield example(example_image(first), pool_size=threes, strides=twos, padding=ones)
    yield example(example_image(first), pool_size=threes, strides=twos, ceil_mode=True)
    yield example(example_image(last), pool_size=twos, strides=twos, layout=last)


def _avg_pool_cases(rank: int) -> Iterator[OpCase]:
    image = example_image(DATA_LAYOUTS[rank][0])
    yield from _pool_cases(rank)
    yield example(image, pool_size=(3,) * rank, padding=(1,) * rank, count_include_pad=True)


def _adaptive_cases(rank: int) -> Iterator[OpCase]:
    first, last = DATA_LAYOUTS[rank]
    yield example(example_image(first), output_size=(1,) * rank)
    yield example(example_image(first), output_size=(3,) * rank)
    yield example(example_image(last), output_size=(1,) * rank, layout=last)


def _canonicalise(op: str, rank: int) -> Callable[[Mapping[str, AttrValue]], Mapping[str, AttrValue]]:
    return lambda attrs: canonicalise_windows(op, rank, attrs, strides_default="pool_size")


_COUNT_DOC = (
    "``OW = (W + before + after - (dilation * (KW - 1) + 1)) // stride + 1``; with ``ceil_mode`` the quotient is "
    "rounded up, if the last window then starts inside the image or the leading padding."
)


def _window_attrs(rank: int) -> tuple[AttrSpec, ...]:
    names = ", ".join(axis_names(rank))
    return (
        AttrSpec("pool_size", AttrKind.INTS, doc=f"Size of a window: {names}."),
        AttrSpec("strides", AttrKind.INTS, None, doc=f"Step between windows: {names}; ``None``: the window's size."),
        AttrSpec("padding", AttrKind.INTS, (0,) * (2 * rank), doc=f"Padding before {names}, then padding after."),
        AttrSpec("dilation", AttrKind.INTS, (1,) * rank, doc=f"Step between the taps of a window: {names}."),
        AttrSpec("ceil_mode", AttrKind.BOOL, False, doc="Whether to include a last, partial window."),
    )


def _argmax_pool_op(rank: int) -> OpDef:
    name, letters = f"nn.argmax_pool{rank}d", axis_letters(rank)
    sizes, out_sizes = ", ".join(letters), ", ".join(f"O{letter}" for letter in letters)
    return OpDef(
        name,
        (OperandSpec("x"),),
        _infer_argmax_pool,
        attrs=(
            *_window_attrs(rank),
            AttrSpec(
                "column_major",
                AttrKind.BOOL,
                False,
                doc="Whether the elements of a channel are counted in column-major order.",
            ),
        ),
        flops=_pool_flops,
        kernel=NumpyKernel(kernels.argmax_pool, gives=fixed_dtype("int64"), fresh=True),
        rounds=_window_elements,
        canonicalise=_canonicalise(name, rank),
        rounding=EXACT,
        cases=lambda: (case for case in _pool_cases(rank) if "layout" not in case.attrs),
        doc="Return the index of the largest element of every window, counted over all elements of ``x`` in row-major "
        "order; -1 for a window of padding alone. NaN is the largest; of equal elements, the first of the window "
        f"counts.\n\nShapes: ``(N, C, {sizes}) -> (N, C, {out_sizes})`` with {_COUNT_DOC}",
    )


def _pool_op(
    kind: str,
    rank: int,
    doc: str,
    infer: Callable[[TypeContext], tuple[Type, ...]],
    kernel: NumpyKernel,
    *,
    attrs: tuple[AttrSpec, ...] = (),
    flops: Callable[[OpContext], Dim] = _pool_flops,
    rounding: Rounding,
    bound: BoundRule | None = None,
    cases: Callable[[int], Iterator[OpCase]] = _pool_cases,
) -> OpDef:
    name, letters = f"nn.{kind}_pool{rank}d", axis_letters(rank)
    layouts = DATA_LAYOUTS[rank]
    sizes, out_sizes = ", ".join(letters), ", ".join(f"O{letter}" for letter in letters)
    return OpDef(
        name,
        (OperandSpec("x"),),
        infer,
        attrs=(
            *_window_attrs(rank),
            *attrs,
            AttrSpec("layout", AttrKind.STR, layouts[0], layouts, doc="Axes of ``x`` and of the result."),
        ),
        traits=SELECTING if kind == "max" else PURE,
        flops=flops,
        kernel=kernel,
        rounds=_window_elements,
        canonicalise=_canonicalise(name, rank),
        rounding=rounding,
        bound=bound,
        cases=lambda: cases(rank),
        doc=f"{doc}\n\nShapes (``NC{letters}``): ``(N, C, {sizes}) -> (N, C, {out_sizes})`` with {_COUNT_DOC}",
    )


def _adaptive_op(
    kind: str,
    rank: int,
    doc: str,
    kinds: tuple[str, ...],
    kernel: NumpyKernel,
    *,
    rounding: Rounding,
    bound: BoundRule,
) -> OpDef:
    letters, layouts = axis_letters(rank), DATA_LAYOUTS[rank]
    sizes, out_sizes = ", ".join(letters), ", ".join(f"O{letter}" for letter in letters)
    return OpDef(
        f"nn.adaptive_{kind}_pool{rank}d",
        (OperandSpec("x"),),
        _infer_adaptive(kinds),
        attrs=(
            AttrSpec("output_size", AttrKind.INTS, doc=f"Number of windows: {', '.join(axis_names(rank))}."),
            AttrSpec("layout", AttrKind.STR, layouts[0], layouts, doc="Axes of ``x`` and of the result."),
        ),
        traits=SELECTING if kind == "max" else PURE,
        flops=_adaptive_flops,
        kernel=kernel,
        rounding=rounding,
        bound=bound,
        cases=lambda: _adaptive_cases(rank),
        doc=f"{doc} Window ``i`` of ``OW`` begins at ``i * W // OW`` and ends before ``ceil((i + 1) * W / OW)``.\n\n"
        f"Shapes (``NC{letters}``): ``(N, C, {sizes}) -> (N, C, {out_sizes})``.",
    )


def _pool_ops(rank: int) -> tuple[OpDef, ...]:
    return (
        _pool_op(
            "max",
            rank,
            "Return the largest element of every window; padding is ignored; NaN is the largest.",
            _infer_max_pool,
            NumpyKernel(kernels.max_pool, fresh=True, scratch=kernels.scratch_nbytes),
            rounding=EXACT,
            bound=_largest_bound,
        ),
        _pool_op(
            "avg",
            rank,
            "Return the mean of every window. Elements added by ``ceil_mode`` beyond the padding never count; a window "
            "without any element yields 0.",
            _infer_float_pool,
            NumpyKernel(kernels.avg_pool, fresh=True, scratch=kernels.scratch_nbytes),
            attrs=(
                AttrSpec(
                    "count_include_pad",
                    AttrKind.BOOL,
                    False,
                    doc="Whether padding counts as zeros, instead of being left out.",
                ),
            ),
            rounding=SUM,
            bound=_mean_bound,
            cases=_avg_pool_cases,
        ),
        _pool_op(
            "lp",
            rank,
            "Return ``sum(|x| ** p) ** (1/p)`` of every window; padding counts as zeros.",
            _infer_lp_pool,
            NumpyKernel(kernels.lp_pool, fresh=True),
            attrs=(AttrSpec("p", AttrKind.INT, 2, doc="The exponent."),),
            flops=_lp_pool_flops,
            rounding=NORM,
        ),
    )


def _adaptive_ops(rank: int) -> tuple[OpDef, ...]:
    return (
        _adaptive_op(
            "max",
            rank,
            "Return the largest element of every window; NaN is the largest.",
            NUMBER_KINDS,
            NumpyKernel(kernels.adaptive_max_pool),
            rounding=EXACT,
            bound=bound_of_first,
        ),
        _adaptive_op(
            "avg",
            rank,
            "Return the mean of every window.",
            FLOAT_KINDS,
            NumpyKernel(kernels.adaptive_avg_pool),
            rounding=SUM,
            bound=_adaptive_mean_bound,
        ),
    )


def _argmax_pool_ops(rank: int) -> tuple[OpDef, ...]:
    return (_argmax_pool_op(rank),)


OPS: tuple[OpDef, ...] = tuple(
    op for make in (_pool_ops, _adaptive_ops, _argmax_pool_ops) for rank in RANKS for op in make(rank)
)
"""The family's ops."""
