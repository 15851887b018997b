"""Bodies of called functions, copied into callers with fresh values and the caller's sizes.

The copying part of :class:`~byoc_core.transform.InlineCalls`; the pass decides which calls are replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from byoc_core.dims import Dim, symbol
from byoc_core.errors import IRTypeError
from byoc_core.ir import CALL, COMPOSITE, Binding, Function, Type, TypeContext, Value, Var, infer_results
from byoc_core.ir.sizes import introduced_symbols, result_symbols, type_symbols
from byoc_core.ir.structural import bind_param_types
from byoc_core.transform.infer_types import region_inputs, substituted, substituted_type
from byoc_core.transform.rewrite import remap
from byoc_core.transform.specialise import symbols_in
from byoc_core.transform.unique_names import NamePool, defined_values

__all__ = ["CallBodies", "callee_of"]


def callee_of(binding: Binding) -> str | None:
    """Return the name of the function called by a binding; ``None`` for other ops."""
    return str(binding.attrs["callee"]) if binding.op is CALL else None


@dataclass(slots=True)
class _Frame:
    """Part of a copy: the body of a called function, or a region of the body.

    Attributes:
        pending: the bindings still to be copied.
        mapping: the replacement of each value of the function, by ``id``.
        sizes: the replacements of symbols of the function, without unchanged symbols.
        names: names for results of the function, by ``id``; other values get fresh names.
        call: the call replaced by the function; ``None`` for a region.
        is_open: whether calls are replaced.
    """

    pending: Iterator[Binding]
    mapping: dict[int, Value]
    sizes: Mapping[str, Dim]
    names: Mapping[int, str]
    call: Binding | None = None
    is_open: bool = True


class CallBodies:
    """Copies of called functions for a single caller, with names and symbols new in the caller.

    Args:
        caller: the function to receive the copies.
        functions: the functions of the module, by name.
        inlined: names of callees; calls of these functions inside a copy are replaced, too.
    """

    def __init__(self, caller: Function, functions: Mapping[str, Function], inlined: Collection[str]) -> None:
        self._functions = functions
        self._inlined = inlined
        self._names = NamePool(var.name for var in defined_values(caller))
        self._symbols = NamePool(symbols_in(caller))

    def replaces(self, binding: Binding) -> bool:
        """Return whether a binding is a replaceable call without a claim of a backend."""
        return binding.codegen is None and callee_of(binding) in self._inlined

    def copy(self, call: Binding) -> tuple[list[Binding], list[Value]]:
        """Copy the body run by a call: return the bindings of the copy, and the replacements of the call's results.

        Raises:
            IRTypeError: the body does not fit the sizes of the caller, or has results of other types than the call.

        Cost: linear in the ops of the copy.
        """
        outer = _Frame(iter(()), {id(operand): operand for operand in call.operands}, {}, _names_of(call))
        bindings = self._write(self._enter(call, outer), outer)
        return bindings, [outer.mapping[id(result)] for result in call.results]

    def _write(self, first: _Frame, outer: _Frame) -> list[Binding]:
        """Return the bindings of a frame; called functions are entered without recursion, however deep calls nest."""
        frames, written = [outer, first], list[Binding]()
        while len(frames) > 1:
            frame = frames[-1]
            binding = next(frame.pending, None)
            if binding is None:
                frames.pop()
                self._leave(frame, frames[-1])
            elif frame.is_open and self.replaces(binding):
                frames.append(self._enter(binding, frame))
            else:
                written.append(self._copied(binding, frame))
        return written

    def _enter(self, call: Binding, outer: _Frame) -> _Frame:
        callee = self._functions[str(call.attrs["callee"])]
        operands = [remap(operand, outer.mapping) for operand in call.operands]
        context = TypeContext(CALL.name, tuple(operand.type for operand in operands), call.attrs)
        sizes: dict[str, Dim] = bind_param_types(callee, context)
        returned_symbols, pinned = result_symbols(callee), self._pinned(callee)
        for name in sorted(symbols_in(callee) - type_symbols(callee.params)):
            if name in returned_symbols:
                sizes[name] = outer.sizes.get(name, symbol(name))
            elif name in pinned and name in self._symbols:
                raise context.error(f"introduces the size {name}, known to the caller already")
            else:
                sizes[name] = symbol(self._symbols.fresh(name))
        mapping: dict[int, Value] = {id(param): value for param, value in zip(callee.params, operands, strict=True)}
        names = {
            id(result): outer.names[id(old)]
            for old, result in zip(call.results, callee.results, strict=True)
            if id(old) in outer.names
        }
        changed = {name: size for name, size in sizes.items() if size != symbol(name)}
        return _Frame(iter(callee.bindings), mapping, changed, names, call)

    def _pinned(self, function: Function) -> frozenset[str]:
        """Return the symbols introduced by calls kept in a copy: the callees determine the names of these symbols."""
        calls = (binding for binding in function.walk() if binding.op is CALL and not self.replaces(binding))
        return frozenset[str]().union(*(introduced_symbols(binding, self._functions) for binding in calls))

    def _leave(self, frame: _Frame, outer: _Frame) -> None:
        """Map the results of a call to the results of the function."""
        if frame.call is None:
            return
        callee = self._functions[str(frame.call.attrs["callee"])]
        for old, result in zip(frame.call.results, callee.results, strict=True):
            value = remap(result, frame.mapping)
            expected = substituted_type(old.type, outer.sizes)
            if value.type != expected:
                raise IRTypeError(f"call of `{callee.name}`", "returns another type", got=value.type, expected=expected)
            outer.mapping[id(old)] = value

    def _copied(self, binding: Binding, frame: _Frame) -> Binding:
        operands = tuple(remap(operand, frame.mapping) for operand in binding.operands)
        attrs, regions = binding.attrs, binding.regions
        types = tuple(result.type for result in binding.results)
        is_same = all(new.type == old.type for new, old in zip(operands, binding.operands, strict=True))
        if frame.sizes or regions or not is_same:
            attrs = binding.op.normalise_attrs({name: substituted(v, frame.sizes) for name, v in attrs.items()})
            is_open = frame.is_open and binding.op is not COMPOSITE
            inputs = (region_inputs(binding, operands, region, frame.sizes) for region in regions)
            regions = tuple(
                self._region(r, arguments, frame, is_open) for r, arguments in zip(regions, inputs, strict=True)
            )
            declared = tuple(substituted_type(type_, frame.sizes) for type_ in types)
            types = infer_results(
                binding.op, operands, attrs, regions=regions, declared=declared, functions=self._functions
            )
        results = tuple(
            Var(frame.names.get(id(old)) or self._name(old, is_open=frame.is_open), type_)
            for old, type_ in zip(binding.results, types, strict=True)
        )
        frame.mapping.update((id(old), new) for old, new in zip(binding.results, results, strict=True))
        return replace(binding, operands=operands, attrs=attrs, regions=regions, results=results)

    def _name(self, var: Var, *, is_open: bool) -> str:
        """Return a name for a copied value; values in the bodies of composites keep their names."""
        return self._names.fresh(var.name) if is_open else var.name

    def _region(self, region: Function, types: tuple[Type, ...], frame: _Frame, is_open: bool) -> Function:
        params = tuple(
            Var(self._name(param, is_open=is_open), type_) for param, type_ in zip(region.params, types, strict=True)
        )
        mapping: dict[int, Value] = {id(old): new for old, new in zip(region.params, params, strict=True)}
        inner = _Frame(iter(region.bindings), mapping, frame.sizes, {}, is_open=is_open)
        bindings = tuple(self._write(inner, frame))
        results = tuple(remap(result, mapping) for result in region.results)
        return replace(region, params=params, bindings=bindings, results=results)


def _names_of(call: Binding) -> dict[int, str]:
    return {id(result): result.name for result in call.results}
