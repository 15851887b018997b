"""Tensors of strings during import: numbers in the IR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.ir.module import Value

__all__ = ["StringTensor"]


@dataclass(frozen=True, eq=False)
class StringTensor:
    """A tensor of strings: a pool of strings, and the number of a string of the pool for each element.

    Ops that only move elements move these numbers. The strings themselves are gathered where a model returns them, and
    for ops that read them.

    Attributes:
        data: uint8 ``(n,)``: the bytes of the strings of the pool in UTF-8, one after the other.
        lengths: int64: the number of bytes of each string, ``(rows,)``; without ``index`` in the shape of the tensor.
        index: int64, in the shape of the tensor: the number of the string of each element. By default the elements are
            the strings in order.
    """

    data: Value
    lengths: Value
    index: Value | None = None

    @property
    def shaped(self) -> Value:
        """The tensor of numbers in the shape of the tensor: ``index`` or ``lengths``."""
        return self.lengths if self.index is None else self.index

    def __str__(self) -> str:
        return "a tensor of strings"
