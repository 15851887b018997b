"""States in the memory of a device: updated from call to call without a copy to or from the host."""

from __future__ import annotations

import gc
from collections.abc import Iterator

from byoc_core import VirtualMachine
from byoc_core.runtime.devices import Device
from byoc_core.transform import KeepStates, evaluate_function
from byoc_core.vm.state import State

from byoc_conformance.counting_device import CountingDevice
from byoc_conformance.examples import Example
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.devices import devices_of
from byoc_conformance.promises.l4_behaviour.running import agree, copies, require_examples, same_bytes
from byoc_conformance.subject import Attempt, Subject, call_function

__all__ = ["PROMISES", "state_pairs"]

_STEPS = 3


def state_pairs(subject: Subject) -> Iterator[tuple[Example, int, int]]:
    """Yield examples with the indexes of an input and a result of one type, fit to be a state."""
    for example in require_examples(subject):
        function = example.module[example.function]
        if example.kind == "symbolic":
            continue
        for number, result in enumerate(function.results):
            params = [index for index, param in enumerate(function.params) if param.type == result.type]
            if params:
                yield example, params[0], number
                break


def _check_states(subject: Subject, case: str) -> None:
    device = devices_of(subject)[0]
    num_checked = 0
    for example, param, result in state_pairs(subject):
        function = example.module[example.function]
        pair = function.input_names[param], function.output_names[result]
        attempt = subject.attempt(KeepStates((pair,), example.function)(example.module))
        if example.function in attempt.failures or len(attempt.regions[example.function]) != 1:
            continue
        (summary,) = attempt.executable.states[example.function]
        if summary.domain == device.domain.name:
            _check_example(subject, attempt, device, example, param, result)
            num_checked += 1
    if not num_checked:
        raise NotCoveredError("no example on a device has an input and a result of one type")


def _check_example(
    subject: Subject,
    attempt: Attempt,
    device: Device,
    example: Example,
    param: int,
    result: int,
) -> None:
    counting = CountingDevice(device)
    machine = VirtualMachine(attempt.executable, devices={device.domain.name: counting})
    state = machine.state(example.function)
    _check_steps(subject, machine, state, counting, example, param, result)
    del machine, state
    gc.collect()
    work = counting.work
    if work.live_buffers or work.live_streams:
        raise FailedError(
            f"{example.name}: {work.live_buffers} buffers and {work.live_streams} streams of the device outlive the "
            "machine and its state"
        )


def _check_steps(
    subject: Subject,
    machine: VirtualMachine,
    state: State,
    counting: CountingDevice,
    example: Example,
    param: int,
    result: int,
) -> None:
    """Compare each call with the reference kernels on the same values, and count copies."""
    (name,) = state.names
    inputs = [array for index, array in enumerate(example.new_inputs()) if index != param]
    num_results = len(example.module[example.function].results)
    call_function(machine, example.function, inputs)
    for step in range(_STEPS):
        before = [*example.new_inputs()]
        before[param] = state[name]
        expected = evaluate_function(example.module, example.function, before)
        counted = counting.work.copies_in, counting.work.copies_out
        found = [*copies(call_function(machine, example.function, inputs))]
        changes = counting.work.copies_in - counted[0], counting.work.copies_out - counted[1]
        found.insert(result, state[name])
        agree(subject, example, before, tuple(found), expected, f"with a state on the device, step {step}")
        if changes[0] > len(inputs) or changes[1] > num_results - 1:
            raise FailedError(
                f"{example.name}: a call copied {changes[0]} values to the device and {changes[1]} from the device, "
                f"with {len(inputs)} inputs and {num_results - 1} results besides the state"
            )
    twin = state.fork()
    if not same_bytes([twin[name]], [state[name]]):
        raise FailedError(f"{example.name}: a fork of the state on the device has another value")


PROMISES = (
    Promise(
        Level.L4,
        "device-states",
        "updates a state in the memory of a device from call to call, without a copy to or from the host",
        _check_states,
    ),
)
