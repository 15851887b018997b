"""The pixels of the images that a convolution reads, channels last: where they lie, and which a window would miss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from byoc_core.authoring import c
from byoc_core.dims import Dim

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry

__all__ = ["ImagePixels"]


@dataclass(frozen=True, slots=True)
class ImagePixels:
    """The images that the first step of a kernel reads; steps lead from one image, row or pixel to the next."""

    buffer: c.Buffer
    geometry: ConvolutionGeometry
    image_step: Dim
    row_step: Dim
    pixel_step: Dim

    @classmethod
    def of(cls, kernel: Kernel) -> Self:
        """Return the pixels for a kernel that begins with a convolution."""
        step = kernel.group.steps[0]
        geometry, image = ConvolutionGeometry.of_step(step), step.operands[0]
        image_step, _, row_step, pixel_step = geometry.image_steps(kernel.strides(image))
        return cls(kernel.source(image, "x"), geometry, image_step, row_step, pixel_step)

    def offset(self, image: c.Expression, row: c.Expression, column: c.Expression) -> c.Expression:
        """Return the offset of the first channel of a pixel."""
        return image * self.image_step + row * self.row_step + column * self.pixel_step

    def misses(self, row: c.Expression, column: c.Expression, height: int = 1, width: int = 1) -> c.Expression:
        """Return whether some of so many rows and columns of pixels, from one pixel on, lie outside the image."""
        down = c.Binary("||", row.compare("<", 0), row.compare(">", self.geometry.height - height))
        right = c.Binary("||", column.compare("<", 0), column.compare(">", self.geometry.width - width))
        return c.Binary("||", down, right)

    def pointers(
        self, at: c.PointerArray, image: c.Expression, row: c.Expression, column: c.Expression, width: int
    ) -> c.Block:
        """Return the statements that point to the pixels of a window, row by row, and to zeros outside the image.

        A row has ``width`` pixels; the first row and the first column are below 0 where the window begins outside.
        """
        assert isinstance(at.size, int)
        k, i, j = map(c.Variable, "kij")
        zeros = c.Buffer("zeros", at.dtype, size=self.geometry.channels)
        place = c.Address(self.buffer, self.offset(image, i, j))
        pixel = c.Select(self.misses(i, j), c.Address(zeros, c.Size(0)), place)
        body = (c.Let(i, row + k // width), c.Let(j, column + k % width), c.Store(at, k, pixel))
        return (c.LocalArray(zeros, is_zeroed=True), c.For(k, c.Size(0), c.Size(at.size), body))
