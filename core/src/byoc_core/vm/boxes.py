"""Sets of buffer elements as boxes over the digits of element numbers, and the resulting parts of the buffer.

:class:`~byoc_core.vm.footprints.Footprints` takes the parts as exact: every returned partition must be proved. A missed
proof only makes the laws of programs stricter, and lowering then shares less memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cmp_to_key
from itertools import pairwise
from itertools import product as pairs_of

from byoc_core.dims import Dim, exact_div, product
from byoc_core.opset.layout import Layout, compact_layout, is_size, typical, unproved_sizes

__all__ = ["parts_of"]

_Box = tuple[tuple[Dim, Dim], ...]
_Levels = list[tuple[Dim, Dim]]

_MAX_STEPS = 4
_MAX_PARTS_PER_LAYOUT = 16


def parts_of(shape: Sequence[Dim], layouts: Sequence[Layout]) -> list[tuple[int, ...]] | None:
    """Return the numbers of all parts of a buffer, followed by the part numbers of each layout.

    The parts are disjoint and make up the buffer. ``None`` if this is not proved, or the layouts cut the buffer into
    too many parts.

    Args:
        shape: shape of the buffer.
        layouts: layouts inside the buffer; elements do not overlap, except along axes of stride 0.

    Cost: ``O(n log n)`` in the layouts, plus the returned numbers.
    """
    steps = _common_steps(layouts)
    if steps is None:
        return None
    sizes = unproved_sizes(dict.fromkeys(dim for layout in (compact_layout(shape), *layouts) for dim in layout.shape))
    full = compact_layout((product(shape),))
    boxes = [box for layout in (full, *layouts) if (box := _box_of(layout, steps, sizes)) is not None]
    # A single layout without a box leaves the cut unproved.
    if len(boxes) <= len(layouts):
        return None
    numbered = []
    num_parts = 1
    for digit in range(len(boxes[0])):
        # Each border of a box cuts the whole buffer along this digit: boxes are unions of cells of a grid, the parts.
        ends = _ordered({end for box in boxes for end in box[digit]}, sizes)
        num_parts *= 0 if ends is None else len(ends) - 1
        # The first box is the whole buffer: no other box may reach beyond.
        if ends is None or num_parts > _MAX_PARTS_PER_LAYOUT * len(boxes) or (ends[0], ends[-1]) != boxes[0][digit]:
            return None
        numbered.append({end: number for number, end in enumerate(ends)})
    return [_part_numbers(box, numbered) for box in boxes]


def _part_numbers(box: _Box, numbered: Sequence[dict[Dim, int]]) -> tuple[int, ...]:
    ranges = [range(ends[start], ends[stop]) for (start, stop), ends in zip(box, numbered, strict=True)]
    # Cells are numbered in row-major order of the digits.
    numbers: Iterable[int] = ranges[0]
    for ends, digits in zip(numbered[1:], ranges[1:], strict=True):
        numbers = [number * (len(ends) - 1) + digit for number, digit in pairs_of(numbers, digits)]
    return tuple(numbers)


def _ordered(ends: set[Dim], sizes: Sequence[Dim]) -> list[Dim] | None:
    """Return ends of intervals in order; ``None`` if the order is not proved."""

    def compare(left: Dim, right: Dim) -> int:
        # Ends of the same typical value, such as `n` and `min(n, m)`, may have a provable order too.
        return typical(left) - typical(right) or (-1 if is_size(right - left, sizes) else 1)

    found = sorted(sorted(ends, key=str), key=cmp_to_key(compare))
    # The order is a guess: each pair of neighbours needs a proof.
    for left, right in pairwise(found):
        if not is_size(right - left, sizes):
            return None
    return found


def _common_steps(layouts: Iterable[Layout]) -> list[Dim] | None:
    """Return the strides of all layouts, the largest first; ``None`` if a stride is no multiple of the next."""
    found = {stride for layout in layouts for stride, _ in layout.levels()[0]}
    steps = sorted(found, key=typical, reverse=True)
    if len(steps) > _MAX_STEPS or any(exact_div(a, b) is None for a, b in pairwise(steps)):
        return None
    return steps


def _box_of(layout: Layout, steps: Sequence[Dim], sizes: Sequence[Dim]) -> _Box | None:
    """Return the elements of a layout as a box: an interval for each digit of the element numbers.

    The digits are the number's quotients by ``steps``, the largest first, then the remainder. ``None`` if the elements
    do not form a box, or no proof is found.

    Args:
        layout: a layout of elements in a buffer.
        steps: strides, each a multiple of the next.
        sizes: sizes known to be zero or more, though not by their form.
    """
    levels, run = layout.levels()
    offset = layout.offset
    box: list[tuple[Dim, Dim]] = []
    for step in steps:
        digit = _digit(offset, levels, run, step, sizes)
        if digit is None:
            return None
        interval, offset, levels, run = digit
        box.append(interval)
    return None if levels else (*box, (offset, offset + run))


def _digit(
    offset: Dim, levels: _Levels, run: Dim, step: Dim, sizes: Sequence[Dim]
) -> tuple[tuple[Dim, Dim], Dim, _Levels, Dim] | None:
    """Return the interval of the digit counting ``step``, and the remaining lower digits of the elements."""
    span = _span(levels, run)
    quotient = _quotient(offset, span, step, sizes)
    if quotient is not None:  # all within a single step
        return (quotient, quotient + 1), offset - quotient * step, levels, run
    if not levels:
        # A run across steps must consist of whole steps: all lower digits then take all values.
        first, count = exact_div(offset, step), exact_div(run, step)
        return None if first is None or count is None else ((first, first + count), 0, [], step)
    (stride, dim), *inner = levels
    if stride == step:
        # The digit counts the elements of this level if all inner elements stay within a single step.
        quotient = _quotient(offset, _span(inner, run), step, sizes)
        return None if quotient is None else ((quotient, quotient + dim), offset - quotient * step, inner, run)
    # The level extends over `count` whole steps of `strides_per_step` strides: split the level at the steps.
    strides_per_step = exact_div(step, stride)
    count = None if strides_per_step is None else exact_div(dim, strides_per_step)
    if strides_per_step is None or count is None:
        return None
    quotient = _quotient(offset, _span(inner, run), stride, sizes)
    if quotient is None:
        return None
    # The first element must lie in the first stride of a step: otherwise the level fills its first step only partly.
    first = exact_div(quotient, strides_per_step)
    rest = offset - quotient * stride
    return None if first is None else ((first, first + count), rest, [(stride, strides_per_step), *inner], run)


def _span(levels: Iterable[tuple[Dim, Dim]], run: Dim) -> Dim:
    return sum(((dim - 1) * stride for stride, dim in levels), run)


def _quotient(offset: Dim, span: Dim, step: Dim, sizes: Sequence[Dim]) -> Dim | None:
    """Return ``q`` if ``span`` elements from ``offset`` provably lie between ``q * step`` and ``(q + 1) * step``."""
    if isinstance(step, int) and isinstance(offset, int):
        candidates: tuple[Dim, ...] = (offset // step,) if step > 0 else ()
    else:
        # A symbolic quotient may be a call without provable bounds, therefore 0 is tried first.
        candidates = (0, offset // step) if step != 0 else ()
    for quotient in candidates:
        rest = offset - quotient * step
        if is_size(rest, sizes) and is_size(step - rest - span, sizes):
            return quotient
    return None
