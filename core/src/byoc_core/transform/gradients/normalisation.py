"""Rules for normalisation: batch norm (inference), layer, group, instance and RMS norm, LRN, the softmax family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from byoc_core.dims import Dim
from byoc_core.transform.gradients.pullback import Pullback, Rule, by_operand
from byoc_core.transform.gradients.terms import Term, choose

__all__ = ["RULES", "softmax_cotangent"]


def _axis(pullback: Pullback) -> int:
    axis: int = pullback.attrs["axis"] % pullback.operand().rank
    return axis


def softmax_cotangent(result: Term, cotangent: Term, axis: int) -> Term:
    """Return the cotangent of the operand of a softmax along an axis.

    A line of NaN, for a line of minus infinities alone, counts as constant: models replace such a line, and the
    product of its cotangent of 0 would be NaN.
    """
    weights = choose(result.apply("isnan"), result.convert(0), result)
    return weights * (cotangent - (cotangent * weights).sum([axis], keepdims=True))


def _softmax(pullback: Pullback) -> Term:
    return softmax_cotangent(pullback.result(), pullback.cotangent(), _axis(pullback))


def _log_softmax(pullback: Pullback) -> Term:
    cotangent = pullback.cotangent()
    return cotangent - pullback.result().apply("exp") * cotangent.sum([_axis(pullback)], keepdims=True)


def _inverse_root(pullback: Pullback, square: Term) -> Term:
    """Return ``1 / sqrt(square + epsilon)``."""
    return 1 / (square + float(pullback.attrs["epsilon"])).apply("sqrt")


# Batch norm


def _channels(pullback: Pullback, index: int) -> Term:
    """Return a parameter with the channels on their axis of the image."""
    image = pullback.operand().shape
    return pullback.operand(index).reshape([size if axis == _axis(pullback) else 1 for axis, size in enumerate(image)])


def _per_channel(formula: Callable[[Pullback], Term]) -> Callable[[Pullback], Term]:
    """Return a formula summed over all axes except for the channels."""

    def summed(pullback: Pullback) -> Term:
        term = formula(pullback)
        return term.sum([axis for axis in range(term.rank) if axis != _axis(pullback)])

    return summed


def _batch_scale(pullback: Pullback) -> Term:
    """Return the inverse of the standard deviation of each channel."""
    return _inverse_root(pullback, _channels(pullback, 4))


def _batch_norm(pullback: Pullback) -> Term:
    return pullback.cotangent() * (_channels(pullback, 1) * _batch_scale(pullback))


def _centred(pullback: Pullback) -> Term:
    return pullback.operand() - _channels(pullback, 3)


def _batch_norm_by_variance(pullback: Pullback) -> Term:
    scale = _batch_scale(pullback)
    slope = _channels(pullback, 1) * (scale * scale * scale) * -0.5
    return pullback.cotangent() * _centred(pullback) * slope


_BATCH_NORM = by_operand(
    _batch_norm,
    _per_channel(lambda p: p.cotangent() * _centred(p) * _batch_scale(p)),
    _per_channel(lambda p: p.cotangent()),
    _per_channel(lambda p: -_batch_norm(p)),
    _per_channel(_batch_norm_by_variance),
)


# Norms with statistics of the operand


def _standardised(pullback: Pullback, x: Term, axes: Sequence[int]) -> tuple[Term, Term]:
    """Return ``x`` with mean 0 and variance 1 along axes, and the inverse of the standard deviation."""
    centred = x - x.mean(axes)
    scale = _inverse_root(pullback, (centred * centred).mean(axes))
    return centred * scale, scale


def _standardised_cotangent(standardised: Term, scale: Term, cotangent: Term, axes: Sequence[int]) -> Term:
    """Return the cotangent of an operand from the cotangent of the standardised operand."""
    correlated = standardised * (cotangent * standardised).mean(axes)
    return scale * (cotangent - cotangent.mean(axes) - correlated)


def _axes(pullback: Pullback) -> tuple[int, ...]:
    return tuple(axis % pullback.operand().rank for axis in pullback.attrs["axes"])


def _over_axes(pullback: Pullback, index: int) -> Term:
    """Return a parameter of layer or RMS norm with size 1 on all axes outside of ``axes``."""
    axes = _axes(pullback)
    return pullback.operand(index).reshape(
        [size if axis in axes else 1 for axis, size in enumerate(pullback.operand().shape)]
    )


def _sum_outside(pullback: Pullback, term: Term) -> Term:
    axes = _axes(pullback)
    return term.sum([axis for axis in range(term.rank) if axis not in axes])


def _layer_norm(pullback: Pullback) -> Sequence[Term | None]:
    axes, cotangent = _axes(pullback), pullback.cotangent()
    standardised, scale = _standardised(pullback, pullback.operand(), axes)
    return (
        _standardised_cotangent(standardised, scale, cotangent * _over_axes(pullback, 1), axes),
        _sum_outside(pullback, cotangent * standardised),
        _sum_outside(pullback, cotangent),
    )


def _rms_norm(pullback: Pullback) -> Sequence[Term | None]:
    axes, x, cotangent = _axes(pullback), pullback.operand(), pullback.cotangent()
    scale = _inverse_root(pullback, (x * x).mean(axes))
    scaled, weighted = x * scale, cotangent * _over_axes(pullback, 1)
    by_x = scale * (weighted - scaled * (weighted * scaled).mean(axes))
    return by_x, _sum_outside(pullback, cotangent * scaled)


def _norm_of_groups(groups: Callable[[Pullback], Dim]) -> Rule:
    """Return the rule of a norm with statistics of each image and group of channels."""

    def rule(pullback: Pullback) -> Sequence[Term | None]:
        x, cotangent, count = pullback.operand(), pullback.cotangent(), groups(pullback)
        per_group = x.num_elements(range(1, x.rank)) // count
        column = (x.shape[1], *(1 for _ in range(x.rank - 2)))
        grouped = (x.shape[0], count, per_group)
        standardised, scale = _standardised(pullback, x.reshape(grouped), [2])
        weighted = (cotangent * pullback.operand(1).reshape(column)).reshape(grouped)
        by_x = _standardised_cotangent(standardised, scale, weighted, [2])
        outside = [axis for axis in range(x.rank) if axis != 1]
        return by_x, (cotangent * standardised.reshape(x.shape)).sum(outside), cotangent.sum(outside)

    return rule


# Local response normalisation


def _sum_of_neighbours(term: Term, axis: int, before: int, after: int) -> Term:
    """Return the sum over neighbours along an axis; neighbours beyond the ends count as zero."""
    widths = [0] * (2 * term.rank)
    widths[2 * axis : 2 * axis + 2] = (before, after)
    padded, size = term.apply("nn.pad", pad_width=widths), term.shape[axis]
    total: Term | None = None
    for first in range(before + after + 1):
        part = padded.apply("strided_slice", axes=(axis,), begin=(first,), end=(size + first,), strides=(1,))
        part = part.reshape(term.shape)
        total = part if total is None else total + part
    assert total is not None  # a window has an element
    return total


def _lrn(pullback: Pullback) -> Term:
    x, cotangent, axis, attrs = pullback.operand(), pullback.cotangent(), _axis(pullback), pullback.attrs
    size, beta, factor = int(attrs["size"]), float(attrs["beta"]), float(attrs["alpha"]) / int(attrs["size"])
    before, after = (size - 1) // 2, size // 2
    base = _sum_of_neighbours(x * x, axis, before, after) * factor + float(attrs["bias"])
    scaled = cotangent * base.apply("power", -beta)
    # A channel is in the windows of its neighbours: the window is mirrored.
    return scaled - x * _sum_of_neighbours(scaled * x / base, axis, after, before) * (2 * factor * beta)


RULES: Mapping[str, Rule] = {
    "nn.batch_norm": _BATCH_NORM,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.group_norm": _norm_of_groups(lambda p: int(p.attrs["groups"])),
    "nn.instance_norm": _norm_of_groups(lambda p: p.operand().shape[1]),
    "nn.lrn": by_operand(_lrn),
    "nn.softmax": by_operand(_softmax),
    "nn.stepwise_softmax": by_operand(_softmax),
    "nn.log_softmax": by_operand(_log_softmax),
}
"""The family's rules, by op."""
