"""How a convolution, channels last, is cut into register tiles of pixels times output channels."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.convolution_panels import count_panels, panel_size
from byoc_ccompiler.steps import Step
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["MAX_POINTERS", "ImplicitGemm", "choose_tile", "is_suited", "joins_lines"]

_FEW_CHANNELS = 16
"""Up to so many channels, a run is a line of the filter."""

_RESIDENT_NBYTES = 1 << 19
"""A filter up to this size stays in the second-level cache while all pixels pass."""

_FEW_BLOCKS = 40
"""Up to so many tiles pass one panel before the next is wanted from memory."""

_PANEL_NBYTES = 3 << 18
"""A panel up to this size stays in the second-level cache beside the next one, while tiles pass."""

_TOO_LARGE = 1.3
"""How much longer a step takes with a panel above that size, about."""

_REGISTER_POINTERS = 10
"""Pointers of a tile's rows that stay in registers."""

_CACHE_NBYTES = 24
"""Bytes that the second-level cache gives in a cycle, about."""

_STACK_NBYTES = 1 << 14
"""A padded copy of an image up to this size lies on the stack, one for each thread."""

MAX_POINTERS = 1 << 13
"""Pointers to runs of factors, which lie on the stack, at most."""


def joins_lines(shape: ConvolutionGeometry) -> bool:
    """Tells whether one run of factors is a whole line of the filter."""
    is_joined = shape.filter_width > 1 and shape.dilation[1] == 1
    return is_joined and shape.groups == 1 and shape.channels <= _FEW_CHANNELS


def is_suited(step: Step) -> bool:
    """Tells whether there is room for the pointers of one row at least."""
    return _count_runs(ConvolutionGeometry.of_step(step)) <= MAX_POINTERS


def _count_runs(shape: ConvolutionGeometry) -> int:
    return shape.filter_height if joins_lines(shape) else shape.num_taps


@dataclass(frozen=True, slots=True)
class ImplicitGemm:
    """How a convolution is cut into tiles.

    Attributes:
        shape: its sizes.
        steps: the image's distances from one image, channel, row and pixel to the next.
        rows: of a tile.
        vectors: of a tile.
        columns: of a tile.
        joined: whether a run is a line of the filter.
        copies: whether images are copied, padded with zeros, one after another.
    """

    shape: ConvolutionGeometry
    steps: tuple[Dim, Dim, Dim, Dim]
    rows: int
    vectors: int
    columns: int
    joined: bool
    copies: bool

    @classmethod
    def of(cls, kernel: Kernel) -> ImplicitGemm:
        """Gives the cut of the convolution that a kernel begins with."""
        anchor = kernel.group.steps[0]
        shape = ConvolutionGeometry.of_step(anchor)
        steps = shape.image_steps(kernel.strides(anchor.operands[0]))
        joined = joins_lines(shape)
        copies = joined and (shape.is_padded or steps[1] != 1 or steps[3] != shape.channels)
        pixels = shape.out_height * shape.out_width if copies else shape.num_pixels
        rows, vectors = choose_tile(kernel.unit, shape, pixels)
        return cls(shape, steps, rows, vectors, vectors * kernel.unit.lanes(shape.dtype), joined, copies)

    @property
    def num_pixels(self) -> Dim:
        """The rows of the product: pixels of one image where images are copied, else of all."""
        return self.shape.out_height * self.shape.out_width if self.copies else self.shape.num_pixels

    @property
    def runs(self) -> int:
        """Runs of factors in a row."""
        return _count_runs(self.shape)

    @property
    def depth(self) -> int:
        """Factors of a run."""
        return self.shape.group_channels * (self.shape.filter_width if self.joined else 1)

    @property
    def panels(self) -> int:
        """Panels of one group."""
        return count_panels(self.shape, self.columns)

    @property
    def blocks(self) -> Dim:
        """Tiles that the pixels take."""
        return (self.num_pixels + (self.rows - 1)) // self.rows

    @property
    def panels_outside(self) -> bool:
        """Whether all pixels pass one panel after another: each is read once, where not all stay in the cache."""
        shape = self.shape
        nbytes = shape.groups * self.panels * panel_size(shape, self.columns) * dtype_info(shape.dtype).itemsize
        return nbytes > _RESIDENT_NBYTES

    @property
    def fetches(self) -> bool:
        """Whether the next panel is fetched while few tiles pass this one: they would not hide its way from memory."""
        return self.panels_outside and isinstance(self.blocks, int) and 2 <= self.blocks <= _FEW_BLOCKS

    @property
    def row_counts(self) -> tuple[int, ...]:
        """The numbers of rows that tiles have."""
        if not isinstance(self.num_pixels, int):
            return (self.rows,)
        whole, tail = divmod(self.num_pixels, self.rows)
        return (*([self.rows] if whole else []), *([tail] if tail else []))

    @property
    def padded(self) -> tuple[Dim, Dim]:
        """Rows and columns of the padded copy."""
        top, left, bottom, right = self.shape.padding
        return self.shape.height + top + bottom, self.shape.width + left + right

    @property
    def image_size(self) -> Dim:
        """Elements of the padded copy."""
        return self.padded[0] * self.padded[1] * self.shape.channels

    @property
    def is_small_image(self) -> bool:
        """Whether there may be several images, and a padded copy of one is small."""
        size = self.image_size
        itemsize = dtype_info(self.shape.dtype).itemsize
        return self.shape.batch != 1 and isinstance(size, int) and size * itemsize <= _STACK_NBYTES

    @property
    def has_pointers(self) -> bool:
        """Whether the rows of a tile are found through pointers: their distance is not everywhere the same."""
        shape, (batch, _, row, pixel) = self.shape, self.steps
        lines_follow = shape.height == 1 or row == shape.width * pixel
        images_follow = shape.batch == 1 or batch == shape.height * shape.width * pixel
        is_one_run = shape.is_pointwise and shape.strides == (1, 1) and lines_follow and images_follow
        return not (is_one_run and isinstance(self.num_pixels, int))


def choose_tile(unit: VectorUnit, shape: ConvolutionGeometry, pixels: Dim) -> tuple[int, int]:
    """Gives the (rows, vectors) of a tile for which all tiles together take least."""
    width, lanes = shape.group_out_channels, unit.lanes(shape.dtype)
    best, best_cost = (1, 1), float("inf")
    for vectors in (4, 2, 3, 1):
        most = min(unit.rows_for(vectors), 16, MAX_POINTERS // _count_runs(shape))
        for rows in range(most, 0, -1) if isinstance(pixels, int) else (most,):
            whole, tail = divmod(pixels, rows) if isinstance(pixels, int) else (1, 0)
            work = whole * _step_cost(unit, rows, vectors) + (_step_cost(unit, tail, vectors) if tail else 0)
            cost = work * -(-width // (vectors * lanes)) / (1 if isinstance(pixels, int) else rows)
            if panel_size(shape, vectors * lanes) * dtype_info(shape.dtype).itemsize > _PANEL_NBYTES:
                cost *= _TOO_LARGE
            if cost < best_cost * 0.995:
                best, best_cost = (rows, vectors), cost
    return best


def _step_cost(unit: VectorUnit, rows: int, vectors: int) -> float:
    """Gives the cycles of one step of a tile.

    Two loads are made at a time, and two products, four deep. Each row loads its factor, and where there are many rows
    its pointer as well; the panel comes from the second-level cache.
    """
    loads = rows * (1 if rows <= _REGISTER_POINTERS else 2) + vectors
    return max(rows * vectors / 2, loads / 2, 4, vectors * unit.nbytes / _CACHE_NBYTES)
