"""Calls unable to succeed: refused before the start, reported on failure, and without consequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from byoc_core import VirtualMachine
from byoc_core.errors import ByocError, CallError
from byoc_core.ir import IRModule
from byoc_core.ops.cases import new_function
from byoc_core.transform import evaluate_function

from byoc_conformance.drawing.spaces import has_indices
from byoc_conformance.examples import Array, Example
from byoc_conformance.outcome import DeclinedError, FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.observed_calls import ObservedCall, observe_calls
from byoc_conformance.promises.l4_behaviour.running import agree, compile_own, require_examples, run
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_OUTSIDE = 1_000_003


def _check_arguments(subject: Subject, case: str) -> None:
    calls = observe_calls(subject, require_examples(subject))
    judged = [call for call in calls if call.function.signature is not None and not call.function.returns_results]
    if not judged:
        raise NotCoveredError("no function has a signature: the arguments of direct calls are not checked")
    for call in judged:
        _check_calls(call)


def _check_calls(call: ObservedCall) -> None:
    """Call a function directly, with the implementation replaced by a recorder of calls."""
    function, implementation = call.function, call.function.impl
    arrays = [array.copy() for array in (*call.inputs, *call.outputs)]
    entered: list[int] = []
    function.impl = lambda *_: entered.append(1)
    try:
        function(*arrays)
        if not entered:
            raise FailedError(
                f"{call.example.name}: a direct call with the right arguments does not reach the compiled code"
            )
        for fault, wrong in _wrong_arguments(call, arrays):
            try:
                function(*wrong)
            except CallError:
                continue
            raise FailedError(f"{call.example.name}: a direct call passes {fault} to the compiled code")
    finally:
        function.impl = implementation


def _wrong_arguments(call: ObservedCall, arrays: list[Array]) -> Iterator[tuple[str, list[Array]]]:
    """Yield argument lists with a single deviation from the signature."""
    signature = call.function.signature
    assert signature is not None
    yield "too few arguments", arrays[:-1]
    yield "too many arguments", [*arrays, arrays[-1].copy()]
    for index, spec in enumerate((*signature.inputs, *signature.outputs)):
        array = arrays[index]
        wrong_arrays = {
            "another dtype": np.zeros(array.shape, np.int16 if array.dtype != np.int16 else np.int8),
            "another rank": array[np.newaxis],
        }
        if spec.shape and isinstance(spec.shape[0], int):
            wrong_arrays["another size"] = np.zeros((array.shape[0] + 1, *array.shape[1:]), array.dtype)
        for deviation, other in wrong_arrays.items():
            yield f"argument {index} of {deviation}", [*arrays[:index], other, *arrays[index + 1 :]]


def _check_index_errors(subject: Subject, case: str) -> None:
    machine, examples = _indexing_examples(subject)
    for example, outside in examples:
        try:
            run(machine, example, outside)
        except ByocError:
            continue
        raise FailedError(f"{example.name}: an index outside the axis is an error, but this call gave a result")


def _check_calls_after_errors(subject: Subject, case: str) -> None:
    machine, examples = _indexing_examples(subject)
    failed = 0
    for example, outside in examples:
        expected = run(machine, example)
        try:
            run(machine, example, outside)
        except ByocError:
            failed += 1
            agree(subject, example, example.inputs, run(machine, example), expected, "called after a failed call")
    if not failed:
        raise NotCoveredError("no call failed")


def _indexing_examples(subject: Subject) -> tuple[VirtualMachine, list[tuple[Example, Sequence[Array]]]]:
    """Return the claimed functions with possible out-of-range accesses, depending on the data.

    Each function comes with inputs refused by the op's kernel: the last index lies outside.
    """
    outside: dict[str, Sequence[Array]] = {}
    examples = []
    for op in subject.ops_with_cases:
        case, name = op.canonical_cases[0], f"outside_{op.name.replace('.', '_')}"
        if not has_indices(case):
            continue
        function, _ = new_function(op, case.types(), case.attrs, name)
        inputs = case.arrays(np.random.default_rng(subject.spec.seed))
        example = Example(f"indexing {op.name}", "indexing", IRModule({name: function}), name, inputs)
        refused = next((wrong for wrong in _inputs_with_index_outside(example) if _is_error(example, wrong)), None)
        if refused is not None:
            outside[name] = refused
            examples.append(example)
    attempt, claimed = compile_own(subject, examples)
    if not claimed:
        reasons = [reason for example in examples for reason in attempt.reasons(example.function)]
        raise DeclinedError(f"{reasons[0].code}: {reasons[0].text}" if reasons else "no reason was given")
    return attempt.vm, [(example, outside[example.function]) for example in claimed]


def _inputs_with_index_outside(example: Example) -> Iterator[Sequence[Array]]:
    """Yield the example's inputs, each time with the last element of another integer operand far outside."""
    for index, array in enumerate(example.inputs):
        if array.dtype.kind == "i" and array.size:
            inputs = example.new_inputs()
            inputs[index].reshape(-1)[-1] = min(_OUTSIDE, np.iinfo(array.dtype).max)
            yield inputs


def _is_error(example: Example, inputs: Sequence[Array]) -> bool:
    """Return whether the op's reference kernel refuses the inputs."""
    try:
        evaluate_function(example.module, example.function, inputs)
    except ByocError:
        return True
    return False


PROMISES = (
    Promise(
        Level.L4,
        "arguments-checked",
        "refuses direct calls with arguments of a wrong number, dtype or shape before any compiled code runs",
        _check_arguments,
    ),
    Promise(Level.L4, "errors-told", "raises an error for indices outside the axis", _check_index_errors),
    Promise(Level.L4, "usable-after-error", "works after a failed call", _check_calls_after_errors),
)
