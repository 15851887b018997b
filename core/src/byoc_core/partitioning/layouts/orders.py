"""The choice of axis orders: values bound to a common order, and ops wanting an order of their operands and results.

This module knows no IR: a value is a number. The order of a value lists axes as for ``permute_dims``, so the memory
holds ``permute_dims(value, order)`` in row-major order; ``None`` is the row-major order of the value itself.

Values bound to each other have one order. A group of such values takes the order with the fewest bytes to convert: a
value is converted behind its producer if the producer writes another order, and once for each other order wanted by
readers. Ops between groups want fixed orders, so groups are independent of each other and each choice is optimal.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

__all__ = ["Order", "OrderProblem"]

Order = tuple[int, ...] | None


@dataclass
class OrderProblem:
    """A problem under construction; :meth:`choose` solves it.

    Attributes:
        nbytes: the bytes of each value; 0 if all orders are the same memory.
    """

    nbytes: dict[int, int] = field(default_factory=dict)
    _parents: dict[int, int] = field(default_factory=dict)
    _written: dict[int, Collection[Order]] = field(default_factory=dict)
    _read: dict[int, list[Collection[Order]]] = field(default_factory=dict)

    def add(self, value: int, nbytes: int) -> None:
        """Add a value, in a group of its own; a known value stays unchanged."""
        if value not in self._parents:
            self._parents[value] = value
            self.nbytes[value] = nbytes

    def bind(self, first: int, second: int) -> None:
        """Give two values one order."""
        self._parents[self._find(second)] = self._find(first)

    def want_written(self, value: int, orders: Collection[Order]) -> None:
        """State the orders in which the producer can write a value without a conversion."""
        self._written[value] = orders

    def want_read(self, value: int, orders: Collection[Order]) -> None:
        """State the orders in which a reader can read a value without a conversion."""
        self._read.setdefault(value, []).append(orders)

    def choose(self) -> dict[int, Order]:
        """Return the order of each value. Row-major wins ties, then the order first stated. Cost: linear in wishes."""
        groups: dict[int, list[int]] = {}
        for value in self._parents:
            groups.setdefault(self._find(value), []).append(value)
        orders_by_value: dict[int, Order] = {}
        for members in groups.values():
            candidates = dict.fromkeys([None, *(order for value in members for order in self._preferences(value))])
            costs = {order: sum(self._cost(value, order) for value in members) for order in candidates}
            best = min(costs, key=costs.__getitem__)
            orders_by_value.update(dict.fromkeys(members, best))
        return orders_by_value

    def _preferences(self, value: int) -> list[Order]:
        return [order for orders in (self._written.get(value, ()), *self._read.get(value, ())) for order in orders]

    def _cost(self, value: int, order: Order) -> int:
        written = value in self._written and order not in self._written[value]
        conversions = {next(iter(orders)) for orders in self._read.get(value, ()) if order not in orders}
        return (written + len(conversions)) * self.nbytes[value]

    def _find(self, value: int) -> int:
        while self._parents[value] != value:
            self._parents[value] = value = self._parents[self._parents[value]]
        return value
