"""Swappable weights in a compilation: parameters until the program is made, then constants named by a table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from byoc_core.artifact import Executable
from byoc_core.artifact.weight_table import Derivation, FixedWeightEntry, Weight, WeightTable
from byoc_core.artifact.weight_values import executable_with_weights
from byoc_core.backend import BackendHandle
from byoc_core.backend.info import CodegenResult
from byoc_core.driver.weight_names import name_weights
from byoc_core.dtypes import dtype_name
from byoc_core.errors import InternalError
from byoc_core.ir import Binding, Constant, Function, IRModule, Value
from byoc_core.pattern import Rejection
from byoc_core.transform.hoist_weight_forms import hoist_weight_forms
from byoc_core.transform.hoist_weights import DerivedValue, HoistedWeights, hoist_weights
from byoc_core.transform.infer_types import retype

__all__ = ["bind_weights", "link_weights", "separate_weight_forms", "separate_weights"]


def separate_weights(module: IRModule, host: BackendHandle) -> tuple[IRModule, tuple[HoistedWeights, ...]]:
    """Return the module with computations of weights alone moved out, and these computations for each function."""
    context = host.context(module)

    def is_supported(binding: Binding) -> bool:
        return not isinstance(host.supports(binding, context), Rejection)

    hoisted = []
    for function in module.functions.values():
        if (found := hoist_weights(function, is_supported)) is not None:
            hoisted.append(found)
            module = module.with_function(found.function)
    return module, tuple(hoisted)


def separate_weight_forms(
    module: IRModule, hoisted: Sequence[HoistedWeights], forms: Mapping[str, Mapping[int, Function]]
) -> tuple[IRModule, tuple[HoistedWeights, ...]]:
    """Return a compiled module that passes weights in the forms asked for, and the weights with these forms.

    Args:
        module: the compiled module.
        hoisted: the weights of each function.
        forms: by symbol of an external function and number of the parameter, a function of the weight alone.
    """
    items = tuple(hoist_weight_forms(item, module[item.function.name], forms) for item in hoisted)
    for item in items:
        module = module.with_function(item.function)
    return module, items


def bind_weights(module: IRModule, hoisted: Sequence[HoistedWeights]) -> IRModule:
    """Return a compiled module with constants in place of the parameters for weights.

    The digests of these constants name the source of the value, not the value: equal weights stay apart.
    """
    for item in hoisted:
        function = module[item.function.name]
        by_name = dict(zip(function.input_names, function.params, strict=True))
        mapping: dict[int, Value] = {}
        for name in item.inputs:
            mapping[id(by_name[name])] = Constant(_placeholder(function.name, name), by_name[name].type)  # type: ignore[arg-type]
        unbound = [(name, param) for name, param in by_name.items() if name not in item.inputs]
        shorter = replace(
            function,
            params=tuple(param for _, param in unbound),
            attrs={**function.attrs, "input_names": tuple(name for name, _ in unbound)},
        )
        pairs = [(param, mapping[id(param)]) for param in function.params if id(param) in mapping]
        module = module.with_function(retype(shorter, module.functions, pairs))
    return module


def link_weights(
    executable: Executable, module: IRModule, hoisted: Sequence[HoistedWeights], host: BackendHandle
) -> Executable:
    """Return the executable of a program of :func:`bind_weights` with the values of weights.

    Args:
        executable: the program, with the constants of no weight.
        module: the module with the values of weights in the store.
        hoisted: the weights of each function.
        host: the backend for the derivations.
    """
    program = executable.program
    names = name_weights(hoisted)
    digests = {
        own_names[name]: digest
        for item, own_names in zip(hoisted, names.swappable, strict=True)
        for name, digest in item.weights.items()
    }
    numbers = {reference.digest: number for number, reference in enumerate(program.constants)}
    weights: dict[str, list[int]] = {name: [] for name in digests}
    derivations = []
    order = {name: number for number, name in enumerate(weights)}
    for item, own_names in zip(hoisted, names.swappable, strict=True):
        outputs: list[list[tuple[int, ...]]] = [[() for _ in derived.results] for derived in item.derivations]
        for name, source in item.inputs.items():
            number = numbers.get(_placeholder(item.function.name, name))
            found = () if number is None else (number,)
            if isinstance(source, DerivedValue):
                outputs[source.derivation][source.result] = found
            else:
                weights[own_names[source]].extend(found)
        for derived, results in zip(item.derivations, outputs, strict=True):
            inputs = tuple(order[own_names[name]] for name in derived.input_names)
            derivations.append(Derivation(derived.name, inputs, tuple(results)))
    table = WeightTable(
        tuple(
            Weight(name, dtype_name(array.dtype), tuple(array.shape), digests[name], tuple(weights[name]))
            for name, array in ((name, module.constants[digests[name]]) for name in weights)
        ),
        tuple(derivations),
        _fixed(hoisted, names.fixed),
    )
    compiled = _compile_derivations(module, hoisted, host)
    modules = (*executable.modules, *(() if compiled is None else compiled.modules))
    cited = {digest: array for item in modules for digest, array in item.constants.items()}
    values = {name: module.constants[digest] for name, digest in digests.items()}
    without_values = Executable(
        program,
        modules,
        {**executable.constants, **cited},
        executable.report_data,
        is_own=executable.is_own,
        request=executable.request_data,
        weights=replace(table, module_constants=tuple(sorted(cited))),
    )
    return executable_with_weights(without_values, values, copies=False)


def _placeholder(function: str, name: str) -> str:
    return hashlib.sha256(f"swappable weight\0{function}\0{name}".encode()).hexdigest()


def _fixed(hoisted: Sequence[HoistedWeights], names: Sequence[Sequence[str]]) -> tuple[FixedWeightEntry, ...]:
    found: dict[str, FixedWeightEntry] = {}
    for item, own_names in zip(hoisted, names, strict=True):
        for weight, name in zip(item.fixed, own_names, strict=True):
            found[name] = FixedWeightEntry(name, weight.dtype, weight.shape, weight.reason, weight.digest)
    return tuple(found.values())


def _compile_derivations(
    module: IRModule, hoisted: Sequence[HoistedWeights], host: BackendHandle
) -> CodegenResult | None:
    functions = [derived for item in hoisted for derived in item.derivations]
    if not functions:
        return None
    result = host.codegen(functions, host.context(module))
    for name, rejection in result.rejections.items():
        raise InternalError(f"derivation `{name}`", f"is refused by the host: {rejection.text}")
    return result
