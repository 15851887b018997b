"""The calls that a machine makes of the subject's functions, seen from between the two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from byoc_core import VirtualMachine
from byoc_core.runtime import PackedFunction

from byoc_conformance.examples import Array, Example, compile_examples
from byoc_conformance.promises.l4_behaviour.running import run
from byoc_conformance.subject import Attempt, Subject

__all__ = ["ObservedCall", "observe_calls"]

Around = Callable[[PackedFunction, Sequence[Array], Sequence[Array]], object]


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

        run(_machine_around(compile_examples(subject), around), example)
    return calls


def _machine_around(attempt: Attempt, around: Around) -> VirtualMachine:
    """Gives a machine that calls ``around(function, inputs, outputs)`` in place of each compiled function."""
    num_inputs = {
        str(binding.attrs["symbol"]): len(binding.operands)
        for function in attempt.compiled.functions.values()
        for binding in function.walk()
        if "symbol" in binding.attrs
    }

    def call(function: PackedFunction, count: int, *arrays: Array) -> object:
        return around(function, arrays[:count], arrays[count:])

    externs = {}
    for module in attempt.executable.modules:
        for name in module.function_names:
            function = module.get_function(name)
            around_it = partial(call, function, num_inputs.get(name, 0))
            externs[name] = PackedFunction(name, around_it, function.signature)
    return VirtualMachine(attempt.executable, externs=externs)
