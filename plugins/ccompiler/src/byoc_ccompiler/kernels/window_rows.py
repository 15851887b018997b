"""Where the factors of a convolution's rows lie: the run of channels that each tap of a pixel's window reads."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.implicit_gemm_plan import ImplicitGemm

__all__ = ["WindowRows", "rows_function"]

_SIZES = (
    *("last", "out_height", "out_width", "height", "width", "top", "left", "stride_down", "stride_right"),
    *("taps_down", "taps_right", "apart_down", "apart_right", "image_step", "row_step", "pixel_step"),
)
"""The sizes of a window that moves by ``stride_*``, with taps ``apart_*``, to pixel number ``last`` of all images."""

_UNSIGNED = c.CType("uint64")
_START = c.Size(0)


class WindowRows:
    """The pointers to the runs of factors of so many pixels of an image, and the statements that declare them."""

    def __init__(self, kernel: Kernel, plan: ImplicitGemm, image: c.Buffer, pixels: int) -> None:
        shape, (batch, _, row, pixel) = plan.shape, plan.steps
        sizes = (
            *(plan.num_pixels - 1, shape.out_height, shape.out_width, shape.height, shape.width, *shape.padding[:2]),
            *(*shape.strides, shape.filter_height, plan.runs // shape.filter_height, *shape.dilation),
            *(batch, row, pixel),
        )
        self._kernel, self._image = kernel, image
        self.rows = c.PointerArray("rows", image.dtype, c.MemoryAccess.WRITE, plan.runs * pixels)
        zeros = c.Buffer("zeros", image.dtype, size=plan.depth)
        self._outside = zeros if shape.is_padded else None
        self._window = c.Buffer("window", "int64", c.MemoryAccess.WRITE, len(_SIZES))
        self.declared: c.Block = (
            *(c.LocalArray(zeros, is_zeroed=True), c.LocalArray(self.rows), c.LocalArray(self._window)),
            *(c.Store(self._window, c.Size(number), c.Size(size)) for number, size in enumerate(sizes)),
        )

    def find(self, first: c.Expression, count: int, offset: c.Expression, place: c.Expression = _START) -> c.Statement:
        """Return the statement that sets pointers, from number ``place`` on, to channel ``offset`` of pixels."""
        image = c.Address(self._image, offset)
        zeros = image if self._outside is None else c.Address(self._outside, _START)
        function = self._kernel.shared_function(rows_function(self._image.dtype, count))
        arguments = (c.Address(self.rows, place), image, zeros, c.Address(self._window, _START), first)
        return c.Evaluate(c.Call(function, arguments))


def rows_function(dtype: str, count: int) -> c.Function:
    """Return a function that finds where the windows of some neighbouring pixels of an image of a dtype begin.

    Parameters: ``(rows, x, zeros, window, m0)``; ``rows[t * count + j]`` becomes the address of tap ``t`` of pixel
    ``m0 + j`` (of the last pixel, where that is behind it), or ``zeros`` where the tap lies outside the image.
    """
    rows, x, zeros = c.PointerArray("rows", dtype, c.MemoryAccess.WRITE), c.Buffer("x", dtype), c.Buffer("zeros", dtype)
    window, m0, j, sizes = c.Buffer("window", "int64"), c.Variable("m0"), c.Variable("j"), [*map(c.Variable, _SIZES)]
    last, out_height, out_width, height, width, top, left, stride_down, stride_right, *others = sizes
    taps_down, taps_right, apart_down, apart_right, image_step, row_step, pixel_step = others
    names = ("column", "line", "row", "image", "at", "tap_down", "tap_right", "down", "right", "step")
    column, line, row, image, at, tap_down, tap_right, down, right, step = map(c.Variable, names)
    tops, lefts, firsts = (c.Buffer(name, "int64", c.MemoryAccess.WRITE, count) for name in ("tops", "lefts", "firsts"))
    next_image = c.If(row.compare(">=", out_height), (c.Assign(row, _START), c.Assign(image, image + 1)))
    next_row = (c.Assign(column, _START), c.Assign(row, row + 1), next_image)
    next_pixel = (c.Assign(column, column + 1), c.If(column.compare(">=", out_width), next_row))
    corner: c.Block = (
        c.Store(tops, j, row * stride_down - top),
        c.Store(lefts, j, column * stride_right - left),
        c.Store(firsts, j, image * image_step + tops[j] * row_step + lefts[j] * pixel_step),
        c.If((m0 + j).compare("<", last), next_pixel),
    )
    # Without a branch: as numbers without a sign, those below 0 are large.
    limits = ((tops[j] + down, height), (lefts[j] + right, width))
    is_down, is_right = (c.Cast(place, _UNSIGNED).compare("<", c.Cast(limit, _UNSIGNED)) for place, limit in limits)
    pointer = c.Select(c.Binary("&", is_down, is_right), c.Address(x, at), c.Address(zeros, _START))
    store = c.Store(rows, (tap_down * taps_right + tap_right) * count + j, pointer)
    tap: c.Block = (
        c.Let(down, tap_down * apart_down),
        c.Let(right, tap_right * apart_right),
        c.Let(step, down * row_step + right * pixel_step),
        c.For(j, _START, c.Size(count), (c.Let(at, firsts[j] + step), store)),
    )
    body: c.Block = (
        *(c.Let(variable, window[number]) for number, variable in enumerate(sizes)),
        *map(c.LocalArray, (tops, lefts, firsts)),
        c.Let(line, m0 // out_width),
        c.Declare(column, m0 % out_width),
        c.Declare(row, line % out_height),
        c.Declare(image, line // out_height),
        c.For(j, _START, c.Size(count), corner),
        c.For(tap_down, _START, taps_down, (c.For(tap_right, _START, taps_right, tap),)),
    )
    return c.Function(f"windows_{c_suffix(dtype)}_{count}", (rows, x, zeros, window, m0), body)
