"""The layout of a tensor's elements in a buffer: offset, sizes and strides, all counted in elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from byoc_core.dims import Dim, exact_div, is_nonnegative, product, substitute, symbol, symbols_of, typical_value

__all__ = ["Layout", "compact_layout", "is_compact", "is_size", "row_major", "typical", "unproved_sizes"]

_TYPICAL_SIZE = 1009


@dataclass(frozen=True, slots=True)
class Layout:
    """A strided layout.

    Element ``index`` lies ``offset + sum(index * strides)`` elements from the start of the buffer.
    """

    offset: Dim
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the layout certainly has no element."""
        return 0 in self.shape

    @property
    def is_compact(self) -> bool:
        """Whether the elements certainly lie consecutively in row-major order."""
        return is_compact(self.shape, self.strides)

    @property
    def canonical(self) -> Layout:
        """The same layout, with strides computed from sizes if the strides do not matter.

        These are the strides of axes of size 1, and all strides of an empty layout.
        """
        if self.is_empty:
            return Layout(0, self.shape, row_major(self.shape))
        if self.is_compact:
            return Layout(self.offset, self.shape, row_major(self.shape))
        strides: list[Dim] = []
        step: Dim = 1
        for dim, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            strides.append(step if dim == 1 else stride)
            step = strides[-1] * dim
        return Layout(self.offset, self.shape, tuple(reversed(strides)))

    @property
    def extent(self) -> Dim:
        """The number of elements from the first to the last, both included; 0 if the tensor is certainly empty."""
        return 0 if self.is_empty else sum(((d - 1) * s for d, s in zip(self.shape, self.strides, strict=True)), 1)

    def fits(self, buffer: Sequence[Dim], sizes: Iterable[Dim] = ()) -> bool:
        """Return whether all elements provably lie in a buffer of a shape.

        Args:
            buffer: sizes of the buffer.
            sizes: further sizes assumed to be zero or more without proof.
        """
        extent = product(self.shape) if self.is_compact else self.extent
        assumed = unproved_sizes((*self.shape, *buffer, *sizes))
        needed = (self.offset, *(() if self.is_compact else self.strides), product(buffer) - self.offset - extent)
        return all(is_size(value, assumed) for value in needed)

    @property
    def without_repeats(self) -> Layout:
        """The layout with size 1 along every axis of stride 0, which repeats the same elements."""
        shape = tuple(1 if stride == 0 else dim for dim, stride in zip(self.shape, self.strides, strict=True))
        return Layout(self.offset, shape, self.strides)

    def is_injective(self, sizes: Iterable[Dim] = ()) -> bool:
        """Return whether provably no two elements share an offset.

        Args:
            sizes: sizes assumed to be zero or more without proof.
        """
        if self.is_compact:
            return True
        span: Dim = 1
        assumed = unproved_sizes((*self.shape, *sizes))
        for stride, dim in reversed(self._by_stride()):
            if not is_size(stride - span, assumed):
                return False
            span = span + (dim - 1) * stride
        return True

    def reshaped(self, shape: Sequence[Dim]) -> Layout | None:
        """Return the layout of the same elements, in row-major order, in another shape; ``None`` if there is none."""
        target = tuple(shape)
        if product(target) != product(self.shape):
            return None
        if self.is_compact:
            return Layout(self.offset, target, row_major(target))
        strides = _strides_of_groups(self.shape, self.strides, target)
        return None if strides is None else Layout(self.offset, target, strides)

    def permuted(self, axes: Sequence[int]) -> Layout:
        """Return the layout with axis ``axes[i]`` as axis ``i``."""
        return Layout(self.offset, tuple(self.shape[a] for a in axes), tuple(self.strides[a] for a in axes))

    def sliced(self, axis: int, start: Dim, size: Dim, step: int = 1) -> Layout:
        """Return the layout of ``size`` slices along an axis, from ``start`` on, ``step`` apart."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + start * strides[axis]
        shape[axis], strides[axis] = size, strides[axis] * step
        return Layout(offset, tuple(shape), tuple(strides))

    def levels(self) -> tuple[list[tuple[Dim, Dim]], Dim]:
        """Return the set of elements as runs: stride and count of each level, outermost first, and the length of a run.

        Axes of size 1 or stride 0 are left out. Axes continuing each other without a gap are merged into a level.
        """
        merged: list[tuple[Dim, Dim]] = []
        for stride, dim in self._by_stride():
            if stride == 0:
                continue
            if merged and merged[-1][0] == stride * dim:
                merged[-1] = (stride, merged[-1][1] * dim)
            else:
                merged.append((stride, dim))
        if merged and merged[-1][0] == 1:
            return merged[:-1], merged[-1][1]
        return merged, 1

    def _by_stride(self) -> list[tuple[Dim, Dim]]:
        """Return stride and size of every axis with more than one element, the largest stride first."""
        axes = [(s, d) for s, d in zip(self.strides, self.shape, strict=True) if d != 1]
        return sorted(axes, key=lambda axis: typical(axis[0]), reverse=True)


def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the strides of a C-contiguous tensor."""
    strides: list[Dim] = []
    step: Dim = 1
    for dim in reversed(shape):
        strides.append(step)
        step = step * dim
    return tuple(reversed(strides))


def compact_layout(shape: Sequence[Dim]) -> Layout:
    """Return the layout of a C-contiguous tensor at the start of a buffer."""
    return Layout(0, tuple(shape), row_major(shape))


def is_compact(shape: Sequence[Dim], strides: Sequence[Dim]) -> bool:
    """Return whether strides are certainly C-contiguous; the strides of axes of size 1 do not matter."""
    if 0 in shape:
        return True
    expected: Dim = 1
    for dim, stride in zip(reversed(shape), reversed(strides), strict=True):
        if dim == 1:
            continue
        if stride != expected:
            return False
        expected = expected * dim
    return True


def unproved_sizes(shape: Iterable[Dim]) -> tuple[Dim, ...]:
    """Return the sizes of axes that are zero or more only because a call with any other size is refused."""
    return tuple(dict.fromkeys(dim for dim in shape if not isinstance(dim, int) and not is_nonnegative(dim)))


def is_size(value: Dim, sizes: Sequence[Dim]) -> bool:
    """Return whether a value is provably zero or more if some sizes are zero or more."""
    if _is_multiple(value, sizes):
        return True
    least = _least_values(sizes)
    return bool(least) and is_nonnegative(substitute(value, least))


def _is_multiple(value: Dim, sizes: Sequence[Dim]) -> bool:
    """Return whether a value is provably zero or more, or a product of sizes and such a value."""
    if is_nonnegative(value):
        return True
    quotients = (exact_div(value, size) for size in sizes if not isinstance(value, int))
    return any(quotient is not None and _is_multiple(quotient, sizes) for quotient in quotients)


def _least_values(sizes: Iterable[Dim]) -> dict[str, Dim]:
    """Return the substitute ``n+k`` for each symbol ``n`` with a size ``n-k``, so the new symbol may be zero."""
    least: dict[str, int] = {}
    for size in sizes:
        for name in symbols_of(size):
            rest = size - symbol(name)
            if isinstance(rest, int):
                least[name] = max(least.get(name, 0), -rest)
    return {name: symbol(name) + value for name, value in least.items()}


def typical(dim: Dim) -> int:
    """Return the value of a dimension with all symbols large; 0 if undefined there. A heuristic, never a proof."""
    return typical_value(dim, _TYPICAL_SIZE)


def _strides_of_groups(shape: Sequence[Dim], strides: Sequence[Dim], target: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    """Return the strides of a reshaped tensor; ``None`` if impossible.

    Axes are matched in groups of equal product, each mergeable into a single axis.
    """
    axes = [(d, s) for d, s in zip(shape, strides, strict=True) if d != 1]
    target_sizes = [d for d in target if d != 1]
    found: list[Dim] = []
    while axes or target_sizes:
        group, sizes = axes[:1], target_sizes[:1]
        del axes[:1], target_sizes[:1]
        while (have := product(d for d, _ in group)) != (want := product(sizes)):
            if exact_div(want, have) is not None and axes:
                group.append(axes.pop(0))
            elif exact_div(have, want) is not None and target_sizes:
                sizes.append(target_sizes.pop(0))
            elif isinstance(have, int) and isinstance(want, int) and axes and target_sizes:
                if have < want:
                    group.append(axes.pop(0))
                else:
                    sizes.append(target_sizes.pop(0))
            else:
                return None
        if any(s != inner * d for (_, s), (d, inner) in pairwise(group)):
            return None
        last = group[-1][1] if group else 1
        found += [step * last for step in row_major(sizes)]
    rest = iter(found)
    return tuple(1 if dim == 1 else next(rest) for dim in target)
