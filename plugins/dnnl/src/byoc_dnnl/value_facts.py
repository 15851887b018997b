"""The bound of a call's result, by the rule of the op in the core's op set; :mod:`byoc_dnnl.ranges` defines bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from byoc_core.opset import LARGEST, OpContext, Rule, TensorType, ValueFacts, find_op
from byoc_core.runtime.module import NDArray

from byoc_dnnl.calls import Call
from byoc_dnnl.ranges_constants import ConstantRanges

__all__ = ["CHECK_LIMITS", "bound_of", "context_of"]

CHECK_LIMITS = (2.0**40, 2.0**20)
"""The magnitudes permitted by checks. The limits are far larger than the numbers of networks, so a region is hardly
ever recomputed for size alone. The limits are also far enough below 2**127 for about ten layers with a growth of a few
hundred times each. The second limit is for needs not proved by the first.
"""


class _CallFacts(ValueFacts):
    def __init__(
        self,
        context: OpContext,
        bound: Callable[[int], float],
        digests: Sequence[str | None],
        constants: ConstantRanges,
    ) -> None:
        self.context = context
        self._bound = bound
        self._digests = digests
        self._constants = constants

    def bound(self, operand: int) -> float:
        return self._bound(operand)

    def is_constant(self, operand: int) -> bool:
        return self._digests[operand] is not None

    def constant(self, operand: int) -> NDArray:
        return self._constants.array(str(self._digests[operand]))

    def smallest(self, operand: int) -> float:
        digest = self._digests[operand]
        return 0.0 if digest is None else self._constants.smallest(digest)

    def largest_sum(self, operand: int, axis: int) -> float:
        return self._constants.largest_sum(str(self._digests[operand]), axis)


def context_of(call: Call) -> OpContext:
    """Return the types and attributes of a call, as seen by rules."""
    operands, results = (
        tuple([TensorType(tensor.shape, tensor.dtype) for tensor in tensors])
        for tensors in (call.operands, call.results)
    )
    return OpContext(operands, results, call.attrs)


def bound_of(
    call: Call,
    context: OpContext,
    bound: Callable[[int], float],
    digests: Sequence[str | None],
    constants: ConstantRanges,
) -> float:
    """Return the bound of a call's result by the op's rule, or the bound of an operand that float32 does not hold.

    Args:
        call: the op.
        context: the types and attributes of the call.
        bound: return the bound of an operand, by number.
        digests: of the operands; ``None`` for operands other than constants.
        constants: facts about constants.
    """
    op = find_op(call.op)
    if op is None or op.bound is None:
        return math.inf
    facts = _CallFacts(context, bound, digests, constants)
    # Weights are skipped: sums of weights reveal more, and cost a pass. Integers are skipped too. Constants beyond the
    # limits of checks turn dependent values into masks.
    is_product = op.rounding is not None and op.rounding.rule is Rule.SUM and len(digests) > 1 and facts.is_constant(1)
    bounds = {
        operand: facts.bound(operand)
        for operand, tensor in enumerate(call.operands)
        if tensor.dtype == "float32" and not (is_product and operand == 1)
    }
    if any(facts.is_constant(operand) and found > CHECK_LIMITS[0] for operand, found in bounds.items()):
        return math.inf
    largest = max(bounds.values())
    return op.bound(facts) if largest <= LARGEST else largest
