"""ONNX's own node cases, compared with the results expected by ONNX."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core import from_onnx
from byoc_core.errors import ByocError
from byoc_core.ir import ConstantStore, IRModule
from byoc_core.opset import is_delegated

from byoc_conformance.drawing import NodeCase, canonical_trials, generator_of, node_cases, node_groups
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.subject import Attempt, Subject, call_unchanging

__all__ = ["PROMISES"]

NDArray = npt.NDArray[Any]

_EXAMPLES_PER_CASE = 2.5
_SLOW = {"averagepool": "nn.avg_pool2d", "maxpool": "nn.max_pool2d", "lppool": "nn.lp_pool2d"}
"""Groups with an import time of a second or more, and the op to be claimed before the import is worthwhile."""


def _compute_nodes(subject: Subject, group: str) -> None:
    if group in _SLOW and not _is_claimed(subject, _SLOW[group]):
        raise NotCoveredError(f"`{_SLOW[group]}` is not claimed")
    store = ConstantStore()
    imported = dict(_import_cases(subject, node_cases(group), store))
    if not imported:
        raise NotCoveredError("the core imports none of these cases")
    attempt = subject.attempt(IRModule({name: function for name, (_, function) in imported.items()}, store))
    touched = {name: case for name, (case, _) in imported.items() if attempt.regions[name]}
    if not touched:
        raise NotCoveredError(f"no op in {len(imported)} cases is claimed")
    built = {name: case for name, case in touched.items() if name not in attempt.failures}
    if not built:
        raise NotCoveredError("no claimed op of these cases could be compiled")
    texts = [text for name, case in built.items() if (text := _problem(subject, attempt, name, case))]
    if texts:
        raise FailedError("\n".join(texts))


def _is_claimed(subject: Subject, op: str) -> bool:
    functions = {}
    for number, trial in enumerate(canonical_trials(subject.ops[op])):
        name = f"case_{number}"
        functions[name] = trial.named(name).function(ConstantStore(), generator_of(0))
    attempt = subject.attempt(IRModule(functions))
    return any(map(attempt.is_claimed, functions))


def _import_cases(
    subject: Subject, cases: Sequence[NodeCase], store: ConstantStore
) -> Iterator[tuple[str, tuple[NodeCase, Any]]]:
    """Yield the first cases imported by the core, as functions with constants in the store."""
    left = math.ceil(subject.spec.examples / _EXAMPLES_PER_CASE)
    for case in cases:
        if left == 0:
            return
        try:
            module = from_onnx(case.model)
        except ByocError:
            continue  # not supported by the core, and no fault of a backend
        if len(module.functions) != 1:
            continue
        (function,) = module.functions.values()
        if any(is_delegated(binding.op.name) for binding in function.walk()):
            continue  # computed by the package `onnx`, for every backend
        if len(function.params) != len(case.inputs) or len(function.results) != len(case.outputs):
            continue
        for array in module.constants.values():
            store.add(array)
        left -= 1
        yield case.name, (case, replace(function, name=case.name))


def _problem(subject: Subject, attempt: Attempt, name: str, case: NodeCase) -> str:
    """Return the fault in the results of a case; empty if equal to ONNX's results, or right by the oracle."""
    try:
        results = call_unchanging(attempt.vm, name, case.inputs)
    except (ByocError, FailedError) as error:
        return f"{name}: {error}"
    if all(map(_is_close, results, case.outputs, [case] * len(results))):
        return ""
    verdict = subject.judge(attempt.module, name, case.inputs, results)
    return "" if verdict.is_right else f"{name}: {verdict.text}"


def _is_close(found: NDArray, expected: NDArray, case: NodeCase) -> bool:
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return False
    if found.dtype.kind not in "fV":
        return bool(np.array_equal(found, expected))
    with np.errstate(all="ignore"):
        actual, reference = found.astype(np.float64), expected.astype(np.float64)
        return bool(np.allclose(actual, reference, rtol=case.rtol, atol=case.atol, equal_nan=True))


PROMISES = (
    Promise(
        Level.L2,
        "onnx",
        "computes the expected results of ONNX's node cases with claimed ops",
        _compute_nodes,
        cases=node_groups,
        deadline=120.0,
    ),
)
