"""Epilogues of kernels whose bodies are text."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.authoring import c

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.steps import dtype_of

__all__ = ["TextTile", "epilogue_lines"]


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
