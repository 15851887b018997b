"""Observation of a machine's calls of the subject's functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.runtime import PackedFunction

from byoc_conformance.examples import Array, Example, compile_examples
from byoc_conformance.promises.l4_behaviour.running import run
from byoc_conformance.subject import Subject
from byoc_conformance.wrapped_calls import machine_around

__all__ = ["ObservedCall", "observe_calls"]


@dataclass(frozen=True, eq=False, slots=True)
class ObservedCall:
    """A call of a compiled function.

    Attributes:
        example: the running example.
        function: the called function.
        inputs: copies of the inputs.
        outputs: copies of the filled outputs; empty for a function returning results.
    """

    example: Example
    function: PackedFunction
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]


def observe_calls(subject: Subject, examples: Sequence[Example]) -> list[ObservedCall]:
    """Return the calls of compiled functions during runs of examples."""
    calls: list[ObservedCall] = []
    for example in examples:

        def around(
            function: PackedFunction, inputs: Sequence[Array], outputs: Sequence[Array], example: Example = example
        ) -> object:
            copied_inputs = tuple(array.copy() for array in inputs)
            value = function.impl(*inputs, *outputs)
            calls.append(ObservedCall(example, function, copied_inputs, tuple(array.copy() for array in outputs)))
            return value

        run(machine_around(compile_examples(subject), around), example)
    return calls
