"""Composites, compared with the computation of their ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt
from byoc_core.dims import evaluate, symbols_of
from byoc_core.errors import ByocError
from byoc_core.ir import COMPOSITE, ConstantStore, Function, IRModule, TensorType
from byoc_core.lint import find_instances
from byoc_core.transform import clone_function, evaluate_function

from byoc_conformance.drawing import POSITIVE_OPERANDS, draw_array, generator_of, to_positive
from byoc_conformance.outcome import FailedError, NotCoveredError, Outcome
from byoc_conformance.promise import Level, Promise
from byoc_conformance.subject import Attempt, Subject, call_unchanging

__all__ = ["PROMISES", "draw_inputs"]

_SIZES = ((5, 2, 3, 7), (17, 9, 12, 14))
"""The sizes of symbols in turn; the larger sizes are used if the ops reject the smaller sizes."""
_EXAMPLES_PER_INSTANCE = 2

NDArray = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class _Composite:
    """An instance of a pattern, as a function of the kit's module."""

    pattern: str
    text: str
    function: Function


def _compute_patterns(subject: Subject, case: str) -> Outcome:
    store = ConstantStore()
    instances = {found.function.name: found for found in _instances(subject, store)}
    attempt = subject.attempt(IRModule({name: found.function for name, found in instances.items()}, store))
    claimed = {name: found for name, found in instances.items() if found.pattern in _composites(attempt, name)}
    built = {name: found for name, found in claimed.items() if name not in attempt.failures}
    if not built:
        raise NotCoveredError("no instance of a pattern is claimed")
    texts: dict[str, str] = {}
    judged: list[_Composite] = []
    for found in built.values():
        inputs = draw_inputs(attempt.module, found.function, subject.spec.seed)
        if inputs is None:
            continue
        judged.append(found)
        if text := _problem(subject, attempt, found, inputs):
            texts.setdefault(found.pattern, text)
    if texts:
        raise FailedError("\n".join(f"pattern `{pattern}`: {text}" for pattern, text in texts.items()))
    if not judged:
        raise NotCoveredError("no sizes valid for the ops were found in any claimed instance")
    return Outcome(text=f"{len(judged)} instances of {len({found.pattern for found in judged})} patterns")


def _instances(subject: Subject, store: ConstantStore) -> Iterator[_Composite]:
    """Yield instances of all patterns: for each instance one to two examples, spread over the instances found."""
    for order, pattern in enumerate(subject.handle.patterns()):
        found = find_instances(pattern.pattern, subject.ops).found
        step = max(1, _EXAMPLES_PER_INSTANCE * len(found) // subject.spec.examples)
        for number, instance in enumerate(found[::step]):
            (function,) = instance.module.functions.values()
            for array in instance.module.constants.values():
                store.add(array)
            name = f"pattern_{order}_{number}"
            yield _Composite(pattern.name, str(instance), replace(clone_function(function), name=name))


def _composites(attempt: Attempt, name: str) -> set[str]:
    """Return the names of the composites in the subject's regions of a function."""
    return {
        str(binding.attrs["name"])
        for region in attempt.regions[name]
        for binding in region.walk()
        if binding.op is COMPOSITE
    }


def _problem(subject: Subject, attempt: Attempt, found: _Composite, inputs: Sequence[NDArray]) -> str:
    """Return the fault in a call of an instance; empty if none."""
    label = f"{found.text}, called with {', '.join(str(list(array.shape)) for array in inputs)}"
    try:
        results = call_unchanging(attempt.vm, found.function.name, inputs)
    except (ByocError, FailedError) as error:
        return f"{label}: {error}"
    verdict = subject.judge(attempt.module, found.function.name, inputs, results)
    return "" if verdict.is_right else f"{label}: {verdict.text}"


def draw_inputs(module: IRModule, function: Function, seed: int) -> list[NDArray] | None:
    """Return inputs of a function accepted by the reference kernels; ``None`` if none are found.

    Each symbol has a single size, and operands with a positive domain are positive. Some sizes are rejected: a
    convolution rejects an image smaller than the window.
    """
    positive = {
        id(operand)
        for binding in function.walk()
        for operand, name in zip(binding.operands, binding.op.operand_names(len(binding.operands)), strict=True)
        if name in POSITIVE_OPERANDS
    }
    types = [param.type for param in function.params if isinstance(param.type, TensorType)]
    symbols = sorted({name for type_ in types for dim in type_.shape or () for name in symbols_of(dim)})
    for choice in _SIZES if symbols else _SIZES[:1]:
        generator = generator_of(seed, function.name)
        sizes = {name: choice[index % len(choice)] for index, name in enumerate(symbols)}
        arrays = []
        for param, type_ in zip(function.params, types, strict=True):
            shape = tuple(evaluate(dim, sizes) for dim in type_.shape or ())
            array = draw_array(type_.dtype, shape, "normal", generator)
            arrays.append(to_positive(array) if id(param) in positive else array)
        try:
            evaluate_function(module, function.name, arrays)
        except ByocError:
            continue
        return arrays
    return None


PROMISES = (
    Promise(
        Level.L2,
        "pattern",
        "computes the results of the ops in its composites, in instances of all patterns",
        _compute_patterns,
        deadline=240.0,
    ),
)
