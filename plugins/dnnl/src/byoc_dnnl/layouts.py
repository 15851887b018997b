"""The orders of axes preferred by oneDNN: images with channels last."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.backend.hooks import AxisOrders
from byoc_core.ir import Binding, TensorType

__all__ = ["preferred_orders"]

_CONVOLUTIONS = {f"nn.conv{axes}d": "data_layout" for axes in (1, 2, 3)}
_IN_ANY_ORDER = {
    **{f"nn.{kind}_pool{axes}d": "layout" for kind in ("max", "avg") for axes in (1, 2, 3)},
    "nn.adaptive_avg_pool2d": "layout",
    "nn.resize2d": "layout",
    "nn.lrn": "",
}


def preferred_orders(binding: Binding) -> Sequence[AxisOrders] | None:
    """Return the orders of an op on images, best first; ``None`` for other ops.

    oneDNN chooses channels last for convolutions of floats on processors with AVX2 or AVX-512, and other primitives
    read an image as it is.
    """
    attribute = {**_CONVOLUTIONS, **_IN_ANY_ORDER}.get(binding.op.name)
    type_ = binding.operands[0].type if binding.operands else None
    if attribute is None or not isinstance(type_, TensorType) or not type_.rank or type_.rank < 3:
        return None
    if attribute and not str(binding.attrs.get(attribute, "NC")).startswith("NC"):
        return None
    order = (0, *range(2, type_.rank), 1)
    rest = (None,) * (len(binding.operands) - 1)
    last = AxisOrders((order, *rest), (order,) * len(binding.results))
    if binding.op.name in _CONVOLUTIONS:
        return [last]
    return [last, AxisOrders((None, *rest), (None,) * len(binding.results))]
