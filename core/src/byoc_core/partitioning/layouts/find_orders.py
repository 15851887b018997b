"""The orders of the values of a body: ops of all regions called in the body, seen as one graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod
from types import MappingProxyType

from byoc_core.backend import AxisOrders
from byoc_core.dtypes import dtype_info
from byoc_core.ir import CALL, COMPOSITE, Binding, Function, Value, Var
from byoc_core.opset.layout import typical
from byoc_core.opset.permutation import Permutable
from byoc_core.partitioning.layouts.orders import Order, OrderProblem
from byoc_core.partitioning.layouts.statements import StatedOrders
from byoc_core.transform.tensors import dtype_of, permutation_of, rank_of, shape_of

__all__ = ["find_orders", "is_same_memory"]

_ROW_MAJOR: tuple[Order, ...] = (None,)


def find_orders(
    body: Function,
    regions: Mapping[str, Function],
    stated_orders: StatedOrders,
    owners: Mapping[str, str] = MappingProxyType({}),
) -> dict[int, Order]:
    """Return the order of each tensor of at least two axes in a body and the called regions, by ``id``.

    Parameters and results of the body are row-major, and so is each value read or written by an op without a statement,
    unless the op computes in any order of axes. A value passed to a region has one order inside and outside.

    Args:
        body: the body.
        regions: the regions called once, by name.
        stated_orders: the backends stating orders.
        owners: the backends of ops outside of regions, by the name of the first result.

    Cost: linear in ops and operands.
    """
    return _Walk(regions, stated_orders, owners).run(body)


class _Walk:
    def __init__(self, regions: Mapping[str, Function], stated_orders: StatedOrders, owners: Mapping[str, str]) -> None:
        self._regions = regions
        self._owners = owners
        self._stated_orders = stated_orders
        self._problem = OrderProblem()
        self._outer: dict[int, Value] = {}

    def run(self, body: Function) -> dict[int, Order]:
        for param in body.params:
            self._write(param, _ROW_MAJOR)
        self._bindings(body.bindings, None)
        for result in body.results:
            self._read(result, _ROW_MAJOR)
        orders = self._problem.choose()
        inner = {key: orders[id(self._resolve(value))] for key, value in self._outer.items() if self._is_known(value)}
        return {**orders, **inner}

    def _bindings(self, bindings: Iterable[Binding], backend: str | None) -> None:
        for binding in bindings:
            region = self._regions.get(str(binding.attrs["callee"])) if binding.op is CALL else None
            if region is not None:
                self._enter(binding, region, str(region.attrs["Codegen"]))
            elif binding.op is COMPOSITE and backend is not None and self._stated_orders.has_statements(backend):
                self._enter(binding, binding.regions[0], backend)
            else:
                self._op(binding, backend or self._owners.get(binding.results[0].name))

    def _enter(self, call: Binding, region: Function, backend: str) -> None:
        self._outer.update((id(param), value) for param, value in zip(region.params, call.operands, strict=True))
        self._bindings(region.bindings, backend)
        self._outer.update((id(outer), inner) for outer, inner in zip(call.results, region.results, strict=True))

    def _op(self, binding: Binding, backend: str | None) -> None:
        has_statements = backend is not None and self._stated_orders.has_statements(backend)
        alternatives = self._stated_orders.orders(backend, binding) if has_statements and backend is not None else None
        permutable = self._stated_orders.permutable(binding) if has_statements and alternatives is None else None
        if alternatives:
            self._prefer(binding, alternatives)
        elif permutable is not None:
            self._permutable(binding, permutable)
        elif has_statements and binding.op is self._stated_orders.transpose:
            axes = permutation_of(binding)
            self._read(binding.operands[0], (axes, None) if is_same_memory(binding.operands[0], axes) else (axes,))
            self._write(binding.results[0], _ROW_MAJOR)
        else:
            for operand in binding.operands:
                self._read(operand, _ROW_MAJOR)
            for result in binding.results:
                self._write(result, _ROW_MAJOR)

    def _prefer(self, binding: Binding, alternatives: Collection[AxisOrders]) -> None:
        """Add the wishes of a backend; with several alternatives, values of one order in each share the order."""
        first, *more = alternatives
        for index, operand in enumerate(binding.operands):
            self._read(operand, tuple(orders.operands[index] for orders in alternatives))
        for index, result in enumerate(binding.results):
            self._write(result, tuple(orders.results[index] for orders in alternatives))
        if not more:
            return
        permuted = [value for value, order in zip(binding.operands, first.operands, strict=True) if order is not None]
        values = (*permuted, *binding.results)
        for value in values:
            self._bind(values[0], value)

    def _permutable(self, binding: Binding, permutable: Permutable) -> None:
        """Bind the operands and results of an op working in any order; other values are row-major."""
        bound = [binding.operands[position] for position in permutable.operands]
        variables = [value for value in bound if self._is_tracked(value)]
        for position, operand in enumerate(binding.operands):
            if position not in permutable.operands:
                self._read(operand, _ROW_MAJOR)
        for value in variables:
            self._bind(variables[0], value)
        for result in binding.results:
            if permutable.dropped or not variables:
                self._write(result, _ROW_MAJOR)
            else:
                self._bind(variables[0], result)

    def _resolve(self, value: Value) -> Value:
        while id(value) in self._outer:
            value = self._outer[id(value)]
        return value

    def _is_known(self, value: Value) -> bool:
        return id(self._resolve(value)) in self._problem.nbytes

    def _is_tracked(self, value: Value) -> bool:
        return isinstance(self._resolve(value), Var) and _num_axes(value) > 1

    def _add(self, value: Value) -> int:
        value = self._resolve(value)
        self._problem.add(id(value), _nbytes(value))
        return id(value)

    def _read(self, value: Value, orders: Collection[Order]) -> None:
        if self._is_tracked(value):
            self._problem.want_read(self._add(value), orders)

    def _write(self, value: Value, orders: Collection[Order]) -> None:
        if self._is_tracked(value):
            self._problem.want_written(self._add(value), orders)

    def _bind(self, first: Value, second: Value) -> None:
        if self._is_tracked(first) and self._is_tracked(second) and _num_axes(first) == _num_axes(second):
            self._problem.bind(self._add(first), self._add(second))


def _num_axes(value: Value) -> int:
    return rank_of(value) or 0


def _nbytes(value: Value) -> int:
    """Return the bytes of a value at typical sizes; 0 for at most one axis longer than 1."""
    shape = shape_of(value) or ()
    is_line = sum(dim != 1 for dim in shape) < 2
    return 0 if is_line else prod(map(typical, shape)) * dtype_info(dtype_of(value)).itemsize


def is_same_memory(value: Value, axes: tuple[int, ...]) -> bool:
    """Return whether a permutation leaves the order of elements in memory unchanged."""
    shape = shape_of(value) or ()
    long = [axis for axis in axes if shape[axis] != 1]
    return long == sorted(long)
