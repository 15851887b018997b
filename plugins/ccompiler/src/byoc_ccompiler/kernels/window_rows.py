"""Where the factors of a convolution's rows lie: the run of channels that each tap of a pixel's window reads."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dims import Dim

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.implicit_gemm_plan import ImplicitGemm

__all__ = ["WindowRows", "rows_function", "window_sizes"]

_SIZES = (
    *("last", "out_height", "out_width", "height", "width", "top", "left", "stride_down", "stride_right"),
    *("taps_down", "taps_right", "apart_down", "apart_right", "image_step", "row_step", "pixel_step"),
)
"""The sizes of a window that moves over images: ``stride_*`` from one position to the next, taps ``apart_*``.

The result has ``out_height`` by ``out_width`` pixels an image; the last of all images is number ``last``.
"""

_UNSIGNED = c.CType("uint64")
_START = c.Size(0)


def window_sizes(plan: ImplicitGemm) -> dict[str, Dim]:
    """Return the sizes of the window of a convolution, by name."""
    shape, (batch, _, row, pixel) = plan.shape, plan.steps
    height, width, top, left = shape.height, shape.width, *shape.padding[:2]
    if plan.copies:
        (height, width), top, left = plan.padded, 0, 0
        batch, row, pixel = 0, width * shape.channels, shape.channels
    image = (plan.num_pixels - 1, shape.out_height, shape.out_width, height, width, top, left, *shape.strides)
    taps = (shape.filter_height, 1 if plan.joined else shape.filter_width, *shape.dilation)
    return dict(zip(_SIZES, (*image, *taps, batch, row, pixel), strict=True))


@dataclass(frozen=True, slots=True)
class WindowRows:
    """The pointers to the runs of factors of some pixels.

    Attributes:
        kernel: the kernel that they stand in.
        plan: how the convolution is cut.
        image: the image, or its padded copy.
        rows: the pointers.
        zeros: what lies beyond the image.
        window: the sizes that the pointers follow from.
    """

    kernel: Kernel
    plan: ImplicitGemm
    image: c.Buffer
    rows: c.PointerArray
    zeros: c.Buffer
    window: c.Buffer

    @classmethod
    def of(cls, kernel: Kernel, plan: ImplicitGemm, image: c.Buffer, pixels: int) -> WindowRows:
        """Return the pointers of so many pixels."""
        rows = c.PointerArray("rows", image.dtype, c.MemoryAccess.WRITE, plan.runs * pixels)
        zeros = c.Buffer("zeros", image.dtype, size=plan.depth)
        return cls(kernel, plan, image, rows, zeros, c.Buffer("window", "int64", c.MemoryAccess.WRITE, len(_SIZES)))

    def declarations(self) -> c.Block:
        """Return the statements that declare them."""
        sizes = enumerate(window_sizes(self.plan).values())
        return (
            *(c.LocalArray(self.zeros, is_zeroed=True), c.LocalArray(self.rows), c.LocalArray(self.window)),
            *(c.Store(self.window, c.Size(number), c.Size(size)) for number, size in sizes),
        )

    def find(self, first: c.Expression, count: int, offset: c.Expression, place: c.Expression = _START) -> c.Statement:
        """Return the statement that finds the windows of neighbouring pixels.

        Args:
            first: the number of the first pixel.
            count: how many there are.
            offset: of the first channel that is read, in a pixel.
            place: the number of the first pointer.
        """
        image, has_border = c.Address(self.image, offset), self.plan.shape.is_padded and not self.plan.copies
        zeros = c.Address(self.zeros, c.Size(0)) if has_border else image
        function = self.kernel.shared_function(rows_function(self.image.dtype, count))
        arguments = (c.Address(self.rows, place), image, zeros, c.Address(self.window, c.Size(0)), first)
        return c.Evaluate(c.Call(function, arguments))


def rows_function(dtype: str, count: int) -> c.Function:
    """Return a function that finds where the windows of some neighbouring pixels begin.

    Parameters: ``(rows, x, zeros, window, m0)``; ``rows[t * count + j]`` becomes the address of tap ``t`` of pixel
    ``m0 + j`` (of the last pixel, where that is behind it), or ``zeros`` where the tap lies outside the image.

    Args:
        dtype: of the image.
        count: how many pixels.
    """
    rows, x, zeros = c.PointerArray("rows", dtype, c.MemoryAccess.WRITE), c.Buffer("x", dtype), c.Buffer("zeros", dtype)
    window, m0, j = c.Buffer("window", "int64"), c.Variable("m0"), c.Variable("j")
    size = {name: c.Variable(name) for name in _SIZES}
    column, line, row, image, at = map(c.Variable, ("column", "line", "row", "image", "at"))
    top, left, first = (c.Buffer(name, "int64", c.MemoryAccess.WRITE, count) for name in ("tops", "lefts", "firsts"))
    next_image = c.If(row.compare(">=", size["out_height"]), (c.Assign(row, c.Size(0)), c.Assign(image, image + 1)))
    next_row = (c.Assign(column, c.Size(0)), c.Assign(row, row + 1), next_image)
    next_pixel = (c.Assign(column, column + 1), c.If(column.compare(">=", size["out_width"]), next_row))
    place = image * size["image_step"] + top[j] * size["row_step"] + left[j] * size["pixel_step"]
    corner: c.Block = (
        c.Store(top, j, row * size["stride_down"] - size["top"]),
        c.Store(left, j, column * size["stride_right"] - size["left"]),
        c.Store(first, j, place),
        c.If((m0 + j).compare("<", size["last"]), next_pixel),
    )
    tap_down, tap_right, down, right, step = map(c.Variable, ("tap_down", "tap_right", "down", "right", "step"))
    # Without a branch: as numbers without a sign, those below 0 are large.
    limits = ((top[j] + down, size["height"]), (left[j] + right, size["width"]))
    is_down, is_right = (c.Cast(place, _UNSIGNED).compare("<", c.Cast(limit, _UNSIGNED)) for place, limit in limits)
    pointer = c.Select(c.Binary("&", is_down, is_right), c.Address(x, at), c.Address(zeros, c.Size(0)))
    number = tap_down * size["taps_right"] + tap_right
    tap: c.Block = (
        c.Let(down, tap_down * size["apart_down"]),
        c.Let(right, tap_right * size["apart_right"]),
        c.Let(step, down * size["row_step"] + right * size["pixel_step"]),
        c.For(j, c.Size(0), c.Size(count), (c.Let(at, first[j] + step), c.Store(rows, number * count + j, pointer))),
    )
    body: c.Block = (
        *(c.Let(variable, window[number]) for number, variable in enumerate(size.values())),
        *map(c.LocalArray, (top, left, first)),
        c.Let(line, m0 // size["out_width"]),
        c.Declare(column, m0 % size["out_width"]),
        c.Declare(row, line % size["out_height"]),
        c.Declare(image, line // size["out_height"]),
        c.For(j, c.Size(0), c.Size(count), corner),
        c.For(tap_down, c.Size(0), size["taps_down"], (c.For(tap_right, c.Size(0), size["taps_right"], tap),)),
    )
    return c.Function(f"windows_{c_suffix(dtype)}_{count}", (rows, x, zeros, window, m0), body)
