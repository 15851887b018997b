"""Composites compute what their ops do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from byoc_core.dims import evaluate, symbols_of
from byoc_core.errors import ByocError
from byoc_core.ir import COMPOSITE, ConstantStore, Function, IRModule, TensorType
from byoc_core.lint import find_instances
from byoc_core.transform.rewrite import clone_function

from byoc_conformance.drawing import POSITIVE_OPERANDS, draw_array, generator_of, to_positive
from byoc_conformance.outcome import FailedError, NotCoveredError, Outcome
from byoc_conformance.promise import Level, Promise
from byoc_conformance.subject import Attempt, Subject, call_unchanging

__all__ = ["PROMISES"]

_SIZES = (5, 2, 3, 7)
_EXAMPLES_PER_INSTANCE = 2


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
    taken = {name: found for name, found in instances.items() if found.pattern in _composites(attempt, name)}
    built = {name: found for name, found in taken.items() if name not in attempt.failures}
    if not built:
        raise NotCoveredError("it has no pattern of which an instance is taken")
    texts: dict[str, list[str]] = {}
    for found in built.values():
        text = _problem(subject, attempt, found)
        if text:
            texts.setdefault(found.pattern, []).append(text)
    if texts:
        lines = (f"pattern `{pattern}`: {found[0]}" for pattern, found in texts.items())
        raise FailedError("\n".join(lines))
    patterns = len({found.pattern for found in built.values()})
    return Outcome(text=f"{len(built)} instances of {patterns} patterns")


def _instances(subject: Subject, store: ConstantStore) -> Iterator[_Composite]:
    """Yield instances of all patterns: for each one to two examples, spread over those that were found."""
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
    """Gives the names of the composites in the subject's regions of a function."""
    return {
        str(binding.attrs["name"])
        for region in attempt.regions[name]
        for binding in region.walk()
        if binding.op is COMPOSITE
    }


def _problem(subject: Subject, attempt: Attempt, found: _Composite) -> str:
    generator = generator_of(subject.spec.seed, found.function.name)
    inputs = _draw_inputs(found.function, generator)
    try:
        results = call_unchanging(attempt.vm, found.function.name, inputs)
    except (ByocError, FailedError) as error:
        return f"{found.text}: {error}"
    verdict = subject.judge(attempt.module, found.function.name, inputs, results)
    return "" if verdict.is_right else f"{found.text}: {verdict.text}"


def _draw_inputs(function: Function, generator: np.random.Generator) -> list[npt.NDArray[np.generic]]:
    """Gives inputs; each symbol has one size, and what must be positive is."""
    positive = {
        id(operand)
        for binding in function.walk()
        for operand, name in zip(binding.operands, binding.op.operand_names(len(binding.operands)), strict=True)
        if name in POSITIVE_OPERANDS
    }
    types = [param.type for param in function.params if isinstance(param.type, TensorType)]
    symbols = sorted({name for type_ in types for dim in type_.shape or () for name in symbols_of(dim)})
    sizes = {name: _SIZES[index % len(_SIZES)] for index, name in enumerate(symbols)}
    arrays = []
    for param, type_ in zip(function.params, types, strict=True):
        array = draw_array(type_.dtype, tuple(evaluate(dim, sizes) for dim in type_.shape or ()), "normal", generator)
        arrays.append(to_positive(array) if id(param) in positive else array)
    return arrays


PROMISES = (
    Promise(
        Level.L2,
        "pattern",
        "computes what the ops of its composites compute, in instances of all its patterns",
        _compute_patterns,
        deadline=240.0,
    ),
)
