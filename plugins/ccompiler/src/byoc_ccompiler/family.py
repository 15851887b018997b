"""The definition of a kernel family: ops turned into C by one writer, and the facts needed by the region's planner."""

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
    """The freedom of a kernel in the memory layout of a tensor read or written, from the least to the most.

    Attributes:
        COMPACT: row-major, without gaps.
        ROWS: any strides, but stride 1 along the last axis (for an axis of size 1, any stride).
        ANY: any strides at all, including 0 to read an element again along an axis.
    """

    COMPACT = 0
    ROWS = 1
    ANY = 2


def any_access(step: Step, index: int) -> Access:
    """Return access to a tensor with any strides."""
    return Access.ANY


def rows_access(step: Step, index: int) -> Access:
    """Return access to a tensor with any strides, but rows without gaps."""
    return Access.ROWS


def writer_by_table(writers: Mapping[str, Callable[[Kernel, Step], c.Block]]) -> Callable[[Kernel], None]:
    """Return the writer for single-step kernels, from a table of the functions building the statements of each op."""

    def write(kernel: Kernel) -> None:
        (step,) = kernel.group.steps
        kernel.finish_block(writers[step.op](kernel, step))

    return write


def _require_nothing(scope: FunctionScope, step: Step) -> None:
    """Check nothing, for ops with sizes guaranteed by the type rules alone."""


def _compact(step: Step, index: int) -> Access:
    return Access.COMPACT


@dataclass(frozen=True, slots=True)
class KernelFamily:
    """Ops turned into kernels by one writer.

    Attributes:
        ops: the names of the ops.
        reject: returns the reason against compiling an op, or ``None`` if there is no reason. Called for known ranks
            only, and only if C has types for all dtypes.
        write: writes a kernel starting with one of the ops.
        takes_epilogue: whether following elementwise steps (of the result's shape) are computed while the results of
            the op are at hand; the group of the kernel may then hold several steps.
        takes_halves: whether float16 and bfloat16 are taken unchanged: the elements are moved, not computed with.
        require: adds to the function the checks of sizes known only in a call and assumed by the kernel.
        reads: the access to the tensor of an operand (by number).
        writes: the access to the tensor of a result (by number); in a family with an epilogue, also the access to the
            operands and results of the epilogue.
    """

    ops: frozenset[str]
    reject: Callable[[Binding], Rejection | None]
    write: Callable[[Kernel], None]
    takes_epilogue: bool = False
    takes_halves: bool = False
    require: Callable[[FunctionScope, Step], None] = _require_nothing
    reads: Callable[[Step, int], Access] = _compact
    writes: Callable[[Step, int], Access] = _compact
