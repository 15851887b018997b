"""Runs of examples, and comparison with earlier results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from byoc_core import FunctionBuilder, VirtualMachine
from byoc_core.debugging import References, Tolerance, compare_outputs
from byoc_core.errors import ByocError, IRTypeError
from byoc_core.ir import Constant, IRModule, TensorType, Value
from byoc_core.transform import evaluate_function

from byoc_conformance.examples import Array, Example, find_examples, join_examples
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.subject import Attempt, Subject, call_function

__all__ = [
    "Results",
    "agree",
    "compile_own",
    "copies",
    "difference",
    "is_computable",
    "other_inputs",
    "rebuild",
    "require_examples",
    "resize_first",
    "run",
    "same_bytes",
    "widen",
]

Results = tuple[Array, ...]
_WIDE = (129, 511)
"""The shape of wide examples: odd sizes, 64 Ki elements."""


def require_examples(subject: Subject, *kinds: str) -> tuple[Example, ...]:
    """Return the examples of some kinds; all examples if no kind is given.

    Raises:
        NotCoveredError: there are none.
    """
    found = tuple(example for example in find_examples(subject) if not kinds or example.kind in kinds)
    if not found:
        raise NotCoveredError(f"the backend claims no example{' of kind ' if kinds else ''}{' or '.join(kinds)}")
    return found


def run(machine: VirtualMachine, example: Example, inputs: Sequence[Array] | None = None) -> Results:
    """Return the results of a call, copied at once to be safe from later changes.

    Args:
        machine: a machine with the example's function.
        example: the example to call.
        inputs: the inputs; copies of the example's own if not given.
    """
    return copies(call_function(machine, example.function, example.new_inputs() if inputs is None else inputs))


def other_inputs(example: Example, steps: int = 1) -> tuple[Array, ...]:
    """Return other valid inputs: the elements of each input in another order, to preserve sums over all elements."""
    return tuple(np.roll(array.reshape(-1), steps).reshape(array.shape) for array in example.inputs)


def copies(arrays: Iterable[Array]) -> tuple[Array, ...]:
    """Return copies of arrays still needed after a call."""
    return tuple(array.copy() for array in arrays)


def same_bytes(left: Sequence[Array], right: Sequence[Array]) -> bool:
    """Return whether results are equal in type, shape and every bit."""
    return len(left) == len(right) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(left, right, strict=True)
    )


def difference(subject: Subject, example: Example, inputs: Sequence[Array], found: Results, expected: Results) -> str:
    """Return the fault in results; empty if none.

    Results are right if equal to the expected results bit by bit, or equal to the results of the reference kernels,
    up to rounding: level 2 judges the accuracy of the expected results.

    Args:
        subject: the subject with the declared unit roundoff.
        example: the called example.
        inputs: the inputs of the call.
        found: the results.
        expected: earlier results for equal inputs.
    """
    if same_bytes(found, expected):
        return ""
    if _describe_types(found) != _describe_types(expected):
        return f"the results have other types: {_describe_types(found)}"
    names = example.module[example.function].output_names
    references = References(
        example.module, example.function, inputs, subject.unit_roundoff, finite_only=subject.finite_only
    )
    findings, _ = compare_outputs(found, names, references, Tolerance())
    return findings[0].text if findings else ""


def _describe_types(arrays: Sequence[Array]) -> str:
    return ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays)


def agree(
    subject: Subject, example: Example, inputs: Sequence[Array], found: Results, expected: Results, when: str
) -> None:
    """Check results against expected results; see :func:`difference`.

    Raises:
        FailedError: the results differ; names the example and the circumstances of the call (``when``).
    """
    text = difference(subject, example, inputs, found, expected)
    if text:
        raise FailedError(f"{example.name}, {when}: {text}")


def rebuild(
    subject: Subject, example: Example, name: str, new_type: Callable[[TensorType], TensorType]
) -> Example | None:
    """Return an example on parameters of other types; ``None`` if the ops reject the types.

    Args:
        subject: the subject with the ops.
        example: the original example; constants stay.
        name: of the function.
        new_type: returns the static type for a parameter's type.
    """
    old = example.module[example.function]
    builder = FunctionBuilder(name, constants=example.module.constants, ops=subject.ops)
    values: dict[Value, Value] = {}
    types = [new_type(param.type) for param in old.params if isinstance(param.type, TensorType)]
    try:
        for param, type_ in zip(old.params, types, strict=True):
            values[param] = builder.param(param.name, type_)
        for binding in old.bindings:
            operands = [values.get(operand, operand) for operand in binding.operands]
            values.update(zip(binding.results, builder.bind(binding.op, operands, binding.attrs).results, strict=True))
    except IRTypeError:
        return None
    function = builder.finish(*(values.get(result, result) for result in old.results))
    inputs = tuple(
        np.resize(array, tuple(int(str(dim)) for dim in type_.shape or ()))
        for array, type_ in zip(example.inputs, types, strict=True)
    )
    shapes = ", ".join(str(list(array.shape)) for array in inputs)
    module = IRModule({name: function}, builder.constants)
    return Example(f"{example.name} on {shapes}", example.kind, module, name, inputs)


def resize_first(subject: Subject, examples: Iterable[Example], size: int) -> tuple[Example, ...]:
    """Return examples with another number in place of the first size of their first input, wherever the size occurs.

    Symbolic and data-dependent examples, and examples rejecting the size, are left out.
    """
    found = []
    for example in examples:
        shape = example.inputs[0].shape if example.inputs else ()
        if not shape or example.kind in {"symbolic", "data-dependent"}:
            continue

        def new_type(old: TensorType, first: int = shape[0]) -> TensorType:
            return TensorType(tuple(size if dim == first else dim for dim in old.shape or ()), old.dtype)

        resized = rebuild(subject, example, f"{example.function}_first_{size}", new_type)
        if resized is not None and is_computable(resized, resized.inputs):
            found.append(resized)
    return tuple(found)


def is_computable(example: Example, inputs: Sequence[Array]) -> bool:
    """Return whether the reference kernels accept these inputs: refused inputs may be an error for any backend."""
    try:
        evaluate_function(example.module, example.function, inputs)
    except ByocError:
        return False
    return True


def widen(subject: Subject, examples: Iterable[Example]) -> tuple[Example, ...]:
    """Rebuild examples with a single type for all values on arrays of 64 Ki elements; leave out all others.

    Examples with constants are left out too.
    """
    found = []
    for example in examples:
        function = example.module[example.function]
        types = {value.type for binding in function.bindings for value in (*binding.operands, *binding.results)}
        if len(types) == 1 and not any(isinstance(value, Constant) for b in function.bindings for value in b.operands):
            wide = rebuild(subject, example, f"{example.function}_wide", lambda old: TensorType(_WIDE, old.dtype))
            found += [wide] if wide is not None else []
    return tuple(found)


def compile_own(subject: Subject, examples: Iterable[Example]) -> tuple[Attempt, tuple[Example, ...]]:
    """Compile examples, perhaps derived from others, anew; return the attempt, and the claimed, compiled examples."""
    candidates = tuple(examples)
    attempt = subject.attempt(join_examples(candidates))
    compiled = tuple(e for e in candidates if attempt.is_claimed(e.function) and e.function not in attempt.failures)
    return attempt, compiled
