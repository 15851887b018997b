"""Two devices of one memory in one program: a function of each, with a value passed between them."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, replace

from byoc_core import VirtualMachine
from byoc_core.ir import CALL, AttrValue, Function, Var
from byoc_core.runtime.devices import Device, label_of
from byoc_core.transform import evaluate_function

from byoc_conformance.counting_device import CountingDevice
from byoc_conformance.examples import Example, compile_examples
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.device_states import state_pairs
from byoc_conformance.promises.l4_behaviour.devices import devices_of
from byoc_conformance.promises.l4_behaviour.running import agree, copies
from byoc_conformance.subject import Attempt, Subject, call_function

__all__ = ["PROMISES"]

_CALLS = 2


@dataclass(frozen=True)
class _Pipe:
    """A function passing a result of an example's region on device 0 to the same region on device 1.

    Attributes:
        example: the example.
        param: the index of the input of the second region taken from the first.
        result: the index of the result of the first region passed on.
        functions: the function, and the regions on devices 0 and 1, by name.
    """

    example: Example
    param: int
    result: int
    functions: Mapping[str, Function]

    @property
    def name(self) -> str:
        """The name of the function."""
        return f"{self.example.function}_pipe"


def _check_several(subject: Subject, case: str) -> None:
    attempt = compile_examples(subject)
    pipes = [
        pipe
        for example, param, result in state_pairs(subject)
        if (pipe := _pipe_of(attempt, example, param, result)) is not None
    ]
    functions = {name: function for pipe in pipes for name, function in pipe.functions.items()}
    module = attempt.module.with_functions({pipe.name: functions[pipe.name] for pipe in pipes})
    joined = attempt.with_partition(module, functions)
    num_checked = 0
    for pipe in pipes:
        if pipe.name not in joined.failures:
            num_checked += _check_pipe(subject, joined.only([pipe.name]), pipe)
    if not num_checked:
        raise NotCoveredError("no example on a device has an input and a result of one type")


def _pipe_of(attempt: Attempt, example: Example, param: int, result: int) -> _Pipe | None:
    """Return the pipe of an example; ``None`` unless the example is a single region making the result."""
    function, regions = attempt.partitioned[example.function], attempt.regions[example.function]
    if len(regions) != 1 or len(function.bindings) != 1 or function.bindings[0].op is not CALL:
        return None
    (call,), (region,) = function.bindings, regions
    repeated = {value: Var(f"{value.name}_again", value.type) for value in call.results}
    if not all(value in repeated for value in function.results):
        return None
    passed, replaced = function.results[result], function.params[param]
    pipe, first, second = (f"{example.function}_pipe", f"{region.name}_first", f"{region.name}_second")
    operands = tuple(passed if operand is replaced else operand for operand in call.operands)
    if passed not in operands:
        return None
    calls = (
        replace(call, attrs=CALL.normalise_attrs({"callee": first})),
        replace(
            call,
            results=tuple(repeated.values()),
            operands=operands,
            attrs=CALL.normalise_attrs({"callee": second}),
        ),
    )
    results = tuple(repeated[value] for value in function.results if isinstance(value, Var))
    functions = {pipe: replace(function, name=pipe, bindings=calls, results=results)}
    for device, name in enumerate((first, second)):
        placed: dict[str, AttrValue] = {"global_symbol": name, "source": pipe, "device": device}
        functions[name] = replace(region, name=name).with_attrs(**placed)
    return _Pipe(example, param, result, functions)


def _check_pipe(subject: Subject, attempt: Attempt, pipe: _Pipe) -> bool:
    """Run a pipe; return ``False`` if its regions take arrays of the host."""
    program = attempt.executable.program
    devices = _two_devices(subject, program.domains[0].name) if len(program.domains) == 2 else ()
    if len(devices) != 2:
        return False
    machine = VirtualMachine(attempt.executable, devices=dict(zip(program.domain_names, devices, strict=True)))
    example = pipe.example
    before = [(device.work.copies_in, device.work.copies_out) for device in devices]
    for _ in range(_CALLS):
        inputs = list(example.new_inputs())
        passed = evaluate_function(example.module, example.function, inputs)[pipe.result]
        inputs[pipe.param] = passed
        expected = evaluate_function(example.module, example.function, inputs)
        found = copies(call_function(machine, pipe.name, example.new_inputs()))
        when = f"twice, on {label_of(devices[0])} and then on a second device of the same memory"
        agree(subject, example, inputs, found, expected, when)
    num_inputs, num_results = len(example.inputs), len(expected)
    is_direct = program.copies_directly(1, 2) and devices[0].copies_to(devices[1])
    limits = (
        ((num_inputs, 0), (num_inputs - 1, num_results)) if is_direct else ((num_inputs, 1), (num_inputs, num_results))
    )
    if devices[0].work.copies_to_peers != _CALLS * is_direct:
        raise FailedError(
            f"{example.name}: {_CALLS} calls copied {devices[0].work.copies_to_peers} values directly to the second "
            f"device, not {_CALLS * is_direct}"
        )
    for number, (device, (into, out), limit) in enumerate(zip(devices, before, limits, strict=True)):
        copied = device.work.copies_in - into, device.work.copies_out - out
        if copied[0] > _CALLS * limit[0] or copied[1] > _CALLS * limit[1]:
            raise FailedError(
                f"{example.name}: {_CALLS} calls copied {copied[0]} values to device {number} of the program and "
                f"{copied[1]} from this device; at most {_CALLS * limit[0]} and {_CALLS * limit[1]} are needed"
            )
    del machine
    gc.collect()
    for device in devices:
        if device.work.live_buffers or device.work.live_streams:
            raise FailedError(f"{example.name}: buffers or streams of {label_of(device)} outlive the machine")
    return True


def _two_devices(subject: Subject, domain: str) -> tuple[CountingDevice, ...]:
    """Return two devices of a memory; with a single device on this machine, the device stands for both."""
    found: list[Device] = [device for device in devices_of(subject) if device.domain.name == domain]
    return tuple(map(CountingDevice, [*found, *found][:2]))


PROMISES = (
    Promise(
        Level.L4,
        "device-several",
        "runs functions on two devices of one memory in a program, with a value passed from one to the other",
        _check_several,
    ),
)
