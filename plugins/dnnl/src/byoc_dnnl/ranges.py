"""How large the values of a region are: proved from what is known, and from checks where nothing is.

A bound of a value says that each of its elements is a number, no NaN or infinity, of at most that magnitude. Of what is
passed to a region nothing is known. A check at run time makes a bound, and further ones follow from it up to where
they grow beyond float32: so a deep network needs a check every several layers, and none for what layers limit by
themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from byoc_core.opset import LARGEST

from byoc_dnnl.ranges_constants import ConstantRanges
from byoc_dnnl.value_facts import CHECK_LIMITS, bound_of

if TYPE_CHECKING:
    from byoc_core.runtime.graph.document import GraphFunction

    from byoc_dnnl.calls import Call
    from byoc_dnnl.precision import Precision

__all__ = ["OUTGROWN", "Need", "Ranges"]

_MARGINS: Mapping[Precision, float] = {"float32": 1.0, "bfloat16": 1 + 2.0**-6}
"""By how much larger a result may be, where operands and results are rounded to nine bits; rules see to float32."""

OUTGROWN = 2.0**500
"""In place of a bound: none that float32 holds follows, but only since it has grown too far. Infinity is for values of
which nothing is known."""

_UNKNOWN = 2.0**1000
"""What counts for infinity where bounds are compared."""

_SMALLEST = 2.0**-100
"""More than what rounding of subnormal numbers adds to a bound."""

Need = tuple[int, float]
"""A value, and the bound that it has to have."""


class Ranges:
    """Bounds of the values of a function.

    Cost: a bound is computed when it is asked for; so are the sums of weights that it hangs on.

    Args:
        function: its inputs and constants.
        calls: its nodes, in order.
        constants: what is known of its constants.
        precision: to what values may be rounded on the way.
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
        self._checked: dict[int, float] = {}
        self._bounds: list[float] = []

    def bound(self, id_: int) -> float:
        """Gives the bound of a value, up to ``LARGEST``; ``OUTGROWN`` or infinity where there is none."""
        if id_ in self._digests:
            return self._constants.largest(self._digests[id_])
        while len(self._bounds) <= id_:
            self._bounds.append(self._computed(len(self._bounds)))
        return self._bounds[id_]

    def _computed(self, id_: int) -> float:
        call, found = self._calls.get(id_), math.inf
        if call is not None and (
            call.op == "dequantize" or all(tensor.dtype == "float32" for tensor in (*call.operands, call.result))
        ):
            digests = [self._digests.get(operand) for operand in call.inputs]
            found = bound_of(call, lambda operand: self.bound(call.inputs[operand]), digests, self._constants)
            found = found * self._margin + _SMALLEST
            if not found <= LARGEST:
                found = OUTGROWN if found < math.inf else math.inf
        return min(found, self._checked.get(id_, math.inf))

    def set_checked(self, id_: int, limit: float) -> None:
        """Says that a check holds a value to a limit."""
        self._checked[id_] = limit
        del self._bounds[id_:]  # ids count up: nothing before hangs on it

    def hold(self, needs: Iterable[Need]) -> bool:
        """Whether all that is needed is proved."""
        return all(self.bound(id_) <= limit for id_, limit in needs)

    def find_checks(self, needs: Sequence[Need], sources: Iterable[int], live: Iterable[int]) -> Sequence[Need] | None:
        """Gives as few checks as prove all that is needed; ``None`` where none do.

        Args:
            needs: what has to be proved.
            sources: values that are there, and from which it follows.
            live: values that are there, and that something reads yet. One of them is checked instead where more follows
                from that: the value that runs past a residual block, not one within it. Not one of which nothing is
                known: it may be a mask, which holds infinities and does no harm.
        """
        sources = [id_ for id_ in dict.fromkeys(sources) if self._can_be_checked(id_)]
        live = [id_ for id_ in dict.fromkeys(live) if self._can_be_checked(id_)]
        candidates = dict.fromkeys([*sources, *(id_ for id_ in live if math.isfinite(self.bound(id_)))])
        for limit in CHECK_LIMITS:
            checks, left = list[Need](), [(id_, limit) for id_ in candidates if self.bound(id_) > limit]
            while left and not self._suffice(checks, needs):
                best = min(left, key=lambda check: self._growth([*checks, check], [*live, *sources]))
                left.remove(best)
                checks.append(best)
            if self._suffice(checks, needs):
                for check in tuple(checks):
                    others = [other for other in checks if other is not check]
                    checks = others if self._suffice(others, needs) else checks
                return checks
        return None

    def _can_be_checked(self, id_: int) -> bool:
        return id_ not in self._digests and self._values[id_].dtype == "float32"

    def _suffice(self, checks: Sequence[Need], needs: Sequence[Need]) -> bool:
        with self._supposed(checks):
            return self.hold(needs)

    def _growth(self, checks: Sequence[Need], ids: Sequence[int]) -> float:
        """Gives how far the bounds of values have grown all together, if checks held."""
        with self._supposed(checks):
            return sum(math.log2(min(self.bound(id_), _UNKNOWN)) for id_ in ids)

    @contextmanager
    def _supposed(self, checks: Sequence[Need]) -> Iterator[None]:
        before = dict(self._checked), list(self._bounds)
        for check in checks:
            self.set_checked(*check)
        try:
            yield
        finally:
            self._checked, self._bounds = before
