"""Linking: every call of a program becomes a prebuilt Python call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.errors import CallError, LinkError, near_names
from byoc_core.runtime.devices import Device
from byoc_core.runtime.module import (
    CallTraits,
    ConstantInput,
    NativeEntry,
    NDArray,
    PackedFunction,
    RuntimeModule,
    Signature,
    TensorSpec,
)
from byoc_core.runtime.workspaces import takes_workspace
from byoc_core.vm.device_run import MachineDevices
from byoc_core.vm.device_steps import allocate_step, copy_step, device_step, wait_steps
from byoc_core.vm.frame import Frame
from byoc_core.vm.instructions import Builtin, Call, CallKind, Instruction
from byoc_core.vm.linked_function import LinkedFunction, Record
from byoc_core.vm.permissions import check_permissions
from byoc_core.vm.program import HOST, Program, Register, RegisterKind
from byoc_core.vm.step import Step

__all__ = ["link"]

Extern = PackedFunction | Callable[..., object]


def link(
    program: Program,
    modules: Sequence[RuntimeModule],
    constants: Mapping[str, NDArray],
    externs: Mapping[str, Callable[..., object]],
    *,
    native: bool = True,
    num_threads: int | None = None,
    record: Record | None = None,
    devices: Sequence[Device] = (),
) -> dict[str, LinkedFunction]:
    """Return the functions of a verified program, ready to run, by name.

    A symbol of ``externs`` takes precedence over a module's symbol. With ``native``, native calls run in a single run
    of the C extension if possible. Calls have ``num_threads``, 0 for the number of the process; ``None`` if no call
    uses threads. ``record`` receives the record of each run of a function. ``devices`` has the device of each domain of
    the program.

    Raises:
        ExecutionError: a device cannot hold the constants.
        LinkError: symbols or constants are missing (all are named), two modules define the same symbol, or a function's
            signature does not fit a call of the function, or the function does not permit this kind of call, or has
            its tensors in another domain.
    """
    resolved, owners = _resolve_externs(program, modules, externs)
    check_permissions(program, modules, externs)
    arrays = _resolve_constants(program, constants)
    runtimes = [None if name in externs else owners[name].type_key for name in program.externs]
    on_devices = MachineDevices(program, devices, arrays) if devices else None
    inputs = [ConstantInput(ref.digest, constants[ref.digest]) for ref in program.constants]
    linked = [
        LinkedFunction(program, function, arrays, runtimes, num_threads, record, on_devices)
        for function in program.functions
    ]
    for target in linked:
        _Linker(target, resolved, owners, frozenset(externs), linked, inputs).link(native=native)
    return {target.function.name: target for target in linked}


def _resolve_externs(
    program: Program, modules: Sequence[RuntimeModule], externs: Mapping[str, Callable[..., object]]
) -> tuple[list[Extern], dict[str, RuntimeModule]]:
    """Return the function of each external symbol, and the defining module of each symbol defined by a module."""
    owners: dict[str, RuntimeModule] = {}
    required = frozenset(program.externs).difference(externs)
    for module in modules:
        for name in module.function_names:
            if name in owners and name in required:
                raise LinkError(f"symbol `{name}`", "is defined by two modules", got=f"{owners[name]!r} and {module!r}")
            owners.setdefault(name, module)
    defined = dict.fromkeys((*owners, *externs))
    missing = [name for name in program.externs if name not in defined]
    if missing:
        hints = {name: near_names(name, defined) for name in missing}
        raise LinkError(
            "program",
            f"{len(missing)} external symbols are not defined: {', '.join(missing)}"
            if len(missing) > 1
            else f"external symbol `{missing[0]}` is not defined",
            expected=f"definitions in the executable's modules or in `externs` (found: {', '.join(defined) or 'none'})",
            hint=" ".join(f"{name}: {hint}" for name, hint in hints.items() if hint) or None,
        )
    return [externs[name] if name in externs else owners[name].find_function(name) for name in program.externs], owners


def _resolve_constants(program: Program, constants: Mapping[str, NDArray]) -> list[NDArray]:
    missing = [ref.digest for ref in program.constants if ref.digest not in constants]
    if missing:
        raise LinkError("program", f"{len(missing)} constants are missing: {', '.join(missing)}")
    arrays = []
    for index, ref in enumerate(program.constants):
        array = constants[ref.digest]
        if array.dtype != to_numpy(ref.dtype) or array.shape != ref.shape:
            raise LinkError(
                f"constant {index}",
                "has another type",
                got=f"{array.dtype}{list(array.shape)}",
                expected=f"{ref.dtype}{list(ref.shape)}",
            )
        contiguous = np.ascontiguousarray(array).reshape(ref.shape).view()
        contiguous.flags.writeable = False
        arrays.append(contiguous)
    return arrays


class _Linker:
    """A builder of the steps of a function."""

    def __init__(
        self,
        target: LinkedFunction,
        externs: Sequence[Extern],
        owners: Mapping[str, RuntimeModule],
        replaced: frozenset[str],
        functions: Sequence[LinkedFunction],
        constants: Sequence[ConstantInput],
    ) -> None:
        self._target = target
        self._externs = externs
        self._owners = owners
        self._replaced = replaced
        self._functions = functions
        self._registers = target.program.registers(target.function)
        self._frame = len(self._registers)
        indexes = enumerate(target.function.constants, start=target.first_constant)
        self._constants = {register: constants[index] for register, index in indexes}
        self._found: dict[tuple[int, tuple[int, ...]], Extern] = {}

    def link(self, *, native: bool) -> None:
        code = self._target.function.code
        steps = [
            self._step(index, instruction) if isinstance(instruction, Call) else None
            for index, instruction in enumerate(code)
        ]
        entries = [self._native_entry(index, instruction) for index, instruction in enumerate(code)]
        waits: Sequence[Step | None] = ()
        if self._target.devices is not None:
            waits = wait_steps(self._target.program, self._target.function, self._frame)
        self._target.link(steps, entries, waits, native=native)

    def _native_entry(self, index: int, instruction: Instruction) -> NativeEntry | None:
        """Return the native entry of the called function, if present and if all registers of the call are passed."""
        if not isinstance(instruction, Call) or instruction.kind is not CallKind.EXTERN:
            return None
        function = self._callee(instruction)
        if not isinstance(function, PackedFunction) or function.native is None:
            return None
        outputs, workspace = self._results(index, instruction)
        return function.native if (*outputs, *workspace) == instruction.results else None

    def _step(self, index: int, call: Call) -> Step:
        match call.kind:
            case CallKind.EXTERN:
                outputs, workspace = self._results(index, call)
                function = self._extern(index, call, outputs)
                if isinstance(function, PackedFunction) and function.returns_results:
                    raise LinkError(
                        f"function `{self._target.function.name}`, instruction {index}",
                        f"`{function.name}` returns results instead of filling buffers",
                        expected="a call_packed",
                    )
                implementation = self._implementation(call, function)
                registers = (*call.args, *outputs, *workspace)
                domain = self._target.program.domain_of(call.callee)
                if domain != HOST:
                    is_visible = self._target.program.is_visible(domain)
                    return device_step(implementation, domain, self._frame, registers, index, is_visible=is_visible)
                return Step.of(implementation, registers, index)
            case CallKind.PACKED:
                return Step.of(self._packed(index, call), (self._frame, *call.args), index)
            case CallKind.FUNCTION:
                return Step.of(self._function(call), (self._frame, *call.args, *call.results), index)
            case CallKind.BUILTIN:
                return self._builtin(index, call)

    def _implementation(self, call: Call, function: Extern) -> Callable[..., object]:
        """Return the callable run by a call; a Python function from the user's externs cannot write to its inputs."""
        implementation = function.impl if isinstance(function, PackedFunction) else function
        is_native = isinstance(function, PackedFunction) and function.native is not None
        is_user = self._target.program.externs[call.callee] in self._replaced
        return _with_read_only_inputs(implementation, len(call.args)) if is_user and not is_native else implementation

    def _results(self, index: int, call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return a call's outputs, and the workspace passed to the called function."""
        name = self._target.program.externs[call.callee]
        owner = self._owners.get(name)
        traits = CallTraits() if owner is None else owner.call_traits(name)
        self._check_domain(index, call, traits)
        if owner is None or (traits.workspace_nbytes == 0 and not owner.workspaces_may_differ):
            return call.results, ()
        signature = owner.find_signature(name)
        if signature is None or len(call.results) != len(signature.outputs) + 1:
            return call.results, ()
        where = f"function `{self._target.function.name}`, instruction {index}"
        *tensors, workspace = (self._spec(number) for number in (*call.args, *call.results))
        may_differ = owner.workspaces_may_differ
        is_taken = takes_workspace(where, name, traits, signature, tensors, workspace, may_differ=may_differ)
        # A replacement of a module's function takes no workspace.
        is_passed = is_taken and name not in self._replaced
        return call.results[:-1], call.results[-1:] if is_passed else ()

    def _check_domain(self, index: int, call: Call, traits: CallTraits) -> None:
        """Check the domain of an external function's tensors; a function of the user's externs takes the host's."""
        program = self._target.program
        name = program.externs[call.callee]
        found = None if name in self._replaced else traits.domain
        domain = program.domain_of(call.callee)
        expected = None if domain == HOST else program.domains[domain - 1]
        if found != expected:
            raise LinkError(
                f"function `{self._target.function.name}`, instruction {index}",
                f"the tensors of `{name}` have another memory than stated by the program",
                got=found or "the host's",
                expected=expected or "the host's",
            )

    def _callee(self, call: Call) -> Extern:
        """Return the function of an external call; a module learns the constants among the inputs."""
        name = self._target.program.externs[call.callee]
        constants = {n: self._constants[r] for n, r in enumerate(call.args) if r in self._constants}
        plain = self._externs[call.callee]
        is_on_host = self._target.program.domain_of(call.callee) == HOST
        if not constants or not is_on_host or name in self._replaced or name not in self._owners:
            return plain
        if not isinstance(plain, PackedFunction) or plain.signature is None or not self._fits(call, plain.signature):
            return plain  # a misfit is refused by the check of the signature
        key = call.callee, call.args
        if key not in self._found:
            self._found[key] = self._owners[name].find_for_constants(name, constants)
        return self._found[key]

    def _fits(self, call: Call, signature: Signature) -> bool:
        """Return whether the registers passed to a function have the types of its inputs."""
        if len(call.args) != len(signature.inputs):
            return False
        registers = [self._registers[number] for number in call.args]
        return all(_has_type(register, spec) for register, spec in zip(registers, signature.inputs, strict=True))

    def _extern(self, index: int, call: Call, outputs: Sequence[int]) -> Extern:
        function = self._callee(call)
        if isinstance(function, PackedFunction) and function.signature is not None:
            for role, numbers, specs in (
                ("inputs", call.args, function.signature.inputs),
                ("outputs", outputs, function.signature.outputs),
            ):
                self._check_signature(index, function.name, role, [self._registers[n] for n in numbers], specs)
        return function

    def _check_signature(
        self, index: int, name: str, role: str, registers: Sequence[Register], specs: Sequence[TensorSpec]
    ) -> None:
        where = f"function `{self._target.function.name}`, instruction {index}"
        if len(registers) != len(specs):
            raise LinkError(where, f"wrong number of {role} of `{name}`", got=len(registers), expected=len(specs))
        for register, spec in zip(registers, specs, strict=True):
            if not _has_type(register, spec):
                raise LinkError(
                    where,
                    f"register {register} does not fit `{spec.name}` of the {role} of `{name}`",
                    got=f"{register.dtype}[{', '.join(map(str, register.shape))}]",
                    expected=f"{spec.dtype}[{', '.join(map(str, spec.shape))}]",
                )

    def _spec(self, number: int) -> TensorSpec:
        register = self._registers[number]
        return TensorSpec(str(register), register.dtype, register.shape)

    def _packed(self, index: int, call: Call) -> Callable[..., None]:
        function = self._extern(index, call, call.results)
        owner = self._owners.get(self._target.program.externs[call.callee])
        if owner is not None:
            self._check_domain(index, call, owner.call_traits(self._target.program.externs[call.callee]))
        specs = [self._spec(number) for number in call.results]
        results = call.results
        if isinstance(function, PackedFunction) and not function.returns_results:
            # The function fills buffers, therefore the sizes must be known before.
            for number in results:
                if self._target.binds(number):
                    raise LinkError(
                        f"function `{self._target.function.name}`, instruction {index}",
                        f"`{function.name}` fills buffers and cannot return results of unknown size",
                        expected="a Python callable in externs={...}",
                    )
            implementation = self._implementation(call, function)

            def fill(frame: Frame, *arguments: NDArray) -> None:
                buffers = [frame.allocate(spec) for spec in specs]
                implementation(*arguments, *buffers)
                frame.define(results, specs, buffers)

            return fill
        returning = self._implementation(call, function)

        def take(frame: Frame, *arguments: NDArray) -> None:
            frame.define(results, specs, returning(*arguments), arguments)

        return take

    def _function(self, call: Call) -> Callable[..., None]:
        callee = self._functions[call.callee]
        num_inputs = len(call.args)
        specs = [self._spec(number) for number in call.results]
        results = call.results
        is_dynamic = [self._registers[number].kind is RegisterKind.DYNAMIC for number in results]
        # A result of a size unknown to the callee before the run is returned in a separate array, to be copied.
        is_copied = [not dynamic and not early for dynamic, early in zip(is_dynamic, callee.early_results, strict=True)]
        defined = [position for position, dynamic in enumerate(is_dynamic) if dynamic]

        def run(frame: Frame, *arguments: Any) -> None:
            inputs, sizes = callee.accept(arguments[:num_inputs])
            buffers = arguments[num_inputs:]
            outputs: list[NDArray | None] = [
                None if dynamic or copied else buffer
                for buffer, dynamic, copied in zip(buffers, is_dynamic, is_copied, strict=True)
            ]
            expected = callee.result_types(sizes)
            for output, type_, spec in zip(outputs, expected, specs, strict=True):
                if output is not None and (type_ is None or output.shape != type_[0]):
                    raise CallError(
                        f"register {spec.name}",
                        "has another size than the result",
                        got=list(output.shape),
                        expected=list(type_[0]) if type_ else [],
                    )
            values = callee.run(inputs, outputs, sizes)
            for buffer, value, copied in zip(buffers, values, is_copied, strict=True):
                if copied:
                    _copy(value, buffer)
            if defined:
                frame.define([results[i] for i in defined], [specs[i] for i in defined], [values[i] for i in defined])

        return run

    def _builtin(self, index: int, call: Call) -> Step:
        builtin = Builtin(call.callee)
        if builtin is Builtin.ALLOCATE:
            (number,) = call.results
            spec = self._spec(number)
            domain = self._target.function.domain_of(number)
            if domain != HOST:
                return allocate_step(spec, domain, self._frame, number, index)

            def allocate(frame: Frame) -> None:
                frame.registers[number] = frame.allocate(spec)

            return Step.of(allocate, (self._frame,), index)
        if builtin is Builtin.CLONE:
            specs = [self._spec(number) for number in call.results]

            def clone(frame: Frame, *arrays: NDArray) -> None:
                frame.define(call.results, specs, arrays, arrays)

            return Step.of(clone, (self._frame, *call.args), index)
        if builtin is Builtin.COPY:
            step = copy_step(self._target.program, self._target.function, call, self._frame, index)
            if step is not None:
                return step
            if self._target.function.states:
                return Step.of(_copy_unless_in_place, (*call.args, *call.results), index)
        return Step.of(_BUILTINS[builtin], (*call.args, *call.results), index)


def _has_type(register: Register, spec: TensorSpec) -> bool:
    """Return whether a register has the type of an argument, as far as sizes are numbers."""
    fits = register.dtype == spec.dtype and len(register.shape) == len(spec.shape)
    sizes = zip(register.shape, spec.shape, strict=False)
    return fits and not any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes)


def _with_read_only_inputs(function: Callable[..., object], num_inputs: int) -> Callable[..., object]:
    """Return the function with read-only views as inputs, because the inputs may be the caller's own arrays."""

    def call(*arrays: NDArray) -> object:
        views = [array.view() for array in arrays[:num_inputs]]
        for view in views:
            view.flags.writeable = False
        return function(*views, *arrays[num_inputs:])

    return call


def _copy(source: NDArray, target: NDArray) -> None:
    if source.shape != target.shape:
        raise CallError("copy", "the shapes differ", got=list(source.shape), expected=list(target.shape))
    target[...] = source


def _copy_unless_in_place(source: NDArray, target: NDArray) -> None:
    """Copy, except from a state's old value to the same places of the new value."""
    addresses = [array.__array_interface__["data"][0] for array in (source, target)]
    if addresses[0] != addresses[1] or source.strides != target.strides:
        _copy(source, target)


def _zero(target: NDArray) -> None:
    target[...] = 0


def _increment(target: NDArray) -> None:
    target += 1


def _loop_test(iteration: NDArray, max_trip: NDArray, condition: NDArray, target: NDArray) -> None:
    target[...] = bool(condition) and iteration[()] < max_trip[()]


_BUILTINS: Mapping[Builtin, Callable[..., object]] = {
    Builtin.COPY: _copy,
    Builtin.ZERO: _zero,
    Builtin.INCREMENT: _increment,
    Builtin.LOOP_TEST: _loop_test,
}
