"""Magnitudes of the values of a region: proved from known facts, and from checks where nothing is known.

A bound of a value means: each element is a number (no NaN or infinity) of at most this magnitude. Nothing is known of
the inputs of a region. A check at run time creates a bound. Further bounds follow, until they grow beyond float32. A
deep network therefore needs a check every several layers, and none for values limited by the layers themselves.

A proved bound permits primitives that are wrong for NaN, infinities or large numbers, without a further check
(:mod:`byoc_dnnl.lowerings.functions`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from byoc_core.opset import LARGEST

from byoc_dnnl.ranges_constants import ConstantRanges
from byoc_dnnl.value_facts import CHECK_LIMITS, BoundRule, bound_of, rule_of

if TYPE_CHECKING:
    from byoc_core.runtime.graph.document import GraphFunction

    from byoc_dnnl.calls import Call
    from byoc_dnnl.precision import Precision

__all__ = ["OUTGROWN", "Need", "Ranges"]

_MARGINS: Mapping[Precision, float] = {"float32": 1.0, "bfloat16": 1 + 2.0**-6}
"""The growth factor of a result with operands and results rounded to nine bits; the rules account for float32."""

OUTGROWN = 2.0**500
"""Replacement for a bound grown beyond float32. Infinity means a value without known facts."""

_UNKNOWN = 2.0**1000
"""Replacement for infinity in comparisons of bounds."""

_SMALLEST = 2.0**-100
"""More than the amount added to a bound by rounding of subnormal numbers."""

Need = tuple[int, float]
"""A value and the required bound."""


class Ranges:
    """Bounds of the values of a function.

    Cost: a bound, and any sums of weights behind it, are computed on request.

    Args:
        function: the source of inputs and constants.
        calls: the nodes, in order.
        constants: known facts about the constants.
        precision: the precision to which intermediate values may be rounded.
    """

    def __init__(
        self, function: GraphFunction, calls: Sequence[Call], constants: ConstantRanges, precision: Precision
    ) -> None:
        self._margin = _MARGINS[precision]
        self._values = function.values
        self._constants = constants
        first = len(function.inputs)
        self._digests: Mapping[int, str] = {
            first + number: constant.digest for number, constant in enumerate(function.constants)
        }
        self._calls: Mapping[int, Call] = {id_: call for call in calls for id_ in call.outputs}
        self._rules: dict[int, BoundRule | None] = {}
        self._checked: dict[int, float] = {}
        self._bounds: list[float] = []
        self._proved: dict[tuple[int, tuple[float, ...]], float] = {}

    def bound(self, id_: int) -> float:
        """Return the bound of a value, up to ``LARGEST``; ``OUTGROWN`` or infinity without a bound."""
        if id_ in self._digests:
            return self._constants.largest(self._digests[id_])
        while len(self._bounds) <= id_:
            self._bounds.append(self._computed(len(self._bounds)))
        return self._bounds[id_]

    def _computed(self, id_: int) -> float:
        call, found = self._calls.get(id_), math.inf
        rule = None if call is None else self._rule(call)
        if call is not None and rule is not None:
            bounds, digests = self._bounds, self._digests
            operands = [call.inputs[number] for number in rule.operands]
            key = id_, tuple([bounds[operand] for operand in operands if operand not in digests])
            proved = self._proved.get(key)
            found = self._proved.setdefault(key, self._bound_of(call, rule)) if proved is None else proved
        checked = self._checked.get(id_, math.inf)
        return min(checked, found)

    def _bound_of(self, call: Call, rule: BoundRule) -> float:
        """Return the bound of a call's result, given the bounds of the operands; found once for equal bounds."""
        digests = [self._digests.get(operand) for operand in call.inputs]
        found = bound_of(rule, lambda operand: self.bound(call.inputs[operand]), digests, self._constants)
        found = found * self._margin + _SMALLEST
        if not found <= LARGEST:
            found = OUTGROWN if found < math.inf else math.inf
        return found

    def _rule(self, call: Call) -> BoundRule | None:
        """Return the rule for a call, if the result has a bound; found once for each kind of call."""
        if call.kind not in self._rules:
            self._rules[call.kind] = rule_of(call)
        return self._rules[call.kind]

    def set_checked(self, id_: int, limit: float) -> None:
        """Record a check that limits a value."""
        self._checked[id_] = limit
        del self._bounds[id_:]  # ids count up: no earlier bound depends on this id

    def proves(self, needs: Iterable[Need]) -> bool:
        """Return whether all needs are proved."""
        return all(self.bound(id_) <= limit for id_, limit in needs)

    def find_checks(self, needs: Sequence[Need], sources: Iterable[int], live: Iterable[int]) -> Sequence[Need] | None:
        """Return as few checks as needed to prove all needs; ``None`` if no checks suffice.

        Args:
            needs: the bounds to prove.
            sources: available values from which the needs follow.
            live: available values with pending readers. A live value is checked instead if more follows from the check:
                the value running past a residual block, not a value within the block. Values without known facts are
                excluded: such a value may be a mask with harmless infinities.
        """
        sources = [id_ for id_ in dict.fromkeys(sources) if self._can_be_checked(id_)]
        live = [id_ for id_ in dict.fromkeys(live) if self._can_be_checked(id_)]
        candidates = dict.fromkeys([*sources, *(id_ for id_ in live if math.isfinite(self.bound(id_)))])
        for limit in CHECK_LIMITS:
            checks, candidates_left = list[Need](), [(id_, limit) for id_ in candidates if self.bound(id_) > limit]
            while candidates_left and not self._suffice(checks, needs):
                best = min(candidates_left, key=lambda check: self._growth([*checks, check], [*live, *sources]))
                candidates_left.remove(best)
                checks.append(best)
            if self._suffice(checks, needs):
                for check in tuple(checks):
                    remaining = [other for other in checks if other is not check]
                    checks = remaining if self._suffice(remaining, needs) else checks
                return checks
        return None

    def _can_be_checked(self, id_: int) -> bool:
        return id_ not in self._digests and self._values[id_].dtype == "float32"

    def _suffice(self, checks: Sequence[Need], needs: Sequence[Need]) -> bool:
        with self._assuming(checks):
            return self.proves(needs)

    def _growth(self, checks: Sequence[Need], ids: Sequence[int]) -> float:
        """Return the total growth of the bounds of values, assuming the checks hold."""
        with self._assuming(checks):
            return sum(math.log2(min(self.bound(id_), _UNKNOWN)) for id_ in ids)

    @contextmanager
    def _assuming(self, checks: Sequence[Need]) -> Iterator[None]:
        saved = dict(self._checked), list(self._bounds)
        for check in checks:
            self.set_checked(*check)
        try:
            yield
        finally:
            self._checked, self._bounds = saved
