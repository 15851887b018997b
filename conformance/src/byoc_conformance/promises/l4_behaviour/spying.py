"""The calls that a machine makes of the subject's functions, seen from between the two."""

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
    """One call of a compiled function.

    Attributes:
        example: what was run.
        function: what was called.
        inputs: what it was given, copied.
        outputs: what it filled, copied; none for a function that returns its results.
    """

    example: Example
    function: PackedFunction
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]


def observe_calls(subject: Subject, examples: Sequence[Example]) -> list[ObservedCall]:
    """Gives the calls of compiled functions that running examples makes."""
    calls: list[ObservedCall] = []
    for example in examples:

        def around(
            function: PackedFunction, inputs: Sequence[Array], outputs: Sequence[Array], example: Example = example
        ) -> object:
            given = tuple(array.copy() for array in inputs)
            value = function.impl(*inputs, *outputs)
            calls.append(ObservedCall(example, function, given, tuple(array.copy() for array in outputs)))
            return value

        run(machine_around(compile_examples(subject), around), example)
    return calls
