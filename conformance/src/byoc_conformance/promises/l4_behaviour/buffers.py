"""Treatment of the caller's arrays.

Inputs may be read-only and have any strides, and stay unwritten; outputs may lie anywhere in memory; a result shares
memory with no input, and no later call changes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from byoc_core.debugging import CompiledRegion, RegionFinding, call_region

from byoc_conformance.examples import Array, Example, compile_examples
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.observed_calls import ObservedCall, observe_calls
from byoc_conformance.promises.l4_behaviour.running import (
    Results,
    agree,
    compile_own,
    copies,
    require_examples,
    resize_first,
    run,
)
from byoc_conformance.subject import Subject, call_function

__all__ = ["PROMISES", "watched_calls"]

_GUARD = 64
"""Elements before and behind an output, not to be changed."""
_GUARD_BYTE = 0x5A
"""The value of guard bytes."""
_NUM_WATCHED = 6
"""The number of watched repetitions of a call."""


@cache
def watched_calls(subject: Subject) -> tuple[tuple[str, str], ...]:
    """Return the findings from calls of compiled functions with different previous contents of the outputs.

    Returns:
        Codes of :data:`byoc_core.debugging.REGION_FINDING_CODES`, each with a text.
    """
    seen = []
    for call in observe_calls(subject, require_examples(subject)):
        first, *repetitions = (_watch_call(subject, call) for _ in range(_NUM_WATCHED))
        # Results differing by chance seem to depend on the outputs now and then, but not each time.
        seen += [
            (finding.code, f"{call.example.name}: {finding.text}")
            for finding in first
            if finding.code != "output-read" or all(finding.code in {f.code for f in other} for other in repetitions)
        ]
    return tuple(seen)


def _watch_call(subject: Subject, call: ObservedCall) -> Sequence[RegionFinding]:
    compiled = CompiledRegion(call.function, (), call.function.returns_results, subject.info.deterministic)
    types = [(array.shape, array.dtype) for array in call.outputs]
    names = [f"y{index}" for index in range(len(types))]
    return call_region(compiled, call.inputs, types, names).findings


def _watch(subject: Subject, case: str, *, codes: tuple[str, ...]) -> None:
    texts = [text for code, text in watched_calls(subject) if code in codes]
    if texts:
        raise FailedError("\n".join(texts))


def _inputs_unwritten(subject: Subject, case: str) -> None:
    machine = compile_examples(subject).vm
    for example in require_examples(subject):
        inputs = example.new_inputs()
        run(machine, example, inputs)
        for index, (before, after) in enumerate(zip(example.inputs, inputs, strict=True)):
            if before.tobytes() != after.tobytes():
                raise FailedError(f"{example.name}: input {index} was changed")
    _watch(subject, case, codes=("input-written",))


def _check_read_only_inputs(subject: Subject, case: str) -> None:
    machine = compile_examples(subject).vm
    for example in require_examples(subject):
        expected = run(machine, example)
        agree(
            subject,
            example,
            example.inputs,
            run(machine, example, example.inputs),
            expected,
            "on read-only inputs",
        )


def _check_own_results(subject: Subject, case: str) -> None:
    machine = compile_examples(subject).vm
    for example in require_examples(subject):
        inputs = example.new_inputs()
        results = call_function(machine, example.function, inputs)
        copied_results = [array.copy() for array in results]
        for index, array in enumerate(results):
            other_arrays = (*inputs, *results[:index])
            if any(np.shares_memory(array, other) for other in other_arrays):
                raise FailedError(f"{example.name}: result {index} shares memory with an input or another result")
        run(machine, example, tuple(np.roll(array, 1) for array in inputs))
        if any(a.tobytes() != b.tobytes() for a, b in zip(results, copied_results, strict=True)):
            raise FailedError(f"{example.name}: a later call changed a result")


def _strided(array: Array) -> Array:
    wide = np.zeros([2 * size + 1 for size in array.shape], array.dtype)
    every_other: Any = (..., *(slice(1, 2 * size + 1, 2) for size in array.shape))
    view: Array = wide[every_other]
    view[...] = array
    return view


def _reversed(array: Array) -> Array:
    backwards: Any = (..., *[slice(None, None, -1)] * array.ndim)
    flipped: Array = array[backwards].copy()
    view: Array = flipped[backwards]
    return view


def _shifted(array: Array) -> Array:
    room = np.zeros(array.size + 2 * _GUARD + 1, array.dtype)
    view = room[_GUARD + 1 : _GUARD + 1 + array.size].reshape(array.shape)
    view[...] = array
    return view


def _broadcast(array: Array) -> Array:
    """Return an array of a single repeated element, with strides of 0."""
    return np.broadcast_to(array.reshape(-1)[:1].reshape((1,) * array.ndim), array.shape) if array.size else array


def _odd_strides(array: Array) -> Array:
    """Return the array with meaningless strides on axes of size 1."""
    strides = [3 if size == 1 else stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return np.lib.stride_tricks.as_strided(array, strides=strides)


_LAYOUTS: Mapping[str, Callable[[Array], Array]] = {
    "strided": _strided,
    "negative-strides": _reversed,
    "fortran-order": lambda array: np.array(array, order="F"),
    "one-element-off": _shifted,
    "broadcast": _broadcast,
    "axes-of-one": _odd_strides,
}


def _check_layouts(subject: Subject, case: str) -> None:
    examples, attempt = require_examples(subject), compile_examples(subject)
    if case == "axes-of-one":
        attempt, examples = compile_own(subject, resize_first(subject, examples, 1))
        if not examples:
            raise NotCoveredError("no example accepts axes of size 1")
    lay, machine = _LAYOUTS[case], attempt.vm
    for example in examples:
        inputs = tuple(lay(array) for array in example.new_inputs())
        plain = tuple(np.array(array, order="C") for array in inputs)
        expected = run(machine, example, copies(plain))
        agree(subject, example, plain, run(machine, example, inputs), expected, f"on inputs of the layout {case}")


def _check_outputs(subject: Subject, case: str) -> None:
    machine = compile_examples(subject).vm
    judged = 0
    for example in require_examples(subject):
        expected = run(machine, example)
        judged += _OUTPUTS[case](subject, example, expected)
    if not judged:
        raise NotCoveredError("no example has an output for this layout")


def _run_into(subject: Subject, example: Example, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    machine = compile_examples(subject).vm
    function = machine[example.function]
    machine.run(
        example.function,
        {spec.name: array for spec, array in zip(function.params, inputs, strict=True)},
        out={spec.name: array for spec, array in zip(function.results, outputs, strict=True)},
    )


def _fill_guarded(subject: Subject, example: Example, expected: Results) -> bool:
    """Fill outputs starting one element behind an aligned address, with guarded memory around."""
    outputs, rooms = [], []
    for array in expected:
        output = _shifted(array)
        room = output.base
        assert room is not None  # a view has a base
        room.view(np.uint8)[...] = _GUARD_BYTE
        outputs.append(output)
        rooms.append(room)
    _run_into(subject, example, example.new_inputs(), outputs)
    found = copies(outputs)
    agree(subject, example, example.inputs, found, expected, "into outputs an element behind an aligned address")
    for output, room in zip(outputs, rooms, strict=True):
        output.reshape(-1).view(np.uint8)[...] = _GUARD_BYTE
        if not (room.view(np.uint8) == _GUARD_BYTE).all():
            raise FailedError(f"{example.name}: memory before or behind an output was written")
    return True


def _fill_strided(subject: Subject, example: Example, expected: Results, *, lay: Callable[[Array], Array]) -> bool:
    outputs = [lay(np.zeros_like(array)) for array in expected]
    _run_into(subject, example, example.new_inputs(), outputs)
    agree(subject, example, example.inputs, copies(outputs), expected, "into non-contiguous outputs")
    return True


def _fill_input_memory(subject: Subject, example: Example, expected: Results) -> bool:
    """Write the first result over the first input of the same type."""
    inputs = example.new_inputs()
    shared_input = next((a for a in inputs if (a.dtype, a.shape) == (expected[0].dtype, expected[0].shape)), None)
    if shared_input is None:
        return False
    outputs = [shared_input, *(np.empty_like(array) for array in expected[1:])]
    _run_into(subject, example, inputs, outputs)
    agree(subject, example, example.inputs, copies(outputs), expected, "into an output in the memory of an input")
    return True


_OUTPUTS: Mapping[str, Callable[[Subject, Example, Results], bool]] = {
    "one-element-off": _fill_guarded,
    "strided": partial(_fill_strided, lay=_strided),
    "negative-strides": partial(_fill_strided, lay=_reversed),
    "over-an-input": _fill_input_memory,
}


PROMISES = (
    Promise(Level.L4, "inputs-unwritten", "changes no inputs", _inputs_unwritten),
    Promise(Level.L4, "read-only-inputs", "accepts read-only inputs", _check_read_only_inputs),
    Promise(
        Level.L4,
        "inputs-anywhere",
        "accepts inputs at any address and with any strides",
        _check_layouts,
        cases=lambda: tuple(_LAYOUTS),
    ),
    Promise(
        Level.L4,
        "outputs-anywhere",
        "fills given outputs at any address and with any strides, and writes nothing else",
        _check_outputs,
        cases=lambda: tuple(_OUTPUTS),
    ),
    Promise(
        Level.L4,
        "outputs-filled",
        "writes every element of the outputs",
        partial(_watch, codes=("run-error", "output-unwritten")),
    ),
    Promise(
        Level.L4,
        "outputs-unread",
        "gives results independent of the previous contents of the outputs",
        partial(_watch, codes=("output-read",)),
    ),
    Promise(Level.L4, "results-stay", "returns results unaffected by later calls", _check_own_results),
)
