"""Images seen as rows of a matrix, before a product with constant weights.

The rows of a channels-last or blocked image would have to be reordered first. Instead the weights are reordered, once,
during packing: a sum of products may have its terms in any order (``docs/notes/flattened-images.md``).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.derived_constants import Reordered
from byoc_dnnl.plan import Kind
from byoc_dnnl.unstored_values import Flattened

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = ["find_flattened", "flat_weights"]

_MAX_NBYTES = 16 << 20
"""Limit of the size of weights. Larger weights take so long to read that a reorder does not show, and too much memory
to keep twice.
"""


def find_flattened(call: Call, planner: Planner) -> Flattened | None:
    """Return the layout of a reshape's rows, if rows follow each other with elements in another order than the columns.

    ``None`` if the elements have the order of the columns, or no such layout; and for a reader that depends on the
    order.
    """
    location, result = planner.stored_location(call.inputs[0]), sizes_of(call.result)
    if len(result) != 2 or location.desc.sizes[0] != result[0] or location.desc.reshaped(result) is not None:
        return None
    view = location.desc.without_blocks(planner.engine)
    order = None if view is None else view.plain_order()
    if view is None or order is None or view.sizes[0] != result[0] or not _is_multiplied(call, planner):
        return None  # there are gaps, or rows lie in blocks themselves
    if prod(view.sizes[axis] for axis in order[: order.index(0)]) > 1 < result[0]:
        return None  # elements of several rows lie next to each other
    columns = tuple(axis - 1 for axis in order if axis != 0)
    return Flattened(location.view_as(planner.row_major(result, location.desc.dtype)), view.sizes[1:], columns)


def _is_multiplied(call: Call, planner: Planner) -> bool:
    """Return whether the only reader of a call's result is a product with reorderable constant weights."""
    reader = planner.graph.follower(call)
    if reader is None or reader.op not in ("matmul", "nn.dense") or reader.inputs[0] != call.output:
        return False
    weight, sizes = reader.inputs[1], sizes_of(reader.operands[1])
    inner = sizes[-1 if reader.op == "nn.dense" else 0]
    if len(sizes) != 2 or inner != sizes_of(call.result)[1]:
        return False
    if not planner.is_available(weight) or planner.quantised(weight) is not None:
        return False  # the weight is computed, perhaps after the reshape
    location = planner.stored_location(weight)
    is_plain = location.buffer.kind is Kind.CONSTANT and location.desc.is_row_major()
    return is_plain and location.desc.sizes == sizes and location.desc.nbytes <= _MAX_NBYTES


def flat_weights(flat: Flattened, planner: Planner, weight: int, axis: int) -> Location:
    """Return constant weights in the order of flattened rows; ``axis`` is the weights' axis of the rows' elements."""
    weight_desc = planner.stored_location(weight).desc
    weight_sizes = weight_desc.sizes
    sizes = (*weight_sizes[:axis], *flat.sizes, *weight_sizes[axis + 1 :])
    order = (*range(axis), *(axis + column for column in flat.order), *range(axis + len(flat.order), len(sizes)))
    return planner.derived_constant(weight, Reordered(sizes, order)).view_as(weight_desc)
