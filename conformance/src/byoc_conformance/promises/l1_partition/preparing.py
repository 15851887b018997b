"""Hooks beside claims: a prepared module keeps the meaning, and cost estimates are figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.ir import ConstantStore, Function, IRModule, TensorType, Trait, print_function, print_module, verify
from byoc_core.ops.cases import array_of
from byoc_core.transform import evaluate_function

from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l1_partition.agreement import agree
from byoc_conformance.promises.l1_partition.case_functions import (
    CaseFunction,
    case_functions,
    few_claims,
    pattern_functions,
)
from byoc_conformance.subject import Subject

__all__ = ["PROMISES", "inputs_of", "is_evaluated"]


def _check_prepare(subject: Subject, case: str) -> None:
    subject.require_tools()
    constants = ConstantStore()
    found = [item for op in subject.ops_with_cases for item in case_functions(op, constants, limit=1)]
    found += pattern_functions(subject, constants)
    items = {f"case_{number}": item for number, item in enumerate(found) if is_evaluated(item)}
    module = IRModule({name: replace(item.function, name=name) for name, item in items.items()}, constants)
    context = subject.handle.context(module, subject.spec.options)
    prepared = subject.handle.prepare(module, context)
    if prepared is module:
        raise NotCoveredError("the backend prepares nothing")
    verify(prepared)
    for name, item in items.items():
        if name not in prepared.functions or _interface(prepared[name]) != _interface(module[name]):
            raise FailedError(
                f"`byoc_prepare` removed this function, or changed the types of parameters or results:\n{item}"
            )
        if prepared[name] is not module[name]:
            _check_same(module, prepared, name, item)


def is_evaluated(item: CaseFunction) -> bool:
    """Return whether the reference interpreter can run the function, with arrays of the static sizes."""
    ops = [binding.op for binding in item.function.walk()]
    return item.kind != "symbolic" and all(op.kernel and not op.has_trait(Trait.DATA_DEPENDENT) for op in ops)


def inputs_of(item: CaseFunction) -> tuple[npt.NDArray[Any], ...]:
    """Return arrays for the parameters of a function, the same each time."""
    generator = np.random.default_rng(0)
    if item.case is not None:
        return item.case.arrays(generator, item.dtype)[: len(item.function.params)]
    types = [param.type for param in item.function.params]
    return tuple(array_of(type_, generator, 0, 1) for type_ in types if isinstance(type_, TensorType))


def _interface(function: Function) -> tuple[list[str], list[str]]:
    return [str(param.type) for param in function.params], [str(result.type) for result in function.results]


def _check_same(module: IRModule, prepared: IRModule, name: str, item: CaseFunction) -> None:
    inputs = inputs_of(item)
    expected = evaluate_function(module, name, inputs)
    found = evaluate_function(prepared, name, inputs)
    if not agree(expected, found):
        raise FailedError(
            f"`{item.subject}` gives other results after preparation: {found}, expected {expected}\n"
            f"{print_module(prepared.with_functions({name: prepared[name]}))}"
        )


def _check_estimate(subject: Subject, case: str) -> None:
    attempt = few_claims(subject)
    context = subject.handle.context(attempt.partitioned, subject.spec.options)
    regions = {region.name: region for regions in attempt.regions.values() for region in regions}
    first = {name: subject.handle.estimate(region, context) for name, region in regions.items()}
    if all(estimate is None for estimate in first.values()):
        raise NotCoveredError("the backend gives no estimates")
    for name, region in regions.items():
        repeated = subject.handle.estimate(replace(region, name=f"other_{name}"), context)
        if repeated != first[name]:
            raise FailedError(
                f"the estimate is {first[name] or 'nothing'}, then {repeated or 'nothing'}:\n{print_function(region)}"
            )


PROMISES = (
    Promise(
        Level.L1,
        "prepare-keeps-meaning",
        "prepares modules without changing the results, and leaves modules valid",
        _check_prepare,
        deadline=120.0,
    ),
    Promise(
        Level.L1,
        "estimates-repeat",
        "estimates finite costs, equal for equal functions with different names",
        _check_estimate,
        deadline=120.0,
    ),
)
