"""The number of threads allowed for a call."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from byoc_core import VirtualMachine
from byoc_core.errors import ByocError
from byoc_core.ir import ConstantStore, Function, IRModule
from byoc_core.ops.cases import OpCase, array_of, case, new_function

from byoc_conformance.drawing import generator_of
from byoc_conformance.examples import Array
from byoc_conformance.outcome import FailedError, NotCoveredError, Outcome
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.running import copies, same_bytes
from byoc_conformance.subject import Attempt, Subject, call_function, call_unchanging

__all__ = ["PROMISES"]

_LARGE: tuple[OpCase, ...] = (
    case("matmul", (384, 384), (384, 384)),
    case("nn.dense", (384, 384), (384, 384)),
    case("nn.conv2d", (1, 32, 56, 56), (32, 32, 3, 3), padding=(1, 1)),
    case("exp", (1024, 512)),
    case("add", (2048, 1024), (2048, 1024)),
    case("nn.relu", (2048, 1024)),
    case("nn.softmax", (1024, 512)),
    case("nn.layer_norm", (1024, 512), (512,), (512,)),
    case("sum", (2048, 1024), axis=(1,)),
    case("permute_dims", (1024, 1024), axes=(1, 0)),
    case("nn.max_pool2d", (1, 64, 112, 112), pool_size=(3, 3), strides=(2, 2)),
    case("sort", (256, 2048), axis=1),
    case("cumsum", (256, 2048), axis=1),
    case("nn.attention", *[(1, 8, 160, 32)] * 3),
)
"""Calls large enough for several threads: about a millisecond of work."""
_MEASURED_SECONDS = 0.05
_MAX_CALLS = 200
_NUMBERS = (2, 3, 4)
_ROUNDS = 3
_MAX_SHARE = 0.25
"""The allowed time of other threads, as a share of the caller's time: other threads wake up, look, and sleep again.
Single-threaded backends were measured at 0.00 of the caller's time, backends with a second thread at 0.38 and more.
"""


@dataclass(frozen=True, slots=True)
class _ProcessorSeconds:
    """The processor time of some calls, in seconds: of the calling thread, and of all others."""

    own: float
    other_threads: float


def _check_thread_limit(subject: Subject, case: str) -> Outcome:
    attempt, inputs = _compile_large(subject)
    modules = attempt.executable.modules
    if any(module.call_traits(name).domain for module in modules for name in module.function_names):
        raise NotCoveredError("the functions run on a device: the threads of its driver are not those of a call")
    machine = VirtualMachine(attempt.executable, num_threads=1)
    texts = []
    for name, arrays in inputs.items():
        use = _measure(machine, name, arrays)
        if use.other_threads > _MAX_SHARE * use.own:
            # Threads starting or ending just now are not part of this call.
            use = _measure(machine, name, arrays)
        if use.other_threads > _MAX_SHARE * use.own:
            texts.append(
                f"{name}, called with `num_threads=1`: other threads computed for {use.other_threads / use.own:.2f} "
                "times as long as the calling thread"
            )
    if texts:
        raise FailedError("\n".join(texts))
    return Outcome(text=f"{len(inputs)} large calls in one thread each")


def _check_thread_numbers(subject: Subject, case: str) -> Outcome:
    attempt, inputs = _compile_large(subject)
    alone = VirtualMachine(attempt.executable, num_threads=1)
    for number in _NUMBERS:
        machine = VirtualMachine(attempt.executable, num_threads=number)
        for name, arrays in inputs.items():
            expected = copies(call_function(alone, name, arrays))
            for _ in range(_ROUNDS):
                found = call_unchanging(machine, name, arrays)
                text = "" if same_bytes(found, expected) else subject.judge(attempt.module, name, arrays, found).text
                if text:
                    raise FailedError(f"{name}, called with `num_threads={number}`: {text}")
    return Outcome(text=f"{len(inputs)} large calls, on up to {max(_NUMBERS)} threads")


@cache
def _compile_large(subject: Subject) -> tuple[Attempt, Mapping[str, list[Array]]]:
    """Return the compiled large cases, and inputs of the cases claimed by the subject.

    Raises:
        NotCoveredError: no case is claimed, or every call fails.
    """
    functions = dict(_functions(subject))
    attempt = subject.attempt(IRModule({name: function for name, (function, _) in functions.items()}, ConstantStore()))
    claimed = {
        name: inputs
        for name, (_, inputs) in functions.items()
        if attempt.is_claimed(name) and name not in attempt.failures
    }
    if not claimed:
        raise NotCoveredError("the backend claims none of the large cases")
    for name, inputs in list(claimed.items()):
        try:
            call_function(attempt.vm, name, inputs)
        except ByocError:  # level 2 reports failing calls
            del claimed[name]
    if not claimed:
        raise NotCoveredError("every call of a large case fails")
    return attempt, claimed


def _functions(subject: Subject) -> Iterator[tuple[str, tuple[Function, list[Array]]]]:
    for item in _LARGE:
        name = f"large_{item.op.replace('.', '_')}"
        function, _ = new_function(subject.ops[item.op], item.types(), item.attrs, name)
        generator = generator_of(subject.spec.seed, name)
        yield name, (function, [array_of(type_, generator) for type_ in item.types()])


def _measure(machine: VirtualMachine, name: str, inputs: list[Array]) -> _ProcessorSeconds:
    """Return the processor time of calls, repeated until the time is long enough for measuring."""
    call_function(machine, name, inputs)
    process, thread = time.process_time(), time.thread_time()
    for _ in range(_MAX_CALLS):
        call_function(machine, name, inputs)
        own = time.thread_time() - thread
        if own >= _MEASURED_SECONDS:
            break
    own = time.thread_time() - thread
    return _ProcessorSeconds(own, max(0.0, time.process_time() - process - own))


PROMISES = (
    Promise(
        Level.L4,
        "thread-limit",
        "computes on no more threads than allowed for the call",
        _check_thread_limit,
    ),
    Promise(
        Level.L4,
        "thread-numbers",
        "gives the same results on several threads as on a single thread, in large calls",
        _check_thread_numbers,
    ),
)
