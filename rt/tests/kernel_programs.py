"""Programs of single ops on the host: each op alone in a graph function, unchanged by any pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from byoc_conformance.drawing import Trial, generator_of
from byoc_core.artifact import Executable
from byoc_core.ir import CALL, Binding, ConstantStore, Function, IRModule, TensorType, Value, Var
from byoc_core.lower import lower
from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases, dtypes_of
from byoc_core.partitioning import RunCodegen

from rt.tests.kernel_table import KERNELS

__all__ = ["canonical_trials", "executable_of", "is_covered", "module_of_trials", "trials_by_name"]

OPS = default_ops()
PERMUTE = OPS["permute_dims"]


def canonical_trials(op: str) -> list[Trial]:
    """Return the canonical cases of an op in all dtypes with a kernel; cases without elements too."""
    trials = (
        Trial(OPS[op], case, dtype) for case in canonical_cases(OPS).get(op, ()) for dtype in dtypes_of(case, OPS[op])
    )
    return [trial for trial in trials if is_covered(trial)]


def is_covered(trial: Trial) -> bool:
    """Return whether there is a kernel for the dtypes of a trial."""
    return KERNELS[trial.op.name].takes([type_.dtype for type_ in trial.types()])


def trials_by_name(trials: Iterable[Trial], prefix: str) -> dict[str, Trial]:
    """Return trials with the names ``prefix_0``, ``prefix_1`` and so on, by name."""
    return {f"{prefix}_{number}": trial.named(f"{prefix}_{number}") for number, trial in enumerate(trials)}


def module_of_trials(trials: Mapping[str, Trial]) -> IRModule:
    """Return a module with a function for each trial."""
    store = ConstantStore()
    functions = {
        name: trial.function(store, generator_of(0, trial.op.name, name, "constants")) for name, trial in trials.items()
    }
    return IRModule(functions, store)


def executable_of(module: IRModule, *, reversed_axes: bool = False) -> Executable:
    """Compile each function of a module as a graph function of the host, called by a function of the same name.

    Args:
        module: functions of computing ops.
        reversed_axes: whether the callers take inputs and return results with their axes reversed: the graph functions
            get views with strides.
    """
    functions: dict[str, Function] = {}
    for name, function in module.functions.items():
        region = f"{name}_region"
        attrs = {"Codegen": "host", "global_symbol": region}
        functions[region] = replace(function, name=region, attrs=attrs)
        functions[name] = _caller(name, functions[region], reversed_axes=reversed_axes)
    compiled = RunCodegen()(module.with_functions(functions))
    callers = compiled.with_functions({name: compiled[name] for name in module.functions})
    return Executable(lower(callers), callers.attrs["external_mods"], callers.constants)


def _caller(name: str, region: Function, *, reversed_axes: bool) -> Function:
    bindings: list[Binding] = []

    def reversed_value(value: Value) -> Value:
        type_ = value.type
        if not reversed_axes or not isinstance(type_, TensorType) or not type_.shape:
            return value
        turned = Var(f"{value.name}_t", TensorType(type_.shape[::-1], type_.dtype))  # type: ignore[union-attr]
        bindings.append(Binding((turned,), PERMUTE, (value,), PERMUTE.normalise_attrs({"axes": None})))
        return turned

    params = [Var(param.name, _reversed_type(param, reversed_axes=reversed_axes)) for param in region.params]
    operands = tuple(map(reversed_value, params))
    results: Sequence[Value] = [Var(f"r{index}", type_) for index, type_ in enumerate(region.result_types)]
    call = Binding(tuple(results), CALL, operands, CALL.normalise_attrs({"callee": region.name}))  # type: ignore[arg-type]
    bindings.append(call)
    returned = tuple(map(reversed_value, results))
    return Function(name, tuple(params), tuple(bindings), returned)


def _reversed_type(param: Var, *, reversed_axes: bool) -> TensorType:
    type_ = param.type
    assert isinstance(type_, TensorType)
    return TensorType(type_.shape[::-1], type_.dtype) if reversed_axes and type_.shape else type_
