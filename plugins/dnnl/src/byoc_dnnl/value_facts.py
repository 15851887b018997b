"""The bound of a call's result, by the rule of the op in the core's op set; :mod:`byoc_dnnl.ranges` defines bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from byoc_core.dtypes import is_integer
from byoc_core.opset import LARGEST, OpContext, OpDef, Rule, TensorType, ValueFacts, find_op
from byoc_core.runtime.module import NDArray

from byoc_dnnl.calls import Call
from byoc_dnnl.ranges_constants import ConstantRanges

__all__ = ["CHECK_LIMITS", "BoundRule", "bound_of", "rule_of"]

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


class BoundRule(NamedTuple):
    """The rule for the bound of the results of a kind of call.

    Attributes:
        op: the op; the op set has a rule for the bound of the result.
        context: the types and attributes.
        operands: the numbers of the operands of float32.
        is_sum: whether the op sums products, so constant weights are skipped.
    """

    op: OpDef
    context: OpContext
    operands: tuple[int, ...]
    is_sum: bool


def rule_of(call: Call) -> BoundRule | None:
    """Return the rule for a call, equal for all calls of a kind; ``None`` if the result has no bound."""
    op = find_op(call.op)
    dtypes = [tensor.dtype for tensor in call.operands]
    if op is None or op.bound is None or call.result.dtype != "float32":
        return None
    if not all(dtype == "float32" or is_integer(dtype) for dtype in dtypes):
        return None
    operands, results = (
        tuple([TensorType(tensor.shape, tensor.dtype) for tensor in tensors])
        for tensors in (call.operands, call.results)
    )
    floats = tuple([number for number, dtype in enumerate(dtypes) if dtype == "float32"])
    is_sum = op.rounding is not None and op.rounding.rule is Rule.SUM and len(dtypes) > 1
    return BoundRule(op, OpContext(operands, results, call.attrs), floats, is_sum)


def bound_of(
    rule: BoundRule, bound: Callable[[int], float], digests: Sequence[str | None], constants: ConstantRanges
) -> float:
    """Return the bound of a call's result by the op's rule, or the bound of an operand that float32 does not hold.

    Args:
        rule: the rule for the call.
        bound: return the bound of an operand, by number.
        digests: of the operands; ``None`` for operands other than constants.
        constants: facts about constants.
    """
    # Weights are skipped: sums of weights reveal more, and cost a pass. Integers are skipped too. Constants beyond the
    # limits of checks turn dependent values into masks.
    skipped = 1 if rule.is_sum and digests[1] is not None else None
    operands = [operand for operand in rule.operands if operand != skipped]
    bounds = [bound(operand) for operand in operands]
    for operand, operand_bound in zip(operands, bounds, strict=True):
        if operand_bound > CHECK_LIMITS[0] and digests[operand] is not None:
            return math.inf
    largest = max(bounds)
    if largest > LARGEST or rule.op.bound is None:
        return largest
    return rule.op.bound(_CallFacts(rule.context, bound, digests, constants))
