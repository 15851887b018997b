"""What a kernel family is: ops that one writer turns into C, and what the region's planner must know of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from byoc_core.backend.hooks import Rejection
from byoc_core.ir import Binding

from byoc_ccompiler.steps import Step

if TYPE_CHECKING:
    from byoc_core.authoring import c
    from byoc_core.authoring.csource import FunctionScope

    from byoc_ccompiler.kernel import Kernel

__all__ = ["Access", "KernelFamily", "any_access", "rows_access", "writer_by_table"]


class Access(IntEnum):
    """How a tensor may lie in memory for a kernel that reads or writes it, from the least freedom to the most.

    Attributes:
        COMPACT: row-major, without gaps.
        ROWS: any strides, but the elements of the last axis lie side by side (stride 1, whatever a size of 1 says).
        ANY: any strides at all; 0 along an axis that is read more than once.
    """

    COMPACT = 0
    ROWS = 1
    ANY = 2


def any_access(step: Step, index: int) -> Access:
    """Return that a tensor may have any strides."""
    return Access.ANY


def rows_access(step: Step, index: int) -> Access:
    """Return that a tensor may have any strides, but rows without gaps."""
    return Access.ROWS


def writer_by_table(writers: Mapping[str, Callable[[Kernel, Step], c.Block]]) -> Callable[[Kernel], None]:
    """Return the writer of kernels of one step: a table says, for each op, which function makes their statements."""

    def write(kernel: Kernel) -> None:
        (step,) = kernel.group.steps
        kernel.finish_block(writers[step.op](kernel, step))

    return write


def _checks_nothing(scope: FunctionScope, step: Step) -> None:
    """For ops whose sizes the type rules alone make right."""


def _compact(step: Step, index: int) -> Access:
    return Access.COMPACT


@dataclass(frozen=True, slots=True)
class KernelFamily:
    """Ops that one writer turns into kernels.

    Attributes:
        ops: the names of the ops.
        reject: gives the reason why one op cannot be compiled, or ``None`` where it can. It is asked where ranks are
            known and C has types for all dtypes.
        write: writes a kernel whose first step is one of the ops.
        takes_epilogue: whether elementwise steps that follow (of the result's shape) are computed while its results are
            at hand; such a kernel's group may hold more than one step.
        takes_halves: whether float16 and bfloat16 are taken as they are: elements that are moved, not computed with.
        require: adds to the function the checks of sizes that only a call shows and the kernel relies on.
        reads: how the tensor of an operand (by its number) may lie.
        writes: how the tensor of a result (by its number) may lie; of a family that takes an epilogue also what that
            reads and writes.
    """

    ops: frozenset[str]
    reject: Callable[[Binding], Rejection | None]
    write: Callable[[Kernel], None]
    takes_epilogue: bool = False
    takes_halves: bool = False
    require: Callable[[FunctionScope, Step], None] = _checks_nothing
    reads: Callable[[Step, int], Access] = _compact
    writes: Callable[[Step, int], Access] = _compact
