"""Computations of swappable weights alone move out of a function: they run once for each value of the weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from byoc_core.ir import Binding, Constant, Function, Value, Var
from byoc_core.ir.cloning import clone_function
from byoc_core.ir.weights import FIXED_WEIGHTS, WEIGHTS, FixedWeight, fixed_weights_of, weights_of
from byoc_core.transform.fold_constants import may_compute_once

__all__ = ["DerivedValue", "HoistedWeights", "fresh_name", "hoist_weights"]


@dataclass(frozen=True)
class DerivedValue:
    """A value computed from weights: a result of a derivation.

    Attributes:
        derivation: the index of the function in :attr:`HoistedWeights.derivations`.
        result: the index of the result.
    """

    derivation: int
    result: int


@dataclass(frozen=True)
class HoistedWeights:
    """A function without the computations of weights alone.

    Attributes:
        function: has a parameter for each weight in use and each value computed from weights, behind its own inputs.
        weights: the digest of each weight of the model, by name.
        inputs: the source of each of these parameters by input name: the name of a weight, or a derived value.
        derivations: functions of weights; the input names are the names of the weights.
        fixed: the weights of the model that are not swappable.
    """

    function: Function
    weights: Mapping[str, str]
    inputs: Mapping[str, str | DerivedValue]
    derivations: tuple[Function, ...]
    fixed: tuple[FixedWeight, ...]


def hoist_weights(function: Function, is_supported: Callable[[Binding], bool]) -> HoistedWeights | None:
    """Move the ops of weights and constants out of a function; return ``None`` for a function without weights.

    Moved are pure ops at the top level, under the conditions of :class:`FoldConstants`. Weights that are computed
    together come from the same derivation, so a change of a weight runs only the derivations of this weight.

    Args:
        function: the function.
        is_supported: returns whether the host computes an op.

    Cost: linear in ops, and in derivations times hoisted ops.
    """
    if WEIGHTS not in function.attrs and FIXED_WEIGHTS not in function.attrs:
        return None
    weights, fixed = weights_of(function), fixed_weights_of(function)
    params = dict(zip(function.input_names, function.params, strict=True))
    names = {params[name]: name for name in weights}
    hoisted, remaining = _split(function.bindings, names, is_supported)
    outputs = _outputs(hoisted, remaining, function.results)
    groups = _groups(hoisted, names)
    derivations: list[Function] = []
    inputs: dict[str, str | DerivedValue] = {}
    new_params: list[Var] = []
    uses = _uses(remaining, function.results)
    for param, name in names.items():
        if uses[param]:
            inputs[name] = name
            new_params.append(param)
    for group in groups:
        results = [value for binding in group for value in binding.results if value in outputs]
        if not results:
            continue
        sources = _sources(group, names)
        symbol = f"{function.name}_weights{len(derivations)}"
        for index, value in enumerate(results):
            inputs[fresh_name(f"{value.name}.derived", inputs, params)] = DerivedValue(len(derivations), index)
            new_params.append(value)
        derived = Function(
            symbol,
            tuple(sources),
            tuple(group),
            tuple(results),
            {"input_names": tuple(sources.values()), "Codegen": "host", "global_symbol": symbol},
        )
        derivations.append(clone_function(derived))
    own = [(name, param) for name, param in params.items() if name not in weights]
    attrs = {key: value for key, value in function.attrs.items() if key not in (WEIGHTS, FIXED_WEIGHTS)}
    rest = replace(
        function,
        params=(*(param for _, param in own), *new_params),
        bindings=tuple(remaining),
        attrs={**attrs, "input_names": (*(name for name, _ in own), *inputs)},
    )
    return HoistedWeights(rest, weights, inputs, tuple(derivations), fixed)


def _split(
    bindings: Sequence[Binding], names: Mapping[Var, str], is_supported: Callable[[Binding], bool]
) -> tuple[list[Binding], list[Binding]]:
    """Return the ops of weights and constants alone, and all other ops."""
    derived: set[Value] = set(names)
    hoisted: list[Binding] = []
    remaining: list[Binding] = []
    for binding in bindings:
        variables = [operand for operand in binding.operands if not isinstance(operand, Constant)]
        is_of_weights = bool(variables) and not binding.regions and derived.issuperset(variables)
        if is_of_weights and may_compute_once(binding) and is_supported(binding):
            derived.update(binding.results)
            hoisted.append(binding)
        else:
            remaining.append(binding)
    return hoisted, remaining


def _uses(bindings: Iterable[Binding], results: Iterable[Value]) -> Counter[Value]:
    uses = Counter(operand for binding in bindings for operand in binding.operands)
    uses.update(results)
    return uses


def _outputs(hoisted: Sequence[Binding], remaining: Sequence[Binding], results: Sequence[Value]) -> set[Value]:
    """Return the results of hoisted ops with readers among the remaining ops."""
    uses = _uses(remaining, results)
    return {value for binding in hoisted for value in binding.results if uses[value]}


def _groups(hoisted: Sequence[Binding], names: Mapping[Var, str]) -> list[list[Binding]]:
    """Return the hoisted ops in groups without common weights, in order of first weights."""
    group_of: dict[Value, list[Binding]] = {param: [] for param in names}
    members: dict[int, list[Value]] = {id(group): [param] for param, group in group_of.items()}
    order = {id(binding): index for index, binding in enumerate(hoisted)}
    for binding in hoisted:
        sources = [operand for operand in binding.operands if not isinstance(operand, Constant)]
        target = group_of[sources[0]]
        for source in sources[1:]:
            other = group_of[source]
            if other is target:
                continue
            if len(other) > len(target):
                target, other = other, target
            target.extend(other)
            for value in members.pop(id(other)):
                group_of[value] = target
                members[id(target)].append(value)
        target.append(binding)
        for result in binding.results:
            group_of[result] = target
            members[id(target)].append(result)
    groups = list({id(group): group for group in group_of.values() if group}.values())
    return [sorted(group, key=lambda binding: order[id(binding)]) for group in groups]


def _sources(group: Sequence[Binding], names: Mapping[Var, str]) -> dict[Var, str]:
    read = {operand for binding in group for operand in binding.operands}
    return {param: name for param, name in names.items() if param in read}


def fresh_name(name: str, *names: Iterable[str]) -> str:
    """Return a name absent from the others: the given name, or the name with a number."""
    used_names = {text for group in names for text in group}
    candidate, number = name, 0
    while candidate in used_names:
        number += 1
        candidate = f"{name}{number}"
    return candidate
