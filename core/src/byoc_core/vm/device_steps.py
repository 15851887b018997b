"""Steps of calls on devices, and waits of the host for pending copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from byoc_core.runtime.devices import DeviceTensor
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm.copy_conflicts import copy_conflicts, is_crossing, stream_domain
from byoc_core.vm.frame import Frame
from byoc_core.vm.instructions import Call, Instruction, Ret
from byoc_core.vm.program import HOST, Program, VMFunction
from byoc_core.vm.step import WAIT, Step

__all__ = ["allocate_step", "copy_step", "device_step", "wait_steps"]


def device_step(
    function: Callable[..., object],
    domain: int,
    frame: int,
    registers: tuple[int, ...],
    index: int,
    *,
    is_visible: bool,
) -> Step:
    """Return the step of a call running on a device.

    Args:
        function: called with the stream and the tensors.
        domain: the domain of the tensors.
        frame: the number of the register with the frame.
        registers: the numbers of the tensors.
        index: the number of the instruction.
        is_visible: whether the host uses the memory of the domain in place, as arrays in the registers.
    """

    def run(frame: Frame, *tensors: DeviceTensor) -> None:
        function(frame.run_of_devices.stream(domain, index), *tensors)

    def run_in_place(frame: Frame) -> None:
        run = frame.run_of_devices
        function(run.stream(domain, index), *(run.tensor_of(frame, number) for number in registers))
        run.leave_pending(domain, registers)

    return Step.of(run_in_place, (frame,), index) if is_visible else Step.of(run, (frame, *registers), index)


def allocate_step(spec: TensorSpec, domain: int, frame: int, number: int, index: int) -> Step:
    """Return the step allocating a register of a size known only while the function runs, on a device."""

    def allocate(frame: Frame) -> None:
        shape = frame.shape_of(spec)
        frame.registers[number] = frame.run_of_devices.allocate(domain, number, spec.dtype, shape)

    return Step.of(allocate, (frame,), index)


def copy_step(program: Program, function: VMFunction, call: Call, frame: int, index: int) -> Step | None:
    """Return the step of a copy made by a device; ``None`` if the host makes the copy."""
    (source,), (target,) = call.args, call.results
    domain = stream_domain(program, function, call)

    def copy_in(frame: Frame, array: NDArray, tensor: DeviceTensor) -> None:
        run = frame.run_of_devices
        replacement = run.replacements.get(index)
        if replacement is None:
            run.copy_in(domain, index, source, array, tensor)
        elif replacement.tensor is not None:
            run.copy_within(domain, index, replacement.tensor.part(0, tensor.shape), tensor)

    def copy_out(frame: Frame, tensor: DeviceTensor, array: NDArray) -> None:
        run = frame.run_of_devices
        replacement = run.replacements.get(index)
        if replacement is not None and replacement.tensor is not None:
            run.copy_within(domain, index, tensor, replacement.tensor)
        if replacement is None or replacement.is_additional:
            run.copy_out(domain, index, target, tensor, array)

    def copy_within(frame: Frame) -> None:
        run = frame.run_of_devices
        run.copy_within(domain, index, run.tensor_of(frame, source), run.tensor_of(frame, target))
        if program.is_visible(domain):
            run.leave_pending(domain, (source, target))

    def copy_to_peer(frame: Frame, tensor: DeviceTensor, copy: DeviceTensor) -> None:
        frame.run_of_devices.copy_to_peer(domains, index, tensor, copy)

    if domain == HOST:
        return None
    domains = function.domain_of(source), function.domain_of(target)
    if domains[0] == domains[1]:
        return Step.of(copy_within, (frame,), index)
    if not any(map(program.is_visible, domains)):
        return Step.of(copy_to_peer, (frame, source, target), index)
    return Step.of(copy_in if domain == function.domain_of(target) else copy_out, (frame, source, target), index)


def wait_steps(program: Program, function: VMFunction, frame: int) -> list[Step | None]:
    """Return for each instruction the step waiting for work before the instruction; ``None`` without such work."""
    steps: list[Step | None] = []
    for instruction, conflicts in zip(function.code, copy_conflicts(program, function), strict=True):
        if isinstance(instruction, Ret):
            steps.append(Step.of(_finish_all, (frame,), WAIT))
        elif conflicts:
            is_ordered = _touches_no_array(function, instruction)
            domain = stream_domain(program, function, instruction) if is_ordered else HOST
            steps.append(Step.of(_finish(conflicts, domain), (frame,), WAIT))
        else:
            steps.append(None)
    return steps


def _touches_no_array(function: VMFunction, instruction: Instruction) -> bool:
    """Return whether an instruction of a device only enqueues work, in the order of the earlier work of the device.

    A copy between domains takes an array of the host, which has to hold its value.
    """
    return isinstance(instruction, Call) and not is_crossing(function, instruction)


def _finish(numbers: tuple[int, ...], domain: int) -> Callable[[Any], None]:
    def finish(frame: Frame) -> None:
        frame.run_of_devices.finish(numbers, domain)

    return finish


def _finish_all(frame: Frame) -> None:
    frame.run_of_devices.finish_all()
