"""Products of matrices and of stacks of matrices.

A product of few rows with large constant weights is computed as its transpose, ``weights.T @ rows.T``. oneDNN then
reads the left operand once, from memory, while the right operand stays in cache. In the usual order each panel of
weights is waited for before use (``docs/notes/transposed-products.md``). The result and the operand have rows innermost
in memory: the following product reads the result unchanged.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Argument, Isa, Query
from byoc_dnnl.handles import MemoryDesc, PrimitiveDesc
from byoc_dnnl.lowerings.epilogue import add_with_followers, dtype_after, first_reason
from byoc_dnnl.lowerings.factors import Factors, byte_factors
from byoc_dnnl.lowerings.flattening import flat_weights
from byoc_dnnl.lowerings.named_primitives import as_chosen, implementations
from byoc_dnnl.lowerings.quantised_weights import add_quantised_product
from byoc_dnnl.lowerings.views import permuted_axes
from byoc_dnnl.post_ops import PostOp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.lowerings.named_primitives import NamedPrimitive
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = ["lower_dense", "lower_matmul"]


def lower_dense(call: Call, planner: Planner) -> str | None:
    """Add ``x @ weight.T``; all leading axes of ``x`` are rows."""
    x, weight = call.inputs
    inner = sizes_of(call.operands[0])[-1]
    flat = planner.flattened(x)

    def weights(dtype: str) -> Location:
        location = flat_weights(flat, planner, weight, 1) if flat else planner.location_as(weight, dtype)
        return location.view_as(location.desc.permuted((1, 0)))

    return _add_product(call, planner, x, (-1, inner), weight, weights)


def lower_matmul(call: Call, planner: Planner) -> str | None:
    """Add a product of stacks of matrices; with a ``y`` of two axes all leading axes of ``x`` are rows."""
    x, y = call.inputs
    left, right = (sizes_of(tensor) for tensor in call.operands)
    if len(right) == 1:
        right = (*right, 1)
    target: tuple[int, ...] = (-1, left[-1])
    if len(right) > 2:
        left = left if len(left) > 1 else (1, *left)
        rank = max(len(left), len(right))
        target, right = ((1,) * (rank - len(sizes)) + sizes for sizes in (left, right))

    flat = planner.flattened(x)

    def weights(dtype: str) -> Location:
        if flat:
            return flat_weights(flat, planner, y, 0)
        location = planner.location_as(y, dtype)
        view = location.desc.reshaped(right)
        if view is None:
            location, view = planner.row_major_location(y, dtype), planner.row_major(right, dtype)
        return location.view_as(view.with_plain_unit_axes())

    return _add_product(call, planner, x, target, y, weights)


def _add_product(
    call: Call, planner: Planner, x: int, left: tuple[int, ...], weight: int, weights: Callable[[str], Location]
) -> str | None:
    """Add a product, with factors of the best dtype for which a product exists.

    Args:
        call: the call.
        planner: the plan.
        x: the value of the left operand.
        left: the required sizes of the left operand; -1 for all leading axes.
        weight: the value of the right operand.
        weights: returns the location of the right operand in a dtype, as ``(..., K, N)``.
    """
    axis = 0 if call.op == "nn.dense" else 1
    factors = byte_factors(call, planner, axis) if len(call.operands[1].shape) == 2 else None
    if factors is not None and _add_byte_product(call, planner, factors, axis) is None:
        return None
    if add_quantised_product(call, planner) is None:
        return None
    if (
        planner.schedule_of(call) is None
        and not planner.collects
        and _prefers_transpose(call, planner)
        and _add_transposed_product(call, planner, x, weight, weights("float32")) is None
    ):
        return None
    reason = None
    for dtype in planner.factor_dtypes(call):
        # Constants are converted when they are packed.
        right_dtype = planner.declared_dtype(weight) if planner.is_constant(weight) else dtype
        candidates = _weight_candidates(planner, weight, weights(right_dtype))
        reason = first_reason(_add_product_of(call, planner, x, left, weight, right, dtype) for right in candidates)
        if reason is None:
            break
    return reason


def _weight_candidates(planner: Planner, weight: int, weights: Location) -> Iterator[Location]:
    """Yield the right operand unchanged, then row-major: products are fast with contiguous rows or columns."""
    yield weights
    if not planner.is_constant(weight) and not weights.desc.is_row_major():
        yield planner.reordered(weight, weights, planner.row_major(weights.desc.sizes, weights.desc.dtype))


def _add_byte_product(call: Call, planner: Planner, factors: Factors, axis: int) -> str | None:
    """Add a product of bytes with a constant matrix, with outputs along ``axis``."""
    (x, source), (weight, matrix) = factors.left, factors.right
    weights = matrix.view_as(matrix.desc.permuted((1 - axis, axis)))
    inner, columns = weights.desc.sizes
    sizes, result = (_rows(sizes_of(call.operands[0])), inner), sizes_of(call.result)
    target_sizes, target_dtype = (sizes[0], columns), factors.result_dtype(call, planner)
    if not source.desc.is_row_major():
        source = planner.reordered(x, source, planner.row_major(source.desc.sizes, factors.left_dtype))
    source = source.view_as(planner.row_major(sizes, factors.left_dtype))

    def make(post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
        right = planner.any_layout(weights.desc.sizes, factors.right_dtype)
        target = planner.row_major(target_sizes, dtype_after(post_ops, target_dtype))
        return planner.factory.matmul(source.desc, right, None, target, post_ops, factors.scaling(0b10))

    def arguments(primitive: PrimitiveDesc) -> Mapping[int, Location]:
        packed = planner.reordered(weight, weights, primitive.memory_desc(Query.WEIGHTS_MD))
        return {Argument.SRC: source, Argument.WEIGHTS: packed, **factors.arguments(planner)}

    return add_with_followers(
        call,
        planner,
        make,
        arguments,
        lambda desc: _to_matrix(desc, result, target_sizes),
        lambda desc: desc if target_sizes == result else planner.row_major(result, desc.dtype),
        accepts_quantize=True,
    )


def _add_product_of(
    call: Call, planner: Planner, x: int, left: tuple[int, ...], weight: int, weights: Location, dtype: str
) -> str | None:
    is_constant = planner.is_constant(weight)
    result_dtype = call.result.dtype if dtype == call.operands[0].dtype else planner.result_dtype(call)
    source_sizes = (_rows(sizes_of(call.operands[0])), left[1]) if left[0] == -1 else left
    stack = tuple(max(a, b) for a, b in zip(source_sizes[:-2], weights.desc.sizes[:-2], strict=False))
    sizes = (*stack, source_sizes[-2], weights.desc.sizes[-1])
    result = sizes_of(call.result)

    def add(source: Location, target: MemoryDesc) -> str | None:
        def make(post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
            def offer(right: MemoryDesc, number: int) -> PrimitiveDesc | None:
                primitive = planner.factory.matmul(source.desc, right, None, target, post_ops, number=number)
                is_plain = target.is_row_major() or primitive is None or primitive.implementation.startswith(_FAST)
                return primitive if is_plain else None

            def named() -> Iterator[NamedPrimitive]:
                if is_constant:
                    yield from implementations("weights=packed", partial(offer, packed))
                yield from implementations("weights=plain", partial(offer, weights.desc))

            packed = planner.any_layout(weights.desc.sizes, dtype)
            usual = offer(packed if is_constant else weights.desc, 0)
            if not dtype == weights.desc.dtype == "float32":
                return usual
            return as_chosen(planner, call, named, usual, is_default=not _prefers_transpose(call, planner))

        def arguments(primitive: PrimitiveDesc) -> Mapping[int, Location]:
            packed = planner.reordered(weight, weights, primitive.memory_desc(Query.WEIGHTS_MD))
            return {Argument.SRC: source, Argument.WEIGHTS: packed}

        return add_with_followers(
            call,
            planner,
            make,
            arguments,
            lambda desc: _to_matrix(desc, result, sizes),
            lambda desc: desc if sizes == result else planner.row_major(result, result_dtype),
            usual=target,
            identity=("product", source.desc.token, weights.desc.token, is_constant, dtype, result_dtype, target.token),
        )

    reason: str | None = "no matrix"
    for source in _sources(planner, x, source_sizes, dtype):
        for target in _targets(call, planner, sizes, result_dtype):
            reason = add(source, target)
            if reason is None:
                return None
    return reason


_FAST = "brg"
"""The prefix of the names of oneDNN's implementations for any layout of the operands."""


def _sources(planner: Planner, x: int, sizes: tuple[int, ...], dtype: str) -> Iterator[Location]:
    """Yield locations of the left operand as a (stack of) matrices: unchanged if possible, then row-major."""
    flat = planner.flattened(x)
    if flat:
        yield planner.reordered(x, flat.location, planner.row_major(sizes, dtype))
        return
    location = planner.location_as(x, dtype)
    view = location.desc.reshaped(sizes)
    if view:
        yield location.view_as(view.with_plain_unit_axes())
    if not location.desc.is_row_major():
        yield planner.row_major_location(x, dtype).view_as(planner.row_major(sizes, dtype))


def _targets(call: Call, planner: Planner, sizes: tuple[int, ...], dtype: str) -> Iterator[MemoryDesc]:
    """Yield layouts of the result: a layout made row-major by a following permutation, then row-major order."""
    follower = planner.graph.follower(call)
    if follower and follower.op == "permute_dims" and sizes == sizes_of(call.result):
        axes = permuted_axes(follower)
        if axes[-1] == len(sizes) - 1:  # oneDNN's products have their columns innermost
            permuted = planner.row_major([sizes[axis] for axis in axes], dtype)
            yield permuted.permuted([axes.index(axis) for axis in range(len(axes))])
    yield planner.row_major(sizes, dtype)


class _Bounds(NamedTuple):
    """The numbers of rows, and the least number of bytes of weights, for a faster transposed product.

    Fewer rows, and rows that do not fill vectors of AVX-512, are better multiplied without transposition.
    """

    rows: range
    nbytes: int


_WITH_TILES, _WITHOUT_TILES = _Bounds(range(32, 129, 16), 1 << 20), _Bounds(range(32, 65, 16), 3 << 20)
"""Cores with matrix tiles also multiply float32 numbers twice as fast, and wait for memory at more rows."""


def _prefers_transpose(call: Call, planner: Planner) -> bool:
    """Return whether the transpose of a product is faster, given a fast implementation."""
    rows = _rows(sizes_of(call.operands[0]))
    if rows not in _WITH_TILES.rows:  # the wider range
        return False
    inner, *columns = sizes_of(call.operands[1])
    has_tiles = planner.engine.isa & Isa.AVX512_CORE_AMX == Isa.AVX512_CORE_AMX
    bounds = _WITH_TILES if has_tiles else _WITHOUT_TILES
    return (
        rows in bounds.rows
        and len(columns) == 1
        and 4 * inner * columns[0] >= bounds.nbytes
        and planner.is_constant(call.inputs[1])
        and planner.factor_dtypes(call) == ("float32",)
    )


def _add_transposed_product(call: Call, planner: Planner, x: int, weight: int, weights: Location) -> str | None:
    """Add ``weights.T @ x.T``; operands along the columns of the product become axis 1 of the transpose.

    Args:
        call: the call.
        planner: the plan.
        x: the value of the left operand; all leading axes are rows.
        weight: the value of the weights.
        weights: the location of the weights, as ``(K, N)``.
    """
    inner, columns = weights.desc.sizes
    sizes, result = sizes_of(call.operands[0]), sizes_of(call.result)
    rows = _rows(sizes)
    left, right, target = map(planner.row_major, ((1, columns, inner), (1, inner, rows), (1, columns, rows)))
    transposed, flat = _rows_innermost(planner, result), planner.flattened(x)

    def make(post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
        primitive = planner.factory.matmul(left, right, None, target, post_ops)
        return primitive if primitive is None or primitive.implementation.startswith(_FAST) else None

    def arguments(_: PrimitiveDesc) -> Mapping[int, Location]:
        matrix = weights.view_as(weights.desc.permuted((1, 0)))
        packed = planner.reordered(weight, matrix, planner.row_major((columns, inner)))
        source = planner.reordered(
            x, flat.location if flat else planner.stored_location(x), _rows_innermost(planner, sizes)
        )
        return {Argument.SRC: packed.view_as(left), Argument.WEIGHTS: source.view_as(right)}

    def to_primitive(desc: MemoryDesc) -> MemoryDesc | None:
        if desc == transposed:
            return target
        is_row = desc.sizes[-1] == columns and all(size == 1 for size in desc.sizes[:-1])
        return planner.row_major((1, columns, 1)) if is_row else None

    return add_with_followers(call, planner, make, arguments, to_primitive, lambda _: transposed)


def _rows_innermost(planner: Planner, sizes: tuple[int, ...]) -> MemoryDesc:
    """Return the layout with the last axis outermost, and row-major order of the others."""
    last = len(sizes) - 1
    return planner.row_major((sizes[last], *sizes[:last])).permuted((*range(1, last + 1), 0))


def _rows(sizes: tuple[int, ...]) -> int:
    rows = 1
    for size in sizes[:-1]:
        rows *= size
    return rows


def _to_matrix(desc: MemoryDesc, result: tuple[int, ...], target: tuple[int, ...]) -> MemoryDesc | None:
    """Return an operand of the result's rank with the product's axes; ``None`` if broadcast along some axes only."""
    if desc.sizes == result:
        return desc.reshaped(target)
    if target == result:
        return desc
    if len(target) == 2 and len(result) > 2 and all(size == 1 for size in desc.sizes[:-1]):
        return desc.reshaped((1, desc.sizes[-1]))
    return None
