"""Rules for pooling over windows, and for adaptive pooling."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.dims import product
from byoc_core.opset.windows import RANKS, axes_of
from byoc_core.transform.gradients.pullback import Pullback, Rule, by_operand
from byoc_core.transform.gradients.terms import Term
from byoc_core.transform.gradients.windows import WindowGrid, channels_first, in_layout

__all__ = ["RULES"]


def _grid(pullback: Pullback) -> WindowGrid:
    """Return the windows of a pooling op."""
    attrs = pullback.attrs
    image, counts = (channels_first(t, attrs["layout"]) for t in (pullback.operand(), pullback.result()))
    rank = image.rank - 2
    return WindowGrid(
        attrs["pool_size"],
        attrs["strides"],
        attrs["dilation"],
        attrs["padding"][:rank],
        image.shape[2:],
        counts.shape[2:],
    )


def _add_windows(pullback: Pullback, factors: Term) -> Term:
    """Return the image with a factor for each window, in channels-first order, added to all elements of the window."""
    grid, (batch, channels) = _grid(pullback), factors.shape[:2]
    ones = pullback.emitter.full(1, (1, 1, *grid.window), factors.dtype)
    flat = factors.reshape((batch * channels, 1, *grid.counts))
    image = grid.add_windows(flat, ones).reshape((batch, channels, *grid.sizes))
    return in_layout(image, pullback.attrs["layout"])


def _avg_pool(pullback: Pullback) -> Term:
    attrs, grid = pullback.attrs, _grid(pullback)
    cotangent = channels_first(pullback.cotangent(), attrs["layout"])
    end = attrs["padding"][grid.rank :]
    if not attrs["ceil_mode"] and (attrs["count_include_pad"] or not any(attrs["padding"])):
        return _add_windows(pullback, cotangent / float(_num_taps(grid)))
    if attrs["count_include_pad"]:  # padding counts like the image
        sizes = tuple(b + size + e for b, size, e in zip(grid.begin, grid.sizes, end, strict=True))
        nothing = (0,) * grid.rank
        padded = WindowGrid(grid.window, grid.strides, grid.dilation, nothing, sizes, grid.counts)
        return _add_windows(pullback, cotangent / padded.num_inside(cotangent, nothing))
    return _add_windows(pullback, cotangent / grid.num_inside(cotangent, end))


def _num_taps(grid: WindowGrid) -> int:
    taps = product(grid.window)
    assert isinstance(taps, int)  # an attribute of the op
    return taps


def _lp_pool(pullback: Pullback) -> Term:
    """Return ``sign(x) * |x|**(p-1)`` times the sums of ``y**(1-p)`` of the windows; 0 in a window of zeros."""
    x, exponent, layout = pullback.operand(), int(pullback.attrs["p"]), pullback.attrs["layout"]
    result, cotangent = (channels_first(term, layout) for term in (pullback.result(), pullback.cotangent()))
    sign = x.apply("sign")
    if exponent == 1:
        return sign * _add_windows(pullback, cotangent)
    norm = result.convert(1).where(result.apply("equal", 0), result)
    factors = cotangent * norm.apply("power", 1 - exponent)
    return sign * x.apply("abs").apply("power", exponent - 1) * _add_windows(pullback, factors)


def _max_pool(pullback: Pullback) -> Term:
    """Return the cotangents added at the first largest element of each window."""
    layout, names = pullback.attrs["layout"], ("pool_size", "strides", "padding", "dilation", "ceil_mode")
    image, cotangent = (channels_first(term, layout) for term in (pullback.operand(), pullback.cotangent()))
    indices = image.apply(f"nn.argmax_pool{image.rank - 2}d", **{name: pullback.attrs[name] for name in names})
    updates = cotangent.where(indices.apply("greater_equal", 0))  # -1: a window of padding alone
    count = (cotangent.num_elements(),)
    zeros = pullback.emitter.full(0, (image.num_elements(),), image.dtype)
    flat = zeros.apply("scatter_elements", indices.reshape(count), updates.reshape(count), axis=0, reduction="add")
    return in_layout(flat.reshape(image.shape), layout)


def _adaptive_avg_pool(pullback: Pullback) -> Term:
    """Return the products with the matrix of the windows' means along each axis, found by pooling the identity."""
    x, cotangent = pullback.operand(), pullback.cotangent()
    axes = axes_of(pullback.attrs["layout"], "NC")[2:]
    for axis, count in zip(axes, pullback.attrs["output_size"], strict=True):
        size = x.shape[axis]
        lines = pullback.emitter.identity_matrix(size, x.dtype).reshape((1, size, size))
        means = lines.apply("nn.adaptive_avg_pool1d", output_size=(count,)).reshape((size, count))
        cotangent = cotangent.contract(axis, means.transposed())
    return cotangent


RULES: Mapping[str, Rule] = {
    f"nn.{kind}_pool{rank}d": by_operand(derivative)
    for kind, derivative in (
        ("max", _max_pool),
        ("avg", _avg_pool),
        ("lp", _lp_pool),
        ("adaptive_avg", _adaptive_avg_pool),
    )
    for rank in RANKS
}
"""The family's rules, by op."""
