"""The patterns of the backend: products with a bias, with ReLU, or with both."""

from __future__ import annotations

from byoc_core.backend.hooks import Rejection
from byoc_core.pattern import CompositePattern, Match, is_op, wildcard

from byoc_cblas.layer import PRODUCTS, read_layer

__all__ = ["composite_patterns"]


def composite_patterns() -> list[CompositePattern]:
    """Return the patterns, such as ``cblas.dense_bias_relu``, ``cblas.dense_relu`` and ``cblas.dense_bias``."""
    patterns = []
    for op in PRODUCTS:
        name = f"cblas.{op.removeprefix('nn.')}"
        product = is_op(op)(wildcard(), wildcard())
        biased = is_op("nn.bias_add", "add")(product, wildcard())
        patterns += [
            CompositePattern(f"{name}_bias_relu", is_op("nn.relu")(biased), _check),
            CompositePattern(f"{name}_bias", biased, _check),
            CompositePattern(f"{name}_relu", is_op("nn.relu")(product), _check),
        ]
    return patterns


def _check(match: Match) -> Rejection | None:
    layer = read_layer(match.bindings)
    return layer if isinstance(layer, Rejection) else None
