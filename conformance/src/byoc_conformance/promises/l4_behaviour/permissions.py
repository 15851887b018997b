"""Permissions for callers beyond the plain contract, put to use; and calls by machine code.

The permissions are the declared :class:`byoc_core.runtime.CallTraits`: strided arrays, an output over an input, a
workspace of the caller. The core's machine and its placement of buffers rely on these declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from byoc_core import VirtualMachine
from byoc_core.runtime import CallTraits, caller_nbytes

from byoc_conformance.examples import Array, Example, compile_examples
from byoc_conformance.native_calls import call_natively
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.observed_calls import ObservedCall, observe_calls
from byoc_conformance.promises.l4_behaviour.running import agree, copies, require_examples, run, same_bytes
from byoc_conformance.subject import Subject
from byoc_conformance.wrapped_calls import GuardedWorkspace

__all__ = ["PROMISES"]

_POISON = 0xA5
"""The content of workspaces."""

Call = Callable[[ObservedCall, CallTraits], Iterator[tuple[str, Sequence[Array]]]]
"""A caller of functions in a way permitted by the traits; yields descriptions, with the outputs."""


def _judge(subject: Subject, call: Call, permission: str) -> None:
    """Compare the results of permitted calls with the results of plain calls.

    Another layout of the elements may change the rounding of sums. Therefore results with other bits are compared with
    the reference kernels, if the call is the whole example.

    Raises:
        FailedError: the results differ.
        NotCoveredError: nothing is permitted.
    """
    owners = {name: m for m in compile_examples(subject).executable.modules for name in m.function_names}
    judged = 0
    for observed in observe_calls(subject, require_examples(subject)):
        name = observed.function.name
        if observed.function.returns_results or name not in owners:
            continue
        for how, outputs in call(observed, owners[name].call_traits(name)):
            judged += 1
            example, found = observed.example, copies(outputs)
            if same_bytes(observed.inputs, example.inputs):
                agree(subject, example, example.inputs, found, observed.outputs, how)
            elif not same_bytes(found, observed.outputs):
                raise FailedError(f"{example.name}, {how}: the results differ")
    if not judged:
        raise NotCoveredError(f"no function permits {permission}")


def _new_strided_view(array: Array) -> Array:
    """Return a view of the same type with gaps between the elements."""
    room = np.zeros((*array.shape, 2), array.dtype)
    view: Array = room[..., 0]
    return view


def _call_strided(call: ObservedCall, traits: CallTraits) -> Iterator[tuple[str, Sequence[Array]]]:
    if not traits.strided:
        return
    inputs, outputs = (
        [_new_strided_view(array) for array in call.inputs],
        [_new_strided_view(array) for array in call.outputs],
    )
    for view, array in zip(inputs, call.inputs, strict=True):
        view[...] = array
    call.function.impl(*inputs, *outputs)
    yield "on strided inputs and outputs", outputs


def _call_native_strided(call: ObservedCall, traits: CallTraits) -> Iterator[tuple[str, Sequence[Array]]]:
    entry = call.function.native
    if not traits.strided or entry is None:
        return
    inputs, outputs = (
        [_new_strided_view(array) for array in call.inputs],
        [_new_strided_view(array) for array in call.outputs],
    )
    for view, array in zip(inputs, call.inputs, strict=True):
        view[...] = array
    call_natively(entry, [*inputs, *outputs])
    yield "called by machine code on strided inputs and outputs", outputs


def _call_in_place(call: ObservedCall, traits: CallTraits) -> Iterator[tuple[str, Sequence[Array]]]:
    for output, number in traits.in_place:
        if call.inputs[number].nbytes != call.outputs[output].nbytes:
            continue  # the sizes differ in this call
        inputs, outputs = copies(call.inputs), [np.zeros_like(array) for array in call.outputs]
        memory = inputs[number].reshape(-1).view(np.uint8)
        outputs[output] = memory.view(outputs[output].dtype).reshape(outputs[output].shape)
        call.function.impl(*inputs, *outputs)
        yield f"with output {output} in the memory of input {number}", outputs


def _call_with_workspace(call: ObservedCall, traits: CallTraits) -> Iterator[tuple[str, Sequence[Array]]]:
    shapes = [array.shape for array in (*call.inputs, *call.outputs)]
    nbytes = caller_nbytes(traits.workspace_nbytes, call.function.signature, shapes)
    if not isinstance(nbytes, int) or not nbytes:
        return
    workspace = GuardedWorkspace(nbytes, _POISON)
    inputs, outputs = copies(call.inputs), [np.zeros_like(array) for array in call.outputs]
    call.function.impl(*inputs, *outputs, workspace.array)
    workspace.check(call.example.name)
    yield "with a workspace of arbitrary contents", outputs
    outputs = [np.zeros_like(array) for array in call.outputs]
    call.function.impl(*copies(call.inputs), *outputs)
    yield "without a workspace", outputs


def _check_strided(subject: Subject, case: str) -> None:
    _judge(subject, _call_strided, "strided arrays")


def _check_native_strided(subject: Subject, case: str) -> None:
    _judge(subject, _call_native_strided, "strided arrays in calls from machine code")


def _check_in_place(subject: Subject, case: str) -> None:
    _judge(subject, _call_in_place, "an output in an input's memory")


def _check_workspace(subject: Subject, case: str) -> None:
    _judge(subject, _call_with_workspace, "a workspace")


def _check_native_calls(subject: Subject, case: str) -> None:
    attempt = compile_examples(subject)
    functions = [module.get_function(name) for module in attempt.executable.modules for name in module.function_names]
    if all(function.native is None for function in functions):
        raise NotCoveredError("machine code can call no function of the backend")
    by_python = VirtualMachine(attempt.executable, native=False)

    def compare(example: Example) -> None:
        if not same_bytes(run(attempt.vm, example), run(by_python, example)):
            raise FailedError(f"{example.name}: calls from machine code and from Python give different results")

    for example in require_examples(subject):
        compare(example)


PROMISES = (
    Promise(
        Level.L4,
        "permitted-strides",
        "accepts strided inputs and outputs in functions declared `strided`",
        _check_strided,
    ),
    Promise(
        Level.L4,
        "native-strides",
        "accepts strided inputs and outputs in calls from machine code too, in functions declared `strided`",
        _check_native_strided,
    ),
    Promise(
        Level.L4,
        "permitted-in-place",
        "computes right with an output over an input, if declared `in_place`",
        _check_in_place,
    ),
    Promise(
        Level.L4,
        "permitted-workspace",
        "stays within the declared workspace, and works without a workspace too",
        _check_workspace,
    ),
    Promise(
        Level.L4,
        "native-calls",
        "gives the same results in calls from machine code and from Python",
        _check_native_calls,
    ),
)
