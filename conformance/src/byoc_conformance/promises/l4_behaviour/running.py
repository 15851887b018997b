"""Running examples, and comparing what comes out with what came out before."""

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
    """Gives the examples of some kinds, of all where none is named.

    Raises:
        NotCoveredError: there are none.
    """
    found = tuple(example for example in find_examples(subject) if not kinds or example.kind in kinds)
    if not found:
        raise NotCoveredError(f"claims no example{' that is ' if kinds else ''}{' or '.join(kinds)}")
    return found


def run(machine: VirtualMachine, example: Example, inputs: Sequence[Array] | None = None) -> Results:
    """Gives the results of one call, copied at once, so that nothing that happens later can change them.

    Args:
        machine: holds the example's function.
        example: what to call.
        inputs: what it is called with; copies of the example's own where not given.
    """
    return copies(call_function(machine, example.function, example.new_inputs() if inputs is None else inputs))


def other_inputs(example: Example, steps: int = 1) -> tuple[Array, ...]:
    """Gives other inputs that fit as well: the elements of each in another order, so that sums over them stay."""
    return tuple(np.roll(array.reshape(-1), steps).reshape(array.shape) for array in example.inputs)


def copies(arrays: Iterable[Array]) -> tuple[Array, ...]:
    """Gives copies, for calls after which the arrays themselves are still needed."""
    return tuple(array.copy() for array in arrays)


def same_bytes(left: Sequence[Array], right: Sequence[Array]) -> bool:
    """Whether results are equal in type, shape and every bit."""
    return len(left) == len(right) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(left, right, strict=True)
    )


def difference(subject: Subject, example: Example, inputs: Sequence[Array], found: Results, known: Results) -> str:
    """Says what is wrong with results; empty where nothing is.

    They are right where they are, bit by bit, what was known before, or else what the reference kernels give, up to
    rounding: whether numbers are right to begin with is for level 2 to judge.

    Args:
        subject: whose stated unit roundoff counts.
        example: what was called.
        inputs: what it was called with.
        found: the results.
        known: what equal inputs gave before.
    """
    if same_bytes(found, known):
        return ""
    if _describe_types(found) != _describe_types(known):
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
    subject: Subject, example: Example, inputs: Sequence[Array], found: Results, known: Results, when: str
) -> None:
    """Checks results against those known before; see :func:`difference`.

    Raises:
        FailedError: they are others; says when.
    """
    text = difference(subject, example, inputs, found, known)
    if text:
        raise FailedError(f"{example.name}, {when}: {text}")


def rebuild(
    subject: Subject, example: Example, name: str, new_type: Callable[[TensorType], TensorType]
) -> Example | None:
    """Gives an example on parameters of other types; ``None`` where its ops do not take them.

    Args:
        subject: whose ops it has.
        example: what it is made from; constants stay.
        name: of the function.
        new_type: gives static types for those of the parameters.
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
    """Gives examples with another number in place of the first size of their first input, wherever that one stands.

    Symbolic and data-dependent examples, and those that do not take that size, are left out.
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
    """Whether the reference kernels take these inputs: what is an error for them may be one for anybody."""
    try:
        evaluate_function(example.module, example.function, inputs)
    except ByocError:
        return False
    return True


def widen(subject: Subject, examples: Iterable[Example]) -> tuple[Example, ...]:
    """Gives examples whose values all have one type again, on arrays of 64 Ki elements."""
    found = []
    for example in examples:
        function = example.module[example.function]
        types = {value.type for binding in function.bindings for value in (*binding.operands, *binding.results)}
        if len(types) == 1 and not any(isinstance(value, Constant) for b in function.bindings for value in b.operands):
            wide = rebuild(subject, example, f"{example.function}_wide", lambda old: TensorType(_WIDE, old.dtype))
            found += [wide] if wide is not None else []
    return tuple(found)


def compile_own(subject: Subject, examples: Iterable[Example]) -> tuple[Attempt, tuple[Example, ...]]:
    """Compiles examples anew, or some that were derived from others; gives those that the subject takes too."""
    given = tuple(examples)
    attempt = subject.attempt(join_examples(given))
    kept = tuple(e for e in given if attempt.is_claimed(e.function) and e.function not in attempt.failures)
    return attempt, kept
