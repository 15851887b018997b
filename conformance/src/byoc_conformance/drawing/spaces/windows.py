"""Spaces of window ops: convolutions, transposed convolutions, pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from byoc_core.ir import OpDef
from byoc_core.ops.cases import OpCase, case

from byoc_conformance.drawing.pairwise import Levels
from byoc_conformance.drawing.spaces.space import Space, schema_levels

__all__ = ["adaptive_pool", "convolution", "pool", "transposed_convolution"]

_IMAGES = ((6, 9, 8), (5, 7, 11), (8, 8, 16))
"""Depth, height, width; windows of 2 and 3 leave a remainder in some and none in others."""
_CHANNELS = ((4, 6), (16, 32), (8, 8), (3, 2))
"""Of the operand and of the result."""
_WINDOWS = ((3, 3, 3), (1, 1, 1), (2, 3, 2), (3, 2, 1))
_STEPS = ((1, 1, 1), (2, 2, 2), (1, 3, 2), (3, 2, 1))
_GAPS = ((1, 1, 1), (2, 2, 2), (3, 2, 1))
_MARGINS = (((0, 0, 0), (0, 0, 0)), ((1, 1, 1), (1, 1, 1)), ((0, 1, 2), (2, 0, 1)), ((0, 0, 0), (1, 1, 1)))
"""The padding before each axis, and behind each axis."""
_ENDS = {"floor": (False, False), "ceil": (True, False), "floor, padding counts": (False, True), "both": (True, True)}
"""``ceil_mode`` and ``count_include_pad``: both decide the count of a window extending over the end."""


def _rank(op: OpDef) -> int:
    return next(int(letter) for letter in op.name if letter.isdigit())


def _last(items: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(items[-rank:])


def _padding(levels: Levels, rank: int) -> tuple[int, ...]:
    before, behind = levels["padding"]
    return (*_last(before, rank), *_last(behind, rank))


def _sizes(layout: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes[letter] for letter in layout)


def _image(levels: Levels, rank: int, layout: str, channels: int) -> tuple[int, ...]:
    spatial = dict(zip("DHW"[-rank:], _last(levels["image"], rank), strict=True))
    return _sizes(levels[layout], {"N": levels["batch"], "C": channels, **spatial})


_CONVOLUTION: Mapping[str, tuple[Any, ...]] = {
    "image": _IMAGES,
    "channels": _CHANNELS,
    "batch": (2, 1),
    "window": _WINDOWS,
    "strides": _STEPS,
    "padding": _MARGINS,
    "dilation": _GAPS,
    "groups": (1, 2, "channels"),
}


def _convolution_case(op: OpDef, levels: Levels, *, is_transposed: bool, **attrs: Any) -> OpCase | None:
    rank = _rank(op)
    inputs, outputs = levels["channels"]
    groups = inputs if levels["groups"] == "channels" else levels["groups"]
    if inputs % groups or outputs % groups:
        return None
    window = dict(zip("DHW"[-rank:], _last(levels["window"], rank), strict=True))
    # A group has a part of the operand's channels; in a transposed convolution, of the result's.
    split = {"O": outputs // groups, "I": inputs} if is_transposed else {"O": outputs, "I": inputs // groups}
    return case(
        op.name,
        _image(levels, rank, "data_layout", inputs),
        _sizes(levels["kernel_layout"], {**split, **window}),
        strides=_last(levels["strides"], rank),
        padding=_padding(levels, rank),
        dilation=_last(levels["dilation"], rank),
        groups=groups,
        data_layout=levels["data_layout"],
        kernel_layout=levels["kernel_layout"],
        **attrs,
    )


def convolution(op: OpDef) -> Space:
    """Return the space of a convolution: sizes, channels, strides, padding, dilation, groups and layouts."""
    factors = {**_CONVOLUTION, **schema_levels(op)}
    return Space(factors, lambda levels: _convolution_case(op, levels, is_transposed=False))


def transposed_convolution(op: OpDef) -> Space:
    """Return the space of a transposed convolution; the output padding is less than the stride."""

    def build(levels: Levels) -> OpCase | None:
        longer = tuple(min(levels["output_padding"], step - 1) for step in _last(levels["strides"], _rank(op)))
        if levels["output_padding"] and not any(longer):
            return None
        return _convolution_case(op, levels, is_transposed=True, output_padding=longer)

    return Space({**_CONVOLUTION, "output_padding": (0, 1), **schema_levels(op)}, build)


def pool(op: OpDef) -> Space:
    """Return the space of a pool, including windows extending over the end."""
    has_padding_count = any(spec.name == "count_include_pad" for spec in op.attrs)
    has_exponent = any(spec.name == "p" for spec in op.attrs)

    def build(levels: Levels) -> OpCase:
        rank = _rank(op)
        is_ceil, counts_padding = _ENDS[levels["ends"]]
        attrs: dict[str, Any] = {"count_include_pad": counts_padding} if has_padding_count else {}
        if has_exponent:
            attrs["p"] = levels["p"]
        if levels["strides"] is not None:
            attrs["strides"] = _last(levels["strides"], rank)
        return case(
            op.name,
            _image(levels, rank, "layout", levels["channels"]),
            pool_size=_last(levels["window"], rank),
            padding=_padding(levels, rank),
            dilation=_last(levels["dilation"], rank),
            ceil_mode=is_ceil,
            layout=levels["layout"],
            **attrs,
        )

    factors = {
        "image": _IMAGES,
        "channels": (3, 16, 1, 300),
        "batch": (2, 1),
        "window": ((2, 2, 2), (3, 3, 3), (2, 3, 1), (1, 2, 3)),
        "strides": ((2, 2, 2), None, (1, 1, 1), (3, 2, 3)),
        "padding": _MARGINS,
        "dilation": _GAPS,
        "ends": tuple(_ENDS) if has_padding_count else ("floor", "ceil"),
        **({"p": (2, 1, 3)} if has_exponent else {}),
        **schema_levels(op, "ceil_mode", "count_include_pad"),
    }
    return Space(factors, build)


def adaptive_pool(op: OpDef) -> Space:
    """Return the space of a pool with a given number of windows: one, a few, more than the number of elements."""

    def build(levels: Levels) -> OpCase:
        rank = _rank(op)
        shape = _image(levels, rank, "layout", levels["channels"])
        return case(op.name, shape, output_size=_last(levels["windows"], rank), layout=levels["layout"])

    factors = {
        "image": _IMAGES,
        "channels": (3, 16, 1),
        "batch": (2, 1),
        "windows": ((1, 1, 1), (3, 3, 3), (2, 5, 4), (7, 10, 12)),
        **schema_levels(op),
    }
    return Space(factors, build)
