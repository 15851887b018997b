"""What a row kernel does in which pass over its row, and where values wait from one pass to the next.

A reduction's result is known when its pass is over. A value made for every element is computed in the first pass that
knows all of what it is made of; a later pass reads it back or, where that costs as little, computes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from byoc_core.ir import Value, Var

from byoc_ccompiler.kernel import Group
from byoc_ccompiler.kernels.row_reducers import REDUCTIONS
from byoc_ccompiler.steps import Step, dtype_of

__all__ = ["CHEAP", "Pass", "RowPlan"]

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
        written: the values that it stores, and those that wait for a later pass.
        reductions: what it reduces.
    """

    read: list[Var] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    written: list[Var] = field(default_factory=list)
    reductions: list[Step] = field(default_factory=list)


class RowPlan:
    """The passes over a row. Cost: O(steps * passes).

    Args:
        group: the steps of the kernel.
        stored: the values that must reach memory.
        take_buffer: says whether there is a buffer for a value, which then has it.
        lends: says whether a value had better wait in the memory of a result than in a buffer.

    Attributes:
        between: the steps on a row's own values that are computed before each pass, and after the last one.
        borrowed: the results, written later, in whose memory values wait that have no buffer.
    """

    def __init__(
        self, group: Group, stored: Iterable[Var], take_buffer: Callable[[Var], bool], lends: Callable[[Var], bool]
    ) -> None:
        self._steps, self._stored, self._row_values = group.steps, set(stored), group.row_axes
        self._take_buffer, self._lends = take_buffer, lends
        self._maker = {step.result: step for step in self._steps}
        # Of a value per element the pass that makes it, of a row's value the first pass that knows it.
        self._at: dict[Value, int] = {}
        for step in self._steps:
            after = 1 if step.op in REDUCTIONS else 0
            self._at[step.result] = after + max((self._at.get(operand, 0) for operand in step.operands), default=0)
        self.borrowed: dict[Var, Var] = {}
        ends = (self._at[step.result] + (step.result not in self._row_values) for step in self._steps)
        self.passes = [Pass() for _ in range(max(ends))]
        self.between: list[list[Step]] = [[] for _ in range(len(self.passes) + 1)]
        for step in self._steps:
            at = self._at[step.result]
            if step.op in REDUCTIONS:
                self.passes[at - 1].reductions.append(step)
            elif step.result in self._row_values:
                self.between[at].append(step)
            elif step.result in self._stored:
                self.passes[at].written.append(step.result)
        for index in reversed(range(len(self.passes))):
            self._fill(index)

    def _fill(self, index: int) -> None:
        """Say what one pass computes and what it reads back; earlier passes then have more to keep."""
        this = self.passes[index]
        wanted: list[Value] = [*(step.operands[0] for step in this.reductions), *this.written]
        needed: set[Value] = set()
        while wanted:
            value = wanted.pop()
            if value in needed or value in this.read or value not in self._maker or value in self._row_values:
                continue
            assert isinstance(value, Var)
            if self._at[value] < index and self._waits(value, index):
                this.read.append(value)
                continue
            needed.add(value)
            wanted += self._maker[value].operands
        this.steps = [step for step in self._steps if step.result in needed]

    def _waits(self, value: Var, index: int) -> bool:
        """Return whether a value of an earlier pass is read back, and have it kept."""
        made = self.passes[self._at[value]]
        if value in made.written:
            return True
        # It is computed again where it costs no more than to read it: by a cheap op of few tensors that are read.
        step = self._maker[value]
        tensors = {operand for operand in step.operands if operand not in self._row_values}
        if step.op in CHEAP and tensors.isdisjoint(self._maker) and len(tensors) <= _MAX_READ_AGAIN:
            return False
        place = self._lender(value, index)
        if place is not None and (self._lends(place) or not self._take_buffer(value)):
            self.borrowed[value] = place
        elif place is None and not self._take_buffer(value):
            return False
        made.written.append(value)
        return True

    def _lender(self, value: Var, index: int) -> Var | None:
        """Return a result that is not written before the last pass that reads the value, and that nothing else uses."""
        for result in self._maker:
            lends = result in self._stored and result not in self._row_values and self._at[result] >= index
            if lends and result not in self.borrowed.values() and dtype_of(result) == dtype_of(value):
                return result
        return None
