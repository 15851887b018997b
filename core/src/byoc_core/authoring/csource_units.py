"""Translation units of a long C source: kernels are compiled in several units at once.

The text stays a single file and is a translation unit by itself. Compiled with ``BYOC_UNIT`` (``byoc_scalar.h``), the
text is one of several units. A kernel stands in a single unit. Definitions shared by kernels stand in all units.
Functions calling the kernels stand in the first unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from byoc_core.authoring.csource_kernels import KernelRecord
from byoc_core.native.compile_units import MAX_UNITS, unit_count_line

__all__ = ["FunctionText", "in_units"]

_LINES = 800
"""Least lines of kernels for a separate unit: about half a second of a C compiler."""


class FunctionText(NamedTuple):
    """The C of a function: the name, the kernels, and the functions calling the kernels."""

    name: str
    kernels: Sequence[KernelRecord]
    callers: Sequence[str]

    @property
    def texts(self) -> list[str]:
        """The definitions, in order."""
        return [*(kernel.definition for kernel in self.kernels), *self.callers]


def in_units(
    head: str, constants: Sequence[str], shared: Sequence[str], functions: Sequence[FunctionText]
) -> Iterator[str]:
    """Yield the parts of a source in order.

    Args:
        head: includes.
        constants: definitions of constants, mentioned by no kernel.
        shared: definitions shared by kernels.
        functions: the functions.
    """
    kernels = [kernel for function in functions for kernel in function.kernels]
    count = min(sum(map(_length, kernels)) // _LINES, MAX_UNITS)
    if count < 2 or not all(kernel.prototype for kernel in kernels):
        yield from (head, *constants, *shared, *(text for function in functions for text in function.texts))
        return
    yield f"{unit_count_line(count)}\n{head}"
    yield from shared
    yield "\n".join(kernel.prototype for kernel in kernels)
    yield "#if BYOC_IN_UNIT(0)"
    yield from (*constants, *(text for function in functions for text in function.callers))
    yield "#endif"
    for number, part in enumerate(_balanced(kernels, count)):
        yield f"#if BYOC_IN_UNIT({number})"
        yield from (kernel.definition for kernel in part)
        yield "#endif"


def _balanced(kernels: Sequence[KernelRecord], count: int) -> list[list[KernelRecord]]:
    """Return kernels in `count` parts of about equal length; kernels of an op, sharing most text, stay together."""
    parts: list[list[KernelRecord]] = [[] for _ in range(count)]
    total, num_assigned = sum(map(_length, kernels)), 0
    for kernel in sorted(kernels, key=_op_of):
        parts[num_assigned * count // total].append(kernel)
        num_assigned += _length(kernel)
    return parts


def _length(kernel: KernelRecord) -> int:
    return kernel.text.count("\n") + 1


def _op_of(kernel: KernelRecord) -> str:
    return kernel.facts.bindings[0].op.name if kernel.facts.bindings else ""
