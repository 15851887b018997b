"""The symbolic sizes of bindings: which they need, which follow from a value, and which a binding introduces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from byoc_core.dims import Dim, DimExpr, evaluate, solve_symbol, symbols_of
from byoc_core.errors import IRTypeError
from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.ir.structural import CALL, CALL_PACKED, IF
from byoc_core.opset.attributes import AttrValue
from byoc_core.opset.opdef import Trait
from byoc_core.opset.types import TensorType, Type

__all__ = [
    "SizeGivers",
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
    """Tells whether the sizes of a binding's results depend on the elements of its operands."""
    return binding.op.has_trait(Trait.DATA_DEPENDENT)


def type_symbols(values: Iterable[Value]) -> frozenset[str]:
    """Gives the symbols in the types of values."""
    found: set[str] = set()
    for value in values:
        if isinstance(value.type, TensorType):
            found |= value.type.symbols
    return frozenset(found)


def result_symbols(function: Function) -> frozenset[str]:
    """Gives the symbols in a function's result types that stand in no type of its parameters."""
    return type_symbols(function.results) - type_symbols(function.params)


def introduced_symbols(binding: Binding, functions: Mapping[str, Function]) -> frozenset[str]:
    """Gives the symbols that a binding alone gives a size: nothing else in the function may give them one.

    These are the new sizes of a data-dependent op; of a call, those of the callee's results that its parameters do not
    have.
    """
    if is_data_dependent(binding):
        return type_symbols(binding.results) - type_symbols(binding.operands)
    if binding.op is CALL:
        callee = functions.get(str(binding.attrs["callee"]))
        return result_symbols(callee) if callee is not None else frozenset()
    return frozenset()


def learnt_symbols(binding: Binding, functions: Mapping[str, Function]) -> frozenset[str]:
    """Gives the symbols that a binding's results tell although its operands do not have them.

    Beside those that it introduces, these are the sizes that a ``call_packed`` declares, and those in the results of
    an ``if`` that both branches learn.
    """
    if binding.op is CALL_PACKED:
        return type_symbols(binding.results) - type_symbols(binding.operands)
    if binding.op is IF:
        return type_symbols(binding.results).intersection(*(_learnt_inside(r, functions) for r in binding.regions))
    return introduced_symbols(binding, functions)


def _learnt_inside(region: Function, functions: Mapping[str, Function]) -> frozenset[str]:
    return frozenset[str]().union(*(learnt_symbols(binding, functions) for binding in region.bindings))


def cited_symbols(bindings: Iterable[Binding]) -> frozenset[str]:
    """Gives the symbols in the types and attributes of bindings, those of nested bodies included."""
    cited: set[str] = set()
    for binding in bindings:
        for value in (*binding.operands, *binding.results):
            cited.update(value.type.symbols if isinstance(value.type, TensorType) else ())
        cited.update(attribute_symbols(binding.attrs))
        for region in binding.regions:
            cited.update(cited_symbols(region.bindings))
    return frozenset(cited)


def attribute_symbols(attrs: Mapping[str, AttrValue]) -> set[str]:
    """Gives the symbols of all sizes in attributes."""
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
    """Gives the symbols whose sizes follow from the shape of a value of a type, whatever else is known."""
    shape = type_.shape if isinstance(type_, TensorType) else None
    given: set[str] = set()
    for dim in shape or ():
        names = symbols_of(dim)
        if len(names) == 1 and _is_solved_by(dim, *names):
            given |= names
    return frozenset(given)


def _is_solved_by(dim: Dim, name: str) -> bool:
    try:
        return solve_symbol(dim, evaluate(dim, {name: 1})) == (name, 1)
    except IRTypeError:  # a size of 1 divides by zero
        return False


class SizeGivers:
    """For each symbol the first of some values from whose shape it follows."""

    def __init__(self, values: Iterable[Var] = ()) -> None:
        self._first: dict[str, Var] = {}
        self.add(values)

    def add(self, values: Iterable[Var]) -> None:
        """Adds values, which come after those that are there."""
        for value in values:
            if not type_symbols((value,)) <= self._first.keys():
                for name in given_symbols(value.type):
                    self._first.setdefault(name, value)

    def find(self, names: Iterable[str]) -> list[Var]:
        """Gives the values for those symbols that some value gives, in the symbols' alphabetical order."""
        found = (self._first[name] for name in sorted(names) if name in self._first)
        return list({id(value): value for value in found}.values())


def dependencies(bindings: Sequence[Binding]) -> list[list[int]]:
    """Gives for each binding the positions of those that must run before it.

    A binding reads values of others; and it needs the sizes that others alone tell, whether or not it reads what has
    them.

    Cost: linear in bindings and operands.
    """
    makers = _size_makers(bindings)
    producer: dict[int, int] = {}
    needed: list[list[int]] = []
    for position, binding in enumerate(bindings):
        sources = {producer[id(o)]: None for o in binding.operands if id(o) in producer}
        if makers:
            sizes = (makers[name] for name in sorted(cited_symbols([binding]).intersection(makers)))
            sources.update((maker, None) for maker in sizes if maker < position)
        needed.append(list(sources))
        producer.update((id(result), position) for result in binding.results)
    return needed


def _size_makers(bindings: Sequence[Binding]) -> dict[str, int]:
    """Gives the position of the binding that first tells each symbol, for those that nothing before it has."""
    makers: dict[str, int] = {}
    if not any(map(_may_learn, bindings)):
        return makers
    known: set[str] = set()
    for position, binding in enumerate(bindings):
        known |= type_symbols(binding.operands)
        results = type_symbols(binding.results) - known
        if _may_learn(binding):
            makers.update(dict.fromkeys(results, position))
        known |= results
    return makers


def _may_learn(binding: Binding) -> bool:
    return binding.op.declares_results or binding.op in (CALL, IF)
