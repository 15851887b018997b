"""Forms of weights asked for by compiled functions: results of derivations, computed once for each value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from byoc_core.ir import CALL_DPS_PACKED, CALL_PACKED, Binding, Function, Value, Var
from byoc_core.ir.cloning import clone_bindings, clone_function, remap
from byoc_core.opset.attributes import AttrValue
from byoc_core.transform.hoist_weights import DerivedValue, HoistedWeights, fresh_name

__all__ = ["hoist_weight_forms"]


def hoist_weight_forms(
    item: HoistedWeights, function: Function, forms: Mapping[str, Mapping[int, Function]]
) -> HoistedWeights:
    """Pass weights to compiled functions in the forms asked for.

    A form of a value computed from weights joins the derivation of this value; a form of a weight becomes a derivation.
    Parameters and results of derivations without readers are dropped.

    Args:
        item: the weights, before codegen.
        function: ``item.function`` after codegen.
        forms: by symbol and number of the parameter, a function of a weight alone.
    """
    hoisting = _Hoisting(item, function)
    bindings = tuple(hoisting.with_forms(binding, forms) for binding in function.bindings)
    return hoisting.finish(bindings) if hoisting.added else replace(item, function=function)


@dataclass(eq=False)
class _Form:
    """A form of a parameter: the function, the new parameter with the result, and the place of the result."""

    param: Var
    function: Function
    value: Var
    name: str
    source: DerivedValue


class _Hoisting:
    """The forms of the weights of a function, in order of first use; equal forms of a weight are computed once."""

    def __init__(self, item: HoistedWeights, function: Function) -> None:
        self._item, self._function = item, function
        names = zip(function.input_names, function.params, strict=True)
        self._sources = {param: (name, item.inputs[name]) for name, param in names if name in item.inputs}
        self._derivations = list(item.derivations)
        self.added: list[_Form] = []

    def with_forms(self, binding: Binding, forms: Mapping[str, Mapping[int, Function]]) -> Binding:
        """Return a binding with forms in place of weights."""
        is_external = binding.op is CALL_DPS_PACKED or binding.op is CALL_PACKED
        functions = forms.get(str(binding.attrs["symbol"]), {}) if is_external else {}
        if not functions:
            return binding
        operands = list(binding.operands)
        for number, form in functions.items():
            param = operands[number]
            assert isinstance(param, Var)  # a weight in every call
            operands[number] = self._form(param, form).value
        return replace(binding, operands=tuple(operands))

    def _form(self, param: Var, function: Function) -> _Form:
        found = next((form for form in self.added if form.param is param and form.function == function), None)
        if found is not None:
            return found
        name, source = self._sources[param]
        result = Var(f"{param.name}_packed", param.type)
        names = {*self._function.input_names, *(form.name for form in self.added)}
        form = _Form(param, function, result, fresh_name(f"{name}.packed", names), self._derive(source, function))
        self.added.append(form)
        return form

    def _derive(self, source: str | DerivedValue, form: Function) -> DerivedValue:
        """Add a form to the derivations; return the place of the result."""
        if isinstance(source, DerivedValue):
            derivation = self._derivations[source.derivation]
            mapping: dict[int, Value] = {id(form.params[0]): derivation.results[source.result]}
            copies = clone_bindings(form.bindings, mapping)
            results = (*derivation.results, remap(form.results[0], mapping))
            bindings = (*derivation.bindings, *copies)
            self._derivations[source.derivation] = replace(derivation, bindings=bindings, results=results)
            return DerivedValue(source.derivation, len(derivation.results))
        symbol = f"{self._function.name}_weights{len(self._derivations)}"
        attrs: Mapping[str, AttrValue] = {"input_names": (source,), "Codegen": "host", "global_symbol": symbol}
        self._derivations.append(replace(clone_function(form), name=symbol, attrs=attrs))
        return DerivedValue(len(self._derivations) - 1, 0)

    def finish(self, bindings: tuple[Binding, ...]) -> HoistedWeights:
        """Return the weights with the forms, for the function with these bindings."""
        function = self._function
        read = {operand for binding in bindings for operand in binding.operands}.union(function.results)
        unread = {self._sources[form.param][0] for form in self.added if form.param not in read}
        pairs = [pair for pair in zip(function.input_names, function.params, strict=True) if pair[0] not in unread]
        pairs += [(form.name, form.value) for form in self.added]
        inputs = {name: source for name, source in self._item.inputs.items() if name not in unread}
        inputs.update((form.name, form.source) for form in self.added)
        changed = replace(
            function,
            params=tuple(param for _, param in pairs),
            bindings=bindings,
            attrs={**function.attrs, "input_names": tuple(name for name, _ in pairs)},
        )
        return _without_unread_results(
            replace(self._item, function=changed, inputs=inputs, derivations=tuple(self._derivations))
        )


def _without_unread_results(item: HoistedWeights) -> HoistedWeights:
    """Return the weights without the results of derivations read by no parameter."""
    read = sorted(
        {(source.derivation, source.result) for source in item.inputs.values() if isinstance(source, DerivedValue)}
    )
    derivations, numbers = [], dict[tuple[int, int], DerivedValue]()
    for index, derivation in enumerate(item.derivations):
        results = [old for number, old in read if number == index]
        numbers.update({(index, old): DerivedValue(index, new) for new, old in enumerate(results)})
        derivations.append(replace(derivation, results=tuple(derivation.results[old] for old in results)))
    inputs = {
        name: numbers[source.derivation, source.result] if isinstance(source, DerivedValue) else source
        for name, source in item.inputs.items()
    }
    return replace(item, inputs=inputs, derivations=tuple(derivations))
