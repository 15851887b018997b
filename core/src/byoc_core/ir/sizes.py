"""The symbolic sizes of bindings: required, derived from a value, or introduced by a binding.

A binding *cites* the symbols in its types and attributes. A value *gives* a symbol if the shape determines the size. A
binding *learns* the symbols known only from its results, and *introduces* the symbols defined nowhere else. The
verifier keeps these laws; dead-code removal, ``CaptureSizes`` and outlining keep or pass sizes accordingly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from byoc_core.dims import Dim, DimExpr, evaluate, solve_symbol, symbols_of
from byoc_core.errors import IRTypeError
from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.ir.structural import CALL, CALL_PACKED, IF, LOOP
from byoc_core.opset.attributes import AttrValue
from byoc_core.opset.opdef import Trait
from byoc_core.opset.types import TensorType, Type

__all__ = [
    "SizeSources",
    "attribute_symbols",
    "cited_symbols",
    "dependencies",
    "given_symbols",
    "introduced_symbols",
    "is_data_dependent",
    "learnt_symbols",
    "result_symbols",
    "type_symbols",
]


def is_data_dependent(binding: Binding) -> bool:
    """Return whether the sizes of a binding's results depend on the elements of the operands."""
    return binding.op.has_trait(Trait.DATA_DEPENDENT)


def type_symbols(values: Iterable[Value]) -> frozenset[str]:
    """Return the symbols in the types of values."""
    found: set[str] = set()
    for value in values:
        if isinstance(value.type, TensorType):
            found |= value.type.symbols
    return frozenset(found)


def result_symbols(function: Function) -> frozenset[str]:
    """Return the symbols in a function's result types missing from the parameter types."""
    return type_symbols(function.results) - type_symbols(function.params)


def introduced_symbols(binding: Binding, functions: Mapping[str, Function]) -> frozenset[str]:
    """Return the symbols defined by this binding alone: nothing else in the function may define their sizes.

    These are the new sizes of a data-dependent op, and the sizes changed by the rounds of a loop; for a call, the
    symbols in the callee's results missing from the callee's parameters.
    """
    if is_data_dependent(binding) or binding.op is LOOP:
        return type_symbols(binding.results) - type_symbols(binding.operands)
    if binding.op is CALL:
        callee = functions.get(str(binding.attrs["callee"]))
        return result_symbols(callee) if callee is not None else frozenset()
    return frozenset()


def learnt_symbols(binding: Binding, functions: Mapping[str, Function]) -> frozenset[str]:
    """Return the symbols determined by a binding's results but missing from the operands.

    Beside the introduced symbols, these are the sizes declared by a ``call_packed``, and symbols in the results of an
    ``if`` learnt in both branches.
    """
    if binding.op is CALL_PACKED:
        return type_symbols(binding.results) - type_symbols(binding.operands)
    if binding.op is IF:
        return type_symbols(binding.results).intersection(*(_learnt_inside(r, functions) for r in binding.regions))
    return introduced_symbols(binding, functions)


def _learnt_inside(region: Function, functions: Mapping[str, Function]) -> frozenset[str]:
    return frozenset[str]().union(*(learnt_symbols(binding, functions) for binding in region.bindings))


def cited_symbols(bindings: Iterable[Binding]) -> frozenset[str]:
    """Return the symbols in the types and attributes of bindings, including bindings of nested bodies."""
    cited: set[str] = set()
    for binding in bindings:
        for value in (*binding.operands, *binding.results):
            cited.update(value.type.symbols if isinstance(value.type, TensorType) else ())
        cited.update(attribute_symbols(binding.attrs))
        for region in binding.regions:
            cited.update(cited_symbols(region.bindings))
    return frozenset(cited)


def attribute_symbols(attrs: Mapping[str, AttrValue]) -> set[str]:
    """Return the symbols of all sizes in attributes."""
    found: set[str] = set()
    pending: list[object] = list(attrs.values())
    while pending:
        value = pending.pop()
        if isinstance(value, DimExpr):
            found |= symbols_of(value)
        elif isinstance(value, tuple):
            pending.extend(value)
    return found


def given_symbols(type_: Type) -> frozenset[str]:
    """Return the symbols with sizes determined by the shape of a value of the type alone."""
    shape = type_.shape if isinstance(type_, TensorType) else None
    symbols: set[str] = set()
    for dim in shape or ():
        names = symbols_of(dim)
        if len(names) == 1 and _is_solved_by(dim, *names):
            symbols |= names
    return frozenset(symbols)


def _is_solved_by(dim: Dim, name: str) -> bool:
    try:
        return solve_symbol(dim, evaluate(dim, {name: 1})) == (name, 1)
    except IRTypeError:  # a size of 1 divides by zero
        return False


class SizeSources:
    """For each symbol, the first of some values with a shape determining the symbol."""

    def __init__(self, values: Iterable[Var] = ()) -> None:
        self._first: dict[str, Var] = {}
        self.add(values)

    def add(self, values: Iterable[Var]) -> None:
        """Add values after the present values."""
        for value in values:
            if not type_symbols((value,)) <= self._first.keys():
                for name in given_symbols(value.type):
                    self._first.setdefault(name, value)

    def find(self, names: Iterable[str]) -> list[Var]:
        """Return the values determining these symbols, if any, in alphabetical order of the symbols."""
        found = (self._first[name] for name in sorted(names) if name in self._first)
        return list({id(value): value for value in found}.values())


def dependencies(bindings: Sequence[Binding]) -> list[list[int]]:
    """Return for each binding the positions of the bindings required to run before.

    A binding reads values of other bindings. A binding also needs the sizes determined only by other bindings, even
    without reading a value with these sizes.

    Cost: linear in bindings and operands.
    """
    size_producers = _size_producers(bindings)
    producer: dict[int, int] = {}
    needed: list[list[int]] = []
    for position, binding in enumerate(bindings):
        sources = {producer[id(o)]: None for o in binding.operands if id(o) in producer}
        if size_producers:
            sizes = (size_producers[name] for name in sorted(cited_symbols([binding]).intersection(size_producers)))
            sources.update((size_producer, None) for size_producer in sizes if size_producer < position)
        needed.append(list(sources))
        producer.update((id(result), position) for result in binding.results)
    return needed


def _size_producers(bindings: Sequence[Binding]) -> dict[str, int]:
    """Return the position of the first binding determining each symbol, for symbols absent before this binding."""
    size_producers: dict[str, int] = {}
    if not any(map(_may_learn, bindings)):
        return size_producers
    defined_symbols: set[str] = set()
    for position, binding in enumerate(bindings):
        defined_symbols |= type_symbols(binding.operands)
        results = type_symbols(binding.results) - defined_symbols
        if _may_learn(binding):
            size_producers.update(dict.fromkeys(results, position))
        defined_symbols |= results
    return size_producers


def _may_learn(binding: Binding) -> bool:
    return binding.op.declares_results or binding.op in (CALL, IF, LOOP)
