"""Refusal of functions annotated by hand with an op not claimed by the backend: refused, never computed wrongly.

Fallback hides this fault everywhere else: only users with annotations hand unclaimed ops to codegen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ByocError, CodegenError
from byoc_core.ir import EXTERNAL_MODULES, Function, IRModule, TensorType, Value
from byoc_core.partitioning import RunCodegen
from byoc_core.pattern import Rejection
from byoc_core.runtime.module import PackedFunction
from byoc_core.transform import evaluate_function

from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l1_partition.agreement import agree
from byoc_conformance.promises.l1_partition.case_functions import CaseFunction, all_dtypes_once
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

Array = npt.NDArray[Any]


def _check(subject: Subject, case: str) -> None:
    attempt, items = all_dtypes_once(subject)
    first: dict[str, CaseFunction] = {}
    for name, item in items.items():
        if item.kind == "static" and item.case is not None and not attempt.regions[name]:
            first.setdefault(item.subject, item)
    if not first:
        raise NotCoveredError("the backend claims every canonical case of every op")
    functions = {f"foreign_{number}": item for number, item in enumerate(first.values())}
    try:
        compiled = _compile(subject, functions)
    except ByocError:
        compiled = {}
        for name, item in functions.items():
            compiled.update(_compile_alone(subject, name, item))
    for name, packed in compiled.items():
        _check_right(functions[name], name, packed)


def _compile_alone(subject: Subject, name: str, item: CaseFunction) -> Mapping[str, PackedFunction]:
    """Return the compiled function; none if codegen refuses.

    Raises:
        FailedError: codegen raised an error other than a refusal, or does not name the op.
    """
    try:
        return _compile(subject, {name: item})
    except CodegenError as error:
        if item.subject in str(error):
            return {}
        problem = "refuses the function without naming the op"
        raise FailedError(_describe_fault(item, f"{problem}: {error}")) from error
    except ByocError as error:
        raise FailedError(_describe_fault(item, f"raised, expected a Rejection or a CodegenError: {error}")) from error


def _compile(subject: Subject, items: Mapping[str, CaseFunction]) -> dict[str, PackedFunction]:
    """Return the compiled functions, annotated for the subject without a claim."""
    functions = {name: _annotated(subject, name, item.function) for name, item in items.items()}
    run = RunCodegen(options=subject.options, backends=[subject.handle], handover=_set_aside)
    modules = run(IRModule(functions)).attrs.get(EXTERNAL_MODULES, ())
    return {name: module.get_function(name) for module in modules for name in module.function_names if name in items}


def _annotated(subject: Subject, name: str, function: Function) -> Function:
    return replace(function, name=name, attrs={"Codegen": subject.name, "global_symbol": name})


def _set_aside(function: Function, backend: str, rejection: Rejection) -> Function:
    return replace(function, attrs={})


def _check_right(item: CaseFunction, name: str, packed: PackedFunction) -> None:
    """Check the results of an unclaimed function compiled nevertheless.

    With right results, the backend merely claims too little.
    """
    assert item.case is not None
    inputs = item.case.arrays(np.random.default_rng(0), item.dtype)
    expected = evaluate_function(IRModule({name: replace(item.function, name=name)}), name, inputs)
    try:
        found = _run(packed, inputs, item.function.results)
    except Exception as error:
        raised = f"compiles the function, but the result raises {type(error).__name__}: {error}"
        raise FailedError(_describe_fault(item, raised)) from error
    if not agree(expected, found):
        raise FailedError(
            _describe_fault(item, f"compiles the function to a wrong result: {found}, expected {expected}")
        )


def _run(packed: PackedFunction, inputs: Sequence[Array], results: Sequence[Value]) -> tuple[Array, ...]:
    if packed.returns_results:
        return packed(*inputs) or ()
    outputs = tuple(_buffer(result.type) for result in results)
    packed(*inputs, *outputs)
    return outputs


def _buffer(type_: object) -> Array:
    assert isinstance(type_, TensorType)
    shape = tuple(size for size in type_.shape or () if isinstance(size, int))
    return np.zeros(shape, to_numpy(type_.dtype))


def _describe_fault(item: CaseFunction, effect: str) -> str:
    return f"`{item.subject}` is not claimed; for a function with the op, annotated by hand, codegen {effect}\n{item}"


PROMISES = (
    Promise(
        Level.L1,
        "foreign-ops-refused",
        "refuses a hand-annotated function with an unclaimed op, or computes the right results",
        _check,
        deadline=180.0,
    ),
)
