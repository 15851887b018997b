"""Shared parts of convolution and pooling: layouts, window attributes, window counts, an image for cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.dims import Dim, dim_min
from byoc_core.errors import IRTypeError
from byoc_core.opset.attributes import AttrValue
from byoc_core.opset.cases import Shape
from byoc_core.opset.contexts import TypeContext

__all__ = [
    "DATA_LAYOUTS",
    "RANKS",
    "axes_of",
    "axis_letters",
    "axis_names",
    "canonicalise_windows",
    "count_windows",
    "example_image",
    "layout_text",
]

RANKS = (1, 2, 3)
"""The permitted numbers of spatial axes of images."""

DATA_LAYOUTS: Mapping[int, tuple[str, str]] = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
"""The data layouts by number of spatial axes, the default first."""

_EXAMPLE_SIZES = {"N": 2, "C": 16, "H": 9, "W": 8}
_EXAMPLE_VOLUME_SIZES = {"N": 2, "C": 16, "D": 5, "H": 7, "W": 6}
"""Small: 27 taps for each element make a volume as costly as all other canonical cases together."""


def axis_letters(rank: int) -> str:
    """Return the letters of the spatial axes: ``W``, ``HW`` or ``DHW``."""
    return "DHW"[-rank:]


def axis_names(rank: int) -> tuple[str, ...]:
    """Return the names of the spatial axes, in order."""
    return ("depth", "height", "width")[-rank:]


def axes_of(layout: str, channels: str) -> tuple[int, ...]:
    """Return the positions of the axes ``channels`` (two letters) in a layout, then the spatial axes in order."""
    return tuple(layout.index(letter) for letter in channels + axis_letters(len(layout) - 2))


def layout_text(layout: str) -> str:
    """Return a layout as a shape for messages: ``(N, C, H, W)``."""
    return "(" + ", ".join(layout) + ")"


def example_image(layout: str) -> Shape:
    """Return the sizes of a small batch of images or volumes in a layout, for canonical cases."""
    sizes = _EXAMPLE_VOLUME_SIZES if "D" in layout else _EXAMPLE_SIZES
    return tuple(sizes[axis] for axis in layout)


def canonicalise_windows(
    op: str, rank: int, attrs: Mapping[str, AttrValue], *, strides_default: str = ""
) -> dict[str, AttrValue]:
    """Return window attributes in canonical form: a value for each axis, and paddings before all axes, then after.

    A single value applies to all axes. Paddings given once per axis apply to both sides.

    Args:
        op: the op's name, for messages.
        rank: the number of spatial axes.
        attrs: normalised attributes.
        strides_default: the attribute copied to ``strides`` of ``None``.

    Raises:
        IRTypeError: an attribute has the wrong number of values, or a value is too small.
    """
    result = dict(attrs)
    if strides_default and result["strides"] is None:
        result["strides"] = result[strides_default]
    for name, minimum in (("pool_size", 1), ("strides", 1), ("dilation", 1), ("output_padding", 0)):
        if name in result:
            result[name] = _repeated(op, name, result[name], {1: rank, rank: 1}, minimum=minimum)
    result["padding"] = _repeated(op, "padding", result["padding"], {1: 2 * rank, rank: 2, 2 * rank: 1}, minimum=0)
    return result


def _repeated(op: str, name: str, value: AttrValue, repeats: Mapping[int, int], *, minimum: int) -> tuple[int, ...]:
    values = tuple(item for item in value if isinstance(item, int)) if isinstance(value, tuple) else ()
    if len(values) not in repeats:
        counts = " or ".join(map(str, repeats))
        raise IRTypeError(
            f"op `{op}`, attribute `{name}`", "has the wrong number of values", got=value, expected=counts
        )
    if min(values) < minimum:
        raise IRTypeError(
            f"op `{op}`, attribute `{name}`", "has a value out of range", got=value, expected=f"{minimum} or more"
        )
    return values * repeats[len(values)]


def count_windows(context: TypeContext, image: Sequence[Dim], window: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the number of windows along each spatial axis, from the op's attributes.

    Args:
        context: the rule's context; the attributes are canonical.
        image: sizes of the image.
        window: sizes of the window.

    Raises:
        IRTypeError: the window is larger than the padded image; the axis is named.
    """
    attrs = context.attrs
    counts: list[Dim] = []
    for axis, name in enumerate(axis_names(len(image))):
        begin, end, stride = attrs["padding"][axis], attrs["padding"][axis + len(image)], attrs["strides"][axis]
        reach = (window[axis] - 1) * attrs["dilation"][axis] + 1
        room = image[axis] + begin + end - reach
        if isinstance(room, int) and room < 0:
            raise context.error(
                f"{name} of the padded image is smaller than the window",
                operand=0,
                got=image[axis] + begin + end,
                expected=f"{reach} or more",
            )
        if attrs.get("ceil_mode"):
            # Quotients rounded up in the form `(n+1)//2`: equal to the sizes of a convolution, unlike `n-n//2`.
            fitting, starting = room + (stride - 1), image[axis] + begin + (stride - 1)
            counts.append(dim_min(fitting // stride + 1, starting // stride))
        else:
            counts.append(room // stride + 1)
    return tuple(counts)
