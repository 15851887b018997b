"""What a row kernel does in which pass over its row, and where values wait from one pass to the next.

A reduction's result is known when its pass is over. A value made for every element is computed in the first pass that
knows all of what it is made of; a later pass reads it back or, where that costs as little, computes it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from byoc_core.ir import Value, Var

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.row_reducers import REDUCTIONS
from byoc_ccompiler.steps import Step, dtype_of

__all__ = ["CHEAP", "Pass", "RowPlan", "plan_rows"]

CHEAP = frozenset(
    {"add", "subtract", "multiply", "maximum", "minimum", "negative", "abs", "nn.relu", "nn.bias_add", "broadcast_to"}
    | {"cast", "where", "equal", "less", "less_equal", "greater", "greater_equal", "logical_not"}
)
"""Ops that cost no more than reading their result from memory."""

_MAX_READ_AGAIN = 2
"""Tensors that a value may be made of, to be computed again rather than kept."""


@dataclass(slots=True)
class Pass:
    """One pass over a row.

    Attributes:
        read: values of earlier passes that it reads back.
        steps: the elementwise steps that it computes, in order.
        stored: the values that it writes to memory of their own.
        kept: the values that it writes to where they wait for a later pass.
        reductions: what it reduces.
    """

    read: list[Var] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    stored: list[Var] = field(default_factory=list)
    kept: list[Var] = field(default_factory=list)
    reductions: list[Step] = field(default_factory=list)


@dataclass(slots=True)
class RowPlan:
    """The passes over a row.

    Attributes:
        passes: in order.
        between: the steps on a row's own values that are computed before each pass, and after the last one.
        borrowed: for values that wait in the memory of a result which is written later, that result; the others that
            wait do so in a buffer.
    """

    passes: list[Pass]
    between: list[list[Step]]
    borrowed: dict[Var, Var]


def plan_rows(kernel: Kernel, take_buffer: Callable[[Var], bool], lends: Callable[[Var], bool]) -> RowPlan:
    """Gives the plan of a kernel.

    Args:
        kernel: the kernel.
        take_buffer: says whether there is a buffer for a value, which then has it.
        lends: says whether a value had better wait in the memory of a result than in a buffer.

    Cost: O(steps * passes).
    """
    return _Planner(kernel, take_buffer, lends).plan()


class _Planner:
    def __init__(self, kernel: Kernel, take_buffer: Callable[[Var], bool], lends: Callable[[Var], bool]) -> None:
        self.steps = kernel.group.steps
        self._stored = set(kernel.stored)
        self._take_buffer = take_buffer
        self._lends = lends
        self._row_values = kernel.group.row_axes
        self._maker = {step.result: step for step in self.steps}
        self._borrowed: dict[Var, Var] = {}
        # Of a value per element the pass that makes it, of a row's value the first pass that knows it.
        self._at: dict[Value, int] = {}
        for step in self.steps:
            after = 1 if step.op in REDUCTIONS else 0
            self._at[step.result] = after + max((self._at.get(operand, 0) for operand in step.operands), default=0)

    def plan(self) -> RowPlan:
        """Gives the plan."""
        elements = [step for step in self.steps if step.result not in self._row_values]
        reductions = [step for step in self.steps if step.op in REDUCTIONS]
        count = max([self._at[s.result] + 1 for s in elements] + [self._at[s.result] for s in reductions])
        passes = [Pass() for _ in range(count)]
        for step in reductions:
            passes[self._at[step.result] - 1].reductions.append(step)
        for step in elements:
            if step.result in self._stored:
                passes[self._at[step.result]].stored.append(step.result)
        for index in reversed(range(count)):
            self._fill(passes, index)
        between: list[list[Step]] = [[] for _ in range(count + 1)]
        for step in self.steps:
            if step.result in self._row_values and step.op not in REDUCTIONS:
                between[self._at[step.result]].append(step)
        return RowPlan(passes, between, self._borrowed)

    def _fill(self, passes: list[Pass], index: int) -> None:
        """Says what one pass computes and what it reads back; earlier passes then have more to keep."""
        this = passes[index]
        wanted: list[Value] = [step.operands[0] for step in this.reductions]
        wanted += [*this.stored, *this.kept]
        needed: set[Value] = set()
        while wanted:
            value = wanted.pop()
            if value in needed or value in this.read or value not in self._maker or value in self._row_values:
                continue
            assert isinstance(value, Var)
            if self._at[value] < index and self._waits(value, passes, index):
                this.read.append(value)
                continue
            needed.add(value)
            wanted += self._maker[value].operands
        this.steps = [step for step in self.steps if step.result in needed]

    def _waits(self, value: Var, passes: list[Pass], index: int) -> bool:
        """Tells whether a value of an earlier pass is read back, and has it kept."""
        made = passes[self._at[value]]
        if value in self._stored or value in made.kept:
            return True
        if self._is_cheap(self._maker[value]):
            return False
        place = self._lender(value, index)
        if place is not None and (self._lends(place) or not self._take_buffer(value)):
            self._borrowed[value] = place
        elif place is None and not self._take_buffer(value):
            return False
        made.kept.append(value)
        return True

    def _is_cheap(self, step: Step) -> bool:
        made = [operand for operand in step.operands if operand in self._maker and operand not in self._row_values]
        tensors = {operand for operand in step.operands if operand not in self._row_values}
        return step.op in CHEAP and not made and len(tensors) <= _MAX_READ_AGAIN

    def _lender(self, value: Var, index: int) -> Var | None:
        """Gives a result that is not written before the last pass that reads the value, and that nothing else uses."""
        for step in self.steps:
            result = step.result
            lends = result in self._stored and result not in self._row_values and self._at[result] >= index
            if lends and result not in self._borrowed.values() and dtype_of(result) == dtype_of(value):
                return result
        return None
