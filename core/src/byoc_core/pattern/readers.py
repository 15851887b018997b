"""Conditions of patterns on the readers of a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from byoc_core.ir import Value
from byoc_core.pattern.conditions import Condition
from byoc_core.pattern.fit import reader_misfit
from byoc_core.pattern.index import FunctionIndex

if TYPE_CHECKING:
    from byoc_core.pattern.language import OpPattern

__all__ = ["ReadBy"]


@dataclass(frozen=True, eq=False, slots=True)
class ReadBy(Condition):
    """Every reader of the value, or some reader, is of a kind.

    Reads through identities count as reads by the readers of the identity. A return of the value by the function counts
    as a reader of another kind.

    Attributes:
        reader: the kind: an op pattern without operand patterns.
        every: whether all readers must fit (with at least a single reader); else a single fitting reader suffices.
    """

    reader: OpPattern
    every: bool

    def _holds(self, value: Value, index: FunctionIndex) -> bool:
        readers, returned = index.readers(value)
        fits = (reader_misfit(self.reader, reader, index) is None for reader in readers)
        return bool(readers) and not returned and all(fits) if self.every else any(fits)

    def _misfit(self, value: Value, index: FunctionIndex) -> str:
        readers, returned = index.readers(value)
        wrong = list(
            dict.fromkeys(f"`{r.op.name}`" for r in readers if reader_misfit(self.reader, r, index) is not None)
        )
        readers_text = f"is read by {', '.join(wrong)}" if wrong else ""
        if self.every:
            found = [readers_text] if wrong else []
            found += ["is returned by the function"] if returned else []
            return f"{' and '.join(found) or 'is not read'}, expected readers {self.reader} only"
        return f"{readers_text or 'is not read'}, expected a reader {self.reader}"

    def __str__(self) -> str:
        return f"{'only read' if self.every else 'read'} by {self.reader}"
