"""Epilogues of kernels whose bodies are text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_dim
from byoc_core.dims import Dim, product

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue, result_place
from byoc_ccompiler.steps import dtype_of

__all__ = ["TextTile", "epilogue_lines", "text_index_term", "text_result_place", "unravel"]


@dataclass(frozen=True, slots=True)
class TextTile:
    """A tile of sums, in C text; see :class:`~byoc_ccompiler.kernels.epilogue.SumsTile`."""

    sums: str
    row_step: str
    first_row: str
    num_rows: str
    first_column: str
    num_columns: str
    full_columns: int | None = None
    leading: tuple[str, ...] = ()
    has_columns: bool = True

    def statements_tile(self, kernel: Kernel) -> SumsTile:
        """Return the tile as expressions that are text."""
        return SumsTile(
            c.Buffer(self.sums, dtype_of(kernel.group.steps[0].result)),
            int(self.row_step),
            _raw(self.first_row),
            _raw(self.num_rows),
            _raw(self.first_column),
            _raw(self.num_columns),
            self.full_columns,
            tuple(map(_raw, self.leading)),
            self.has_columns,
        )


def _raw(text: str) -> c.Expression:
    if text.isdigit():
        return c.Size(int(text))
    return c.Raw(text if text.isidentifier() else f"({text})", c.INDEX)


def epilogue_lines(kernel: Kernel, tile: TextTile, indent: str = "") -> list[str]:
    """Return the lines of an epilogue."""
    lines, _ = kernel.print_block(epilogue(kernel, tile.statements_tile(kernel)))
    return [indent + line for line in lines]


def text_result_place(kernel: Kernel, tile: TextTile) -> tuple[str, str] | None:
    """Return the C expression of where a tile's first sum belongs, and of the distance from row to row."""
    found = result_place(kernel, tile.statements_tile(kernel))
    if found is None:
        return None
    buffer, offset, step = found
    lines, _ = kernel.print_block((c.Evaluate(c.Address(buffer, offset)),))
    return lines[0].strip().rstrip(";"), c_dim(step)


def text_index_term(index: str, dim: Dim, size: Dim, stride: Dim) -> str:
    """Return the C of what an index adds to an offset, empty for nothing."""
    if dim == 1 or stride == 0 or index == "0":
        return ""
    term = index if stride == 1 else f"{index} * {c_dim(stride)}"
    return term if dim == size else f"({c_dim(dim)} == 1 ? 0 : {term})"


def unravel(index: str, sizes: Sequence[Dim]) -> list[str]:
    """Return the C of the position along each axis from a row-major index."""
    expressions = []
    for axis in range(len(sizes)):
        inner = product(sizes[axis + 1 :])
        text = index if inner == 1 else f"{index} / {c_dim(inner)}"
        if axis == 0:
            expressions.append(text if inner == 1 else f"({text})")
        else:
            expressions.append("0" if sizes[axis] == 1 else f"({text} % {c_dim(sizes[axis])})")
    return expressions
