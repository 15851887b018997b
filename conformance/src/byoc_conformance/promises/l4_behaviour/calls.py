"""Consecutive calls, and instances beside each other.

No result depends on earlier calls or on other instances, and compiled modules are freed after the last use.
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
from byoc_core.ir import Constant, ConstantStore, IRModule

from byoc_conformance.examples import Example, compile_examples
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.running import (
    agree,
    compile_own,
    copies,
    difference,
    other_inputs,
    require_examples,
    run,
    same_bytes,
)
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_NUM_DROPPED = 6


def _check_stateless(subject: Subject, case: str) -> None:
    examples = require_examples(subject)
    machine, apart = compile_examples(subject).vm, compile_own(subject, examples)[0].vm
    for example in examples:
        other = other_inputs(example)
        expected, expected_other = run(machine, example), run(apart, example, copies(other))
        agree(
            subject, example, other, run(machine, example, copies(other)), expected_other, "called after other inputs"
        )
        agree(subject, example, example.inputs, run(machine, example), expected, "called again after other inputs")
        buffers = example.new_inputs()
        run(machine, example, buffers)
        for buffer, array in zip(buffers, other, strict=True):
            buffer[...] = array
        agree(
            subject,
            example,
            other,
            run(machine, example, buffers),
            expected_other,
            "called with other numbers in the same input arrays",
        )


def _check_independent(subject: Subject, case: str) -> None:
    examples = require_examples(subject)
    first = compile_own(subject, examples)[0].vm
    expected = {example: run(first, example) for example in examples}

    def agree_again(when: str) -> None:
        for example in examples:
            agree(subject, example, example.inputs, run(first, example), expected[example], when)

    twins = {example: twin for example in examples if (twin := _with_other_constants(example)) is not None}
    attempt, claimed = compile_own(subject, [twins.get(example, example) for example in examples])
    second = attempt.vm
    agree_again("called while another instance exists")
    for example, twin in twins.items():
        if twin in claimed:
            found = run(second, twin)
            if same_bytes(found, expected[example]) and difference(subject, twin, twin.inputs, found, twin.expected()):
                raise FailedError(
                    f"{example.name}: compiled with other constants, the function gives the same results as before"
                )
            agree(
                subject,
                example,
                example.inputs,
                run(first, example),
                expected[example],
                "called after another instance",
            )
    del second, attempt
    gc.collect()
    agree_again("called after another instance was freed")


def _with_other_constants(example: Example) -> Example | None:
    """Return the example with the elements of constants reordered, under the same name; ``None`` without constants."""
    old = example.module[example.function]
    store = ConstantStore()
    found = False
    bindings = []
    for binding in old.bindings:
        operands = []
        for operand in binding.operands:
            if isinstance(operand, Constant):
                array = example.module.constants[operand.digest]
                rolled = np.roll(array.reshape(-1), 1).reshape(array.shape)
                found = found or not same_bytes([rolled], [array])
                operand = store.add(rolled)
            operands.append(operand)
        bindings.append(replace(binding, operands=tuple(operands)))
    function = replace(old, bindings=tuple(bindings))
    return replace(example, module=IRModule({example.function: function}, store)) if found else None


def _check_freed(subject: Subject, case: str) -> None:
    example = require_examples(subject)[0]
    alive: list[weakref.ref[object]] = []
    for _ in range(_NUM_DROPPED):
        attempt = compile_own(subject, [example])[0]
        run(attempt.vm, example)
        try:
            alive += [weakref.ref(module) for module in attempt.executable.modules]
        except TypeError as error:
            raise NotCoveredError(f"the freeing of modules cannot be observed: {error}") from error
        del attempt
    gc.collect()
    left = {id(module) for reference in alive if (module := reference()) is not None}
    if len(left) >= _NUM_DROPPED:
        raise FailedError(f"{len(left)} modules are still in memory after {_NUM_DROPPED} compilations and the last use")


PROMISES = (
    Promise(
        Level.L4,
        "stateless",
        "gives the same results for the same inputs, regardless of earlier calls",
        _check_stateless,
    ),
    Promise(
        Level.L4,
        "independent-instances",
        "keeps separately compiled instances apart, even with other constants under the same name",
        _check_independent,
    ),
    Promise(Level.L4, "freed-when-dropped", "frees modules after the last use", _check_freed),
)
