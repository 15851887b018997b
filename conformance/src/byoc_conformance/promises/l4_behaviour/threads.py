"""Several concurrent threads in the same module."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from byoc_core import VirtualMachine

from byoc_conformance.examples import Array, Example
from byoc_conformance.outcome import DeclinedError, FailedError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.buffers import watched_calls
from byoc_conformance.promises.l4_behaviour.running import (
    Results,
    compile_own,
    copies,
    difference,
    other_inputs,
    require_examples,
    run,
    same_bytes,
    widen,
)
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_NUM_THREADS = 4
_ROUNDS = 25
_MAX_DIVERGENT = 12
"""The number of divergent calls of an example to be examined closely."""
_SWITCH_SECONDS = 1e-6
"""Python's switch interval between threads: short, for more interleavings."""


@dataclass(frozen=True, eq=False, slots=True)
class DivergentCall:
    """A call with results of other bits than the same call alone.

    Attributes:
        example: the called example.
        inputs: the inputs of the call.
        found: the results of the call; empty after an error.
        expected: the results of the same call alone.
        error: the error raised by the call.
    """

    example: Example
    inputs: Sequence[Array]
    found: Results
    expected: Results
    error: str = ""


@cache
def _divergent_calls(subject: Subject) -> tuple[DivergentCall, ...]:
    """Return the calls with other results among threads than alone: the first call of a module, and many more."""
    examples = require_examples(subject)
    fresh = compile_own(subject, examples)[0].vm
    wide = widen(subject, examples)
    alone, claimed = compile_own(subject, [*examples, *wide])
    calls = [(e, [other_inputs(e, steps) for steps in range(_NUM_THREADS)]) for e in claimed]
    expected = {e: [run(alone.vm, e, copies(inputs)) for inputs in input_lists] for e, input_lists in calls}
    found: list[DivergentCall] = []
    for example, input_lists in calls:
        if example in examples:  # the module has not run yet
            found += _race(fresh, example, input_lists, expected[example], 1)
        found += _race(alone.vm, example, input_lists, expected[example], _ROUNDS)
    return tuple(found)


def _race(
    machine: VirtualMachine,
    example: Example,
    input_lists: Sequence[Sequence[Array]],
    expected: Sequence[Results],
    rounds: int,
) -> list[DivergentCall]:
    """Call an example from several threads, each with separate inputs, and return divergent calls."""
    found: list[DivergentCall] = []
    start = threading.Barrier(len(input_lists))

    def work(inputs: Sequence[Array], reference: Results) -> None:
        for _ in range(rounds):
            start.wait()
            try:
                results = run(machine, example, copies(inputs))
            except Exception as error:  # noqa: BLE001 - the plugin border: any error of a backend's code is its fault
                found.append(DivergentCall(example, inputs, (), reference, f"{type(error).__name__}: {error}"))
                continue
            if not same_bytes(results, reference) and len(found) < _MAX_DIVERGENT:
                found.append(DivergentCall(example, inputs, results, reference))

    with _frequent_switches():
        threads = [
            threading.Thread(target=work, args=pair, daemon=True) for pair in zip(input_lists, expected, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found


@contextmanager
def _frequent_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def _check_re_entrant(subject: Subject, case: str) -> None:
    for call in _divergent_calls(subject):
        text = call.error or difference(subject, call.example, call.inputs, call.found, call.expected)
        if text:
            raise FailedError(f"{call.example.name}, called by {_NUM_THREADS} threads at once: {text}")


def _check_deterministic(subject: Subject, case: str) -> None:
    if not subject.info.deterministic:
        raise DeclinedError("the backend declares `deterministic=False`")
    texts = [text for code, text in watched_calls(subject) if code == "not-deterministic"]
    texts += [
        f"{call.example.name}: other bits in calls from {_NUM_THREADS} threads"
        for call in _divergent_calls(subject)
        if not call.error and not difference(subject, call.example, call.inputs, call.found, call.expected)
    ]
    if texts:
        raise FailedError(texts[0])


PROMISES = (
    Promise(
        Level.L4,
        "re-entrant",
        "gives the same results in concurrent calls of a module as in a single thread",
        _check_re_entrant,
    ),
    Promise(
        Level.L4,
        "deterministic",
        "gives the same bits for the same inputs, if declared deterministic",
        _check_deterministic,
    ),
)
