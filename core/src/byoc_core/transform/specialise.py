"""Specialisation of functions for given sizes: symbols replaced by integers, value by value.

Type rules are not run: the caller checks the types again if the sizes may not fit. Callers compile regions for backends
of static shapes (:mod:`byoc_core.backend.sized_functions`), and compare values while debugging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from byoc_core.dims import DimExpr, substitute, symbols_of
from byoc_core.errors import IRTypeError
from byoc_core.ir import Binding, Function, TensorType, Type, Value, Var

__all__ = ["Specialised", "has_symbols", "specialise", "symbols_in"]


@dataclass(frozen=True, slots=True)
class Specialised:
    """A function specialised for given sizes.

    Attributes:
        function: the function; its bindings stand in the order of the original.
        values: the variables of the function, by the ``id`` of the original variables.
    """

    function: Function
    values: Mapping[int, Var]

    def value(self, original: Value) -> Value:
        """Return the replacement of a value of the original function."""
        return self.values[id(original)] if isinstance(original, Var) else original


def symbols_in(function: Function) -> frozenset[str]:
    """Return the symbols in the types of parameters and bindings of a function, and in attributes."""
    found = frozenset[str]().union(*(_type_symbols(param.type) for param in function.params))
    for binding in function.walk():
        found = found.union(*(_type_symbols(value.type) for value in (*binding.operands, *binding.results)))
        found = found.union(*map(_attr_symbols, binding.attrs.values()))
    return found


def has_symbols(functions: Iterable[Function]) -> bool:
    """Return whether functions, at any depth of nesting, have symbols in the sense of :func:`symbols_in`."""
    pending = list(functions)
    while pending:
        function = pending.pop()
        if symbols_in(replace(function, bindings=tuple(replace(b, regions=()) for b in function.bindings))):
            return True
        pending += (region for binding in function.bindings for region in binding.regions)
    return False


def specialise(function: Function, sizes: Mapping[str, int], *, skip_impossible: bool = False) -> Specialised:
    """Return a function specialised for given sizes; symbols without a size stay.

    Args:
        function: the function to specialise.
        sizes: integers by symbol.
        skip_impossible: keep the symbols of a type, or an attribute, impossible for these sizes.

    Raises:
        IRTypeError: a size comes out negative, or an expression has no value for these sizes.
    """
    values: dict[int, Var] = {}

    def typed(type_: Type) -> Type:
        return _typed(type_, sizes)

    def attr(value: Any) -> Any:
        return _attr(value, sizes)

    if skip_impossible:
        return Specialised(_function(function, _if_possible(typed), _if_possible(attr), values), values)
    return Specialised(_function(function, typed, attr, values), values)


def _if_possible(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def change_possible(value: Any) -> Any:
        try:
            return change(value)
        except IRTypeError:
            return value

    return change_possible


def _function(
    function: Function, typed: Callable[[Type], Type], attr: Callable[[Any], Any], values: dict[int, Var]
) -> Function:
    def variable(var: Var) -> Var:
        values[id(var)] = new_var = Var(var.name, typed(var.type))
        return new_var

    def value(original: Value) -> Value:
        return values[id(original)] if isinstance(original, Var) else original

    params = tuple(map(variable, function.params))
    bindings: list[Binding] = []
    for binding in function.bindings:
        operands = tuple(map(value, binding.operands))
        regions = tuple(_function(region, typed, attr, values) for region in binding.regions)
        attrs = {name: attr(item) for name, item in binding.attrs.items()}
        results = tuple(map(variable, binding.results))
        bindings.append(replace(binding, operands=operands, regions=regions, attrs=attrs, results=results))
    outputs = tuple(map(value, function.results))
    return replace(function, params=params, bindings=tuple(bindings), results=outputs)


def _typed(type_: Type, sizes: Mapping[str, int]) -> Type:
    return type_.substitute(sizes) if isinstance(type_, TensorType) else type_


def _attr(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, DimExpr):
        return substitute(value, sizes)
    if isinstance(value, tuple):
        return tuple(_attr(item, sizes) for item in value)
    return _typed(value, sizes) if isinstance(value, TensorType) else value


def _type_symbols(type_: Type) -> frozenset[str]:
    return type_.symbols if isinstance(type_, TensorType) else frozenset()


def _attr_symbols(value: Any) -> frozenset[str]:
    if isinstance(value, DimExpr):
        return symbols_of(value)
    if isinstance(value, tuple):
        return frozenset[str]().union(*map(_attr_symbols, value))
    return _type_symbols(value) if isinstance(value, TensorType) else frozenset()
