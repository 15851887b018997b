"""Steps of lowered functions, called one by one: the called C functions keep to the stated accesses.

The core plans the memory of lowered functions by the accesses stated in ``byoc_lower``. A C function changing an array
stated as read, or reading an array stated as written, would give wrong results only beside certain other regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from byoc_core.dims import evaluate, match_symbols
from byoc_core.runtime import PackedFunction, RuntimeModule, caller_nbytes
from byoc_core.runtime.module import CallSteps

from byoc_conformance.examples import Array, compile_examples
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.observed_calls import ObservedCall, observe_calls
from byoc_conformance.promises.l4_behaviour.running import Results, agree, copies, require_examples, same_bytes
from byoc_conformance.subject import Subject
from byoc_conformance.wrapped_calls import GuardedWorkspace

__all__ = ["PROMISES"]

_POISONS = (0xFF, 0x00)
"""Earlier contents of written arrays: not-a-number as floats, and zero."""


@dataclass(frozen=True, eq=False, slots=True)
class _LoweredCall:
    """An observed call of a lowered function.

    Attributes:
        module: has the function and the steps.
        steps: the steps of the function.
        call: the observed call.
    """

    module: RuntimeModule
    steps: CallSteps
    call: ObservedCall

    def __str__(self) -> str:
        return f"{self.call.example.name}, function `{self.call.function.name}`"

    def new_arrays(self) -> list[Array]:
        """Return memory for the inputs, the outputs and the buffers between the steps."""
        signature = self.call.function.signature
        assert signature is not None  # a lowered function has a signature
        arrays = copies((*self.call.inputs, *self.call.outputs))
        declared = [dim for spec in (*signature.inputs, *signature.outputs) for dim in spec.shape]
        sizes = match_symbols(declared, [size for array in arrays for size in array.shape])
        values = {name: size for name, size in sizes.items() if isinstance(size, int)}
        shapes = [tuple(evaluate(dim, values) for dim in spec.shape) for spec in self.steps.buffers]
        types = [np.dtype(spec.dtype) for spec in self.steps.buffers]
        return [*arrays, *(np.empty(shape, dtype) for shape, dtype in zip(shapes, types, strict=True))]

    def run(self, arrays: Sequence[Array], poison: int) -> Results:
        """Return the outputs of the steps on the inputs of the observed call.

        Args:
            arrays: memory for all arrays; see :meth:`new_arrays`.
            poison: the earlier content of every byte of outputs, buffers and scratch memory.

        Raises:
            FailedError: a step changes an array stated as read, or writes beyond the requested scratch memory.
        """
        for array, original in zip(arrays, self.call.inputs, strict=False):
            array[...] = original
        for array in arrays[len(self.call.inputs) :]:
            array.reshape(-1).view(np.uint8)[...] = poison
        for step in self.steps.steps:
            read = [arrays[number] for number in step.args if number not in step.results]
            before = copies(read)
            passed = [arrays[number] for number in (*step.args, *step.results)]
            self._call_step(self.module.get_function(step.symbol), passed, poison)
            if not same_bytes(before, read):
                raise FailedError(f"{self}: step `{step.symbol}` changes an array stated as read")
        first = len(self.call.inputs)
        return copies(arrays[first : first + len(self.call.outputs)])

    def _call_step(self, function: PackedFunction, arrays: Sequence[Array], poison: int) -> None:
        traits = self.module.call_traits(function.name)
        nbytes = caller_nbytes(traits.workspace_nbytes, function.signature, [array.shape for array in arrays])
        if not isinstance(nbytes, int) or not nbytes:
            function.impl(*arrays)
            return
        workspace = GuardedWorkspace(nbytes, poison)
        function.impl(*arrays, workspace.array)
        workspace.check(f"{self}, step `{function.name}`")


def _lowered_calls(subject: Subject) -> Iterator[_LoweredCall]:
    """Yield the calls of lowered functions in the examples."""
    owners = {name: m for m in compile_examples(subject).executable.modules for name in m.function_names}
    for call in observe_calls(subject, require_examples(subject)):
        owner = owners.get(call.function.name)
        steps = None if owner is None else owner.call_steps(call.function.name)
        if owner is not None and steps is not None:
            yield _LoweredCall(owner, steps, call)


def _check_accesses(subject: Subject, case: str) -> None:
    judged = 0
    for lowered in _lowered_calls(subject):
        judged += 1
        arrays = lowered.new_arrays()  # the same for all runs, since rounding may depend on addresses
        results = [lowered.run(arrays, poison) for poison in _POISONS]
        example = lowered.call.example
        if same_bytes(lowered.call.inputs, example.inputs):
            for poison, result in zip(_POISONS, results, strict=True):
                when = f"function `{lowered.call.function.name}` step by step, over memory full of {poison:#04x}"
                agree(subject, example, example.inputs, result, lowered.call.outputs, when)
        if subject.info.deterministic and not same_bytes(results[0], results[1]):
            raise FailedError(f"{lowered}: the results depend on earlier contents of arrays stated as written")
    if not judged:
        raise NotCoveredError("the backend lowers no function to calls")


PROMISES = (
    Promise(
        Level.L4,
        "lowered-accesses",
        "calls C functions that access arrays only as stated in `byoc_lower`",
        _check_accesses,
    ),
)
