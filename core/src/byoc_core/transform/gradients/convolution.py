"""Rules for convolution and transposed convolution: each is the adjoint of the other by the image."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.opset.windows import RANKS
from byoc_core.transform.gradients.pullback import Pullback, Rule, by_operand
from byoc_core.transform.gradients.terms import Term
from byoc_core.transform.gradients.windows import WindowGrid, channels_first, in_layout

__all__ = ["RULES"]


def _parts(pullback: Pullback, filter_channels: str) -> tuple[Term, Term, Term]:
    """Return image, filters and cotangent with channels first; filters with the axes ``filter_channels`` first."""
    data, kernel = pullback.attrs["data_layout"], pullback.attrs["kernel_layout"]
    image, cotangent = (channels_first(term, data) for term in (pullback.operand(0), pullback.cotangent()))
    return image, channels_first(pullback.operand(1), kernel, filter_channels), cotangent


def _grid(pullback: Pullback, image: Term, filters: Term, products: Term) -> WindowGrid:
    """Return the windows over an image with a product for each window."""
    attrs, rank = pullback.attrs, image.rank - 2
    strides, dilation, begin = attrs["strides"], attrs["dilation"], attrs["padding"][:rank]
    return WindowGrid(filters.shape[2:], strides, dilation, begin, image.shape[2:], products.shape[2:])


def _conv_by_image(pullback: Pullback) -> Term:
    image, filters, cotangent = _parts(pullback, "OI")
    grid = _grid(pullback, image, filters, cotangent)
    return in_layout(grid.add_windows(cotangent, filters, pullback.attrs["groups"]), pullback.attrs["data_layout"])


def _conv_by_filters(pullback: Pullback) -> Term:
    image, filters, cotangent = _parts(pullback, "OI")
    grid = _grid(pullback, image, filters, cotangent)
    end = pullback.attrs["padding"][grid.rank :]
    by_filters = grid.filter_cotangent(image, cotangent, end, pullback.attrs["groups"])
    return in_layout(by_filters, pullback.attrs["kernel_layout"], "OI")


def _transposed_by_image(pullback: Pullback) -> Term:
    image, filters, cotangent = _parts(pullback, "IO")
    attrs = {name: pullback.attrs[name] for name in ("strides", "padding", "dilation", "groups")}
    by_image = cotangent.apply(f"nn.conv{image.rank - 2}d", filters, **attrs)
    by_image = by_image.take_first({axis + 2: size for axis, size in enumerate(image.shape[2:])})
    return in_layout(by_image, pullback.attrs["data_layout"])


def _transposed_by_filters(pullback: Pullback) -> Term:
    image, filters, cotangent = _parts(pullback, "IO")
    grid = _grid(pullback, cotangent, filters, image)
    end = pullback.attrs["padding"][grid.rank :]
    by_filters = grid.filter_cotangent(cotangent, image, end, pullback.attrs["groups"])
    return in_layout(by_filters, pullback.attrs["kernel_layout"], "IO")


RULES: Mapping[str, Rule] = {
    **{f"nn.conv{rank}d": by_operand(_conv_by_image, _conv_by_filters) for rank in RANKS},
    **{f"nn.conv{rank}d_transpose": by_operand(_transposed_by_image, _transposed_by_filters) for rank in RANKS},
}
"""The family's rules, by op."""
