"""Products by panels: the right operand rearranged for register tiles, once, and read from the cache by all rows.

Constant weights are rearranged when the code is generated, others by each call, in its scratch memory; small or few
rows read theirs where they are. Long sums are cut: a part of a panel stays in the cache while many rows pass, and
their sums so far wait in a small array. While rows pass, the next part is fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_type
from byoc_core.dims import Dim, dim_min, product
from byoc_core.dtypes import dtype_info
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.blocks import block_function, pack_function
from byoc_ccompiler.kernels.declarations import declared
from byoc_ccompiler.kernels.epilogue_text import TextTile, epilogue_lines, text_result_place
from byoc_ccompiler.kernels.product_geometry import Product
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["write_panel_product"]

_DEPTH_BLOCK = 768
"""Steps of a panel that pass in one go; longer sums are cut into equal parts."""

_FEW_ROWS = 12
"""Up to so many rows it does not pay to rearrange what they are multiplied by."""

_ROWS_AT_ONCE, _ROWS_WAITING = 48, 192
"""Rows whose sums are complete at once; rows whose sums wait for the next part of the panel."""

_NEAR_NBYTES, _CACHE_NBYTES = 1 << 16, 1 << 20
"""What surely stays in the nearest cache, or one behind it, while a kernel runs."""


class _Form(Enum):
    """How the right operand reaches the tiles."""

    CONSTANT = auto()
    PACKED = auto()
    IN_PLACE = auto()


def write_panel_product(kernel: Kernel, product_: Product) -> None:
    """Writes the kernel of a product of floats and of what follows it elementwise."""
    _PanelKernel.of(kernel, product_).write()


def _form_of(kernel: Kernel, p: Product) -> _Form:
    if p.weights is not None:
        return _Form.CONSTANT
    if p.right.column_step != 1:
        return _Form.PACKED
    if p.known_rows is not None and p.known_rows <= _FEW_ROWS:
        return _Form.IN_PLACE
    nbytes = p.depth * p.num_columns * dtype_info(p.dtype).itemsize
    is_near = isinstance(nbytes, int) and nbytes <= _NEAR_NBYTES
    has_tail = p.known_columns is None or p.known_columns % kernel.unit.lanes(p.dtype) != 0
    return _Form.IN_PLACE if is_near and not has_tail else _Form.PACKED


@dataclass(frozen=True, slots=True)
class _PanelKernel:
    """One kernel under construction.

    Attributes:
        kernel: where it goes.
        p: the product.
        form: how the right operand reaches the tiles.
        width: columns of a panel.
        tail: columns of the last panel, a multiple of the vector's, where that is known to have fewer.
        depth_block: steps that pass in one go, or all of them.
        chunk: rows whose sums are held at a time.
        outer: rows that all panels meet before the next ones come: a multiple of ``chunk``.
        left: the C name of the left operand.
        right: that of the right one, or of its panels.
    """

    kernel: Kernel
    p: Product
    form: _Form
    width: int
    tail: int
    depth_block: Dim
    chunk: int
    outer: int
    left: str
    right: str

    @classmethod
    def of(cls, kernel: Kernel, p: Product) -> _PanelKernel:
        form, lanes = _form_of(kernel, p), kernel.unit.lanes(p.dtype)
        columns = p.known_columns
        vectors = kernel.unit.panel_vectors
        if columns is not None:
            vectors = max(1, min(vectors, -(-columns // lanes)))
        width = vectors * lanes
        rest = 0 if columns is None else columns % width
        tail = 0 if rest == 0 else -(-rest // lanes) * lanes
        tail = 0 if tail == width else tail
        few = p.known_rows is not None and p.known_rows <= _FEW_ROWS
        depth_block: Dim = p.depth
        if not few and not (isinstance(p.depth, int) and p.depth <= _DEPTH_BLOCK):
            parts = -(-p.depth // _DEPTH_BLOCK) if isinstance(p.depth, int) else 0
            depth_block = -(-p.depth // parts // 4) * 4 if isinstance(p.depth, int) else _DEPTH_BLOCK
        chunk = _ROWS_AT_ONCE if depth_block == p.depth else _ROWS_WAITING
        if p.known_rows is not None:
            chunk = max(1, min(chunk, p.known_rows))
        left = kernel.input(p.left.value, "x")
        if form is _Form.CONSTANT:
            right = kernel.input(kernel.scope.constants.derive(_panels(kernel, p, width, tail)), "weights")
        else:
            right = kernel.input(p.right.value, "y")
        return cls(kernel, p, form, width, tail, depth_block, chunk, _outer_rows(p, chunk), left, right)

    @property
    def ctype(self) -> str:
        """The C type of factors and sums."""
        return c_type(self.p.dtype)

    @property
    def num_panels(self) -> Dim:
        """Panels of one matrix, the last one included."""
        return (self.p.num_columns + (self.width - 1)) // self.width

    @property
    def is_cut(self) -> bool:
        """Whether sums are completed in several parts."""
        return self.depth_block != self.p.depth

    @property
    def has_ragged_tail(self) -> bool:
        """Whether the last columns may be fewer than a vector's."""
        columns = self.p.known_columns
        return columns is None or columns % self.kernel.unit.lanes(self.p.dtype) != 0

    @property
    def _is_ragged(self) -> str:
        """The C condition of a panel with more columns than the matrix has left for it."""
        # A tail that is known has tiles of its own, which are wider by less than a vector.
        known = self.p.known_columns is not None
        return f"n_count % {self.kernel.unit.lanes(self.p.dtype)}" if known else f"n_count < {self.width}"

    def write(self) -> None:
        """Writes it."""
        p, form = self.p, self.form
        is_one_pass = p.known_rows is not None and p.known_rows <= self.outer
        packs_apart = form is _Form.PACKED and not p.batch and not is_one_pass
        packs_inside = (form is _Form.PACKED and not packs_apart) or (form is _Form.IN_PLACE and self.has_ragged_tail)
        if packs_apart or packs_inside:
            # One vector where there is nothing to pack, so that there is a pointer.
            num_panels = self.num_panels if form is _Form.PACKED else 1
            self.kernel.scratch = product(p.batch) * num_panels * self.width * p.depth or self.width
            self.kernel.scratch_dtype = p.dtype
        loops: list[str | ParallelLoop] = [self._pack_loop()] if packs_apart else []
        # A panel that an item packs serves all rows of that item.
        outer: Dim = p.num_rows if packs_inside or p.num_rows == 0 else self.outer
        num_outer = 1 if packs_inside else (p.num_rows + (self.outer - 1)) // self.outer
        lines = [
            f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
            *declared(
                self._variables(num_outer),
                [
                    *self._row_range(num_outer, outer),
                    *self._panel_lines(packs_inside=packs_inside),
                    *self._chunk_lines(),
                ],
                "    ",
            ),
            "  }",
        ]
        item_ps = dim_min(p.num_rows, outer) * p.depth * self.width * multiply_add_ps(self.kernel.unit, p.dtype)
        loops.append(ParallelLoop(tuple(lines), product(p.batch) * num_outer * self.num_panels, item_ps))
        self.kernel.finish(loops)

    def _pack_loop(self) -> ParallelLoop:
        """Gives the loop that rearranges the only matrix on the right."""
        p = self.p
        lines = [
            f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
            f"    const int64_t n0 = item * {self.width};",
            f"    const int64_t n_count = byoc_min({self.width}, {c_dim(p.num_columns)} - n0);",
            f"    const {self.ctype} *right = {self.right};",
            *(f"    {line}" for line in self._pack_call(f"scratch + n0 * {c_dim(p.depth)}")),
            "  }",
        ]
        return ParallelLoop(tuple(lines), self.num_panels, p.depth * self.width * 100)

    def _pack_call(self, target: str) -> list[str]:
        p = self.p
        steps = f"{c_dim(p.right.row_step)}, {c_dim(p.right.column_step)}"
        source = "right + n0" if p.right.column_step == 1 else f"right + n0 * {c_dim(p.right.column_step)}"
        names = {width: pack_function(self.kernel, p.dtype, width) for width in (self.width, self.tail) if width}
        calls = {
            width: f"{name}({source}, {steps}, {c_dim(p.depth)}, n_count, {target});" for width, name in names.items()
        }
        if not self.tail:
            return [calls[self.width]]
        return [f"if (n_count > {self.tail}) {calls[self.width]}", f"else {calls[self.tail]}"]

    def _variables(self, num_outer: Dim) -> list[tuple[str, str]]:
        """Gives what says where an item's panel and matrices lie."""
        p, integer = self.p, "const int64_t"
        inner = num_outer * self.num_panels
        found = [
            (f"{integer} n0", "0" if self.num_panels == 1 else f"item % {c_dim(self.num_panels)} * {self.width}"),
            (f"{integer} n_count", f"byoc_min({self.width}, {c_dim(p.num_columns)} - n0)"),
            (f"{integer} b", "item" if inner == 1 else f"item / {c_dim(inner)}"),
            *p.positions,
        ]
        for name, pointer, matrix in (("left", self.left, p.left), ("right", self.right, p.right)):
            offset = matrix.offset(p.batch, p.indices)
            found.append((f"const {self.ctype} *{name}", f"{pointer} + {offset}" if offset else pointer))
        return found

    def _row_range(self, num_outer: Dim, outer: Dim) -> list[str]:
        num_rows = c_dim(self.p.num_rows)
        if num_outer == 1:
            return [f"    const int64_t m_begin = 0, m_end = {num_rows};"]
        part = "item" if self.num_panels == 1 else f"item / {c_dim(self.num_panels)}"
        part = f"{part} % {c_dim(num_outer)}" if self.p.batch else part
        return [
            f"    const int64_t m_begin = {part} * {c_dim(outer)};",
            f"    const int64_t m_end = byoc_min(m_begin + {c_dim(outer)}, {num_rows});",
        ]

    def _panel_lines(self, *, packs_inside: bool) -> list[str]:
        """Gives where the panel of an item lies, and how far apart its steps are where that is not its width."""
        p, depth = self.p, c_dim(self.p.depth)
        if self.form is _Form.CONSTANT:
            return [f"    const {self.ctype} *panel = {self.right} + n0 * {depth};"]
        if self.form is _Form.PACKED and not packs_inside:
            return [f"    const {self.ctype} *panel = scratch + n0 * {depth};"]
        if self.form is _Form.PACKED:
            first = f"(b * {c_dim(self.num_panels * self.width)} + n0)" if p.batch else "n0"
            target = f"    {self.ctype} *panel = scratch + {first} * {depth};"
            return [target, *(f"    {line}" for line in self._pack_call("panel"))]
        lines = [
            f"    const {self.ctype} *panel = right + n0;",
            f"    int64_t panel_step = {c_dim(p.right.row_step)};",
        ]
        if packs_inside:
            place = f"scratch + b * {c_dim(p.depth * self.width)}" if p.batch else "scratch"
            width = f"n_count > {self.tail} ? {self.width} : {self.tail}" if self.tail else str(self.width)
            lines += [
                f"    if ({self._is_ragged}) {{",
                f"      {self.ctype} *packed = {place};",
                *(f"      {line}" for line in self._pack_call("packed")),
                "      panel = packed;",
                f"      panel_step = {width};",
                "    }",
            ]
        return lines

    def _chunk_lines(self) -> list[str]:
        """Gives the loop over the rows of an item: their sums, part by part, and what follows."""
        columns = self.p.known_columns
        n_count = str(self.width) if columns is not None and columns % self.width == 0 else "n_count"
        names = ("sums", str(self.width), "m0", "m_count", "n0", n_count)
        tile = TextTile(*names, self.width, self.p.indices, has_columns=self.p.has_columns)
        head = [
            f"    for (int64_t m0 = m_begin; m0 < m_end; m0 += {self.chunk}) {{",
            f"      const int64_t m_count = byoc_min({self.chunk}, m_end - m0);",
        ]
        buffer = f"{self.ctype} sums[{self.chunk * self.width}];"
        epilogue = epilogue_lines(self.kernel, tile, "      ")
        place = text_result_place(self.kernel, tile)
        if place is None:
            sums = [buffer, *self._sum_lines("sums", str(self.width))]
            return [*head, *(f"      {line}" for line in sums), *epilogue, "    }"]
        # Nothing follows: whole vectors of sums go where they belong, and stay there until they are complete.
        pointer, pitch = place
        lines = [f"  {line}" for line in self._sum_lines(pointer, pitch)]
        if not self.has_ragged_tail:
            return [*head, *(f"    {line}" for line in lines), "    }"]
        through = [f"  {line}" for line in [buffer, *self._sum_lines("sums", str(self.width))]]
        text = [f"if ({self._is_ragged}) {{", *through, *(line[4:] for line in epilogue), "} else {", *lines, "}"]
        return [*head, *(f"      {line}" for line in text), "    }"]

    def _sum_lines(self, sums: str, pitch: str) -> list[str]:
        """Gives the lines that sum up a chunk of rows, to where ``sums`` points."""
        p = self.p
        left = "left" if p.left.row_step == 0 else f"left + m0 * {c_dim(p.left.row_step)}"
        strided = self.form is _Form.IN_PLACE
        step = "panel_step" if strided else "{width}"
        if not self.is_cut:
            fetches = self._fetches
            rest = "m_end - m_begin" if fetches else "0"
            depth = c_dim(p.depth)
            ahead = f"panel + ({depth} + (m0 - m_begin) * {depth} / (m_end - m_begin)) * {step}" if fetches else "panel"
            source = f"{left}, {c_dim(p.left.row_step)}, panel, {'panel_step, ' if strided else ''}{depth}"
            return self._calls(f"{source}, m_count, {sums}, {pitch}, 0, {ahead}, {rest}")
        block = c_dim(self.depth_block)
        source = (
            f"{left} + k0, {c_dim(p.left.row_step)}, panel + k0 * {step}, {'panel_step, ' if strided else ''}k_count"
        )
        ahead = "panel, 0" if strided else f"panel + (k0 + k_count) * {step}, m_count"
        return [
            "int64_t k0 = 0;",
            "do {",
            f"  const int64_t k_count = byoc_min({block}, {c_dim(p.depth)} - k0);",
            *(f"  {line}" for line in self._calls(f"{source}, m_count, {sums}, {pitch}, k0 > 0, {ahead}")),
            "  k0 += k_count;",
            f"}} while (k0 < {c_dim(p.depth)});",
        ]

    @property
    def _fetches(self) -> bool:
        """Whether the next panel is fetched meanwhile: it is far away, and enough rows pass."""
        if self.form is _Form.IN_PLACE or (self.p.known_rows is not None and self.p.known_rows <= _FEW_ROWS):
            return False
        return not _fits(self.p, _CACHE_NBYTES)

    def _calls(self, arguments: str) -> list[str]:
        """Gives the calls of the block functions; ``{width}`` in the arguments is the panel's width."""
        lanes, strided = self.kernel.unit.lanes(self.p.dtype), self.form is _Form.IN_PLACE
        rows = self.p.known_rows
        row_counts = set() if rows is None else {self.chunk, rows % self.chunk}
        calls = {}
        for width in (self.width, self.tail):
            if width:
                name = block_function(self.kernel, self.p.dtype, width // lanes, row_counts, strided=strided)
                calls[width] = f"{name}({arguments.replace('{width}', str(width))});"
        if not self.tail:
            return [calls[self.width]]
        return [f"if (n_count > {self.tail}) {calls[self.width]}", f"else {calls[self.tail]}"]


def _fits(p: Product, nbytes: int) -> bool:
    """Tells whether the right matrix is known to take no more than so many bytes."""
    size = p.depth * p.num_columns * dtype_info(p.dtype).itemsize
    return isinstance(size, int) and size <= nbytes


def _outer_rows(p: Product, chunk: int) -> int:
    """Gives the rows that meet all panels before the next rows come: those that stay in the cache, or the panels do."""
    if _fits(p, _CACHE_NBYTES):
        return chunk
    nbytes = p.depth * dtype_info(p.dtype).itemsize
    rows = _CACHE_NBYTES // nbytes if isinstance(nbytes, int) and nbytes else 2 * _ROWS_WAITING
    return max(1, rows // chunk) * chunk


def _panels(kernel: Kernel, p: Product, width: int, tail: int) -> NDArray:
    """Gives the weights as panels, one after another."""
    weights = p.weights
    assert weights is not None
    array = kernel.scope.constants.array(weights, kernel.scope.where)
    columns, depth = int(str(p.num_columns)), int(str(p.depth))
    matrix = array.reshape(columns, depth).T if p.is_transposed else array.reshape(depth, columns)
    parts = []
    for first in range(0, columns, width):
        part = matrix[:, first : first + width]
        size = tail if tail and part.shape[1] <= tail else width
        panel = np.zeros((depth, size), matrix.dtype)
        panel[:, : part.shape[1]] = part
        parts.append(panel.reshape(-1))
    return np.concatenate(parts)
