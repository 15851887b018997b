"""The choice of the machine for each function of a program: Python's machine, or a native machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from byoc_core.errors import OptionsError
from byoc_core.vm.instructions import Call, CallKind
from byoc_core.vm.linked_function import LinkedFunction

if TYPE_CHECKING:
    from byoc_core.runtime.native_machines import NativeMachine
    from byoc_core.vm.machine import ExecutableLike

__all__ = [
    "AUTO",
    "MACHINES",
    "NATIVE",
    "PYTHON",
    "VARIABLE",
    "Machine",
    "MachineChoice",
    "choose_machines",
    "requested",
]

Machine = Literal["auto", "python", "native"]
AUTO: Machine = "auto"
PYTHON: Machine = "python"
NATIVE: Machine = "native"
MACHINES: tuple[Machine, ...] = (AUTO, PYTHON, NATIVE)

VARIABLE = "BYOC_MACHINE"
"""The environment variable with the machine; ``native`` here means: where possible."""

_ALIGNMENT = 64
_REQUESTED = "as requested"


@dataclass(frozen=True)
class MachineChoice:
    """The machine that runs a function.

    Attributes:
        name: ``"python"`` or ``"native"``.
        reason: the reason, as a clause.
        program: the artifact, loaded by the native machine; ``None`` for Python's machine.
    """

    name: Machine
    reason: str
    program: Any = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"


@dataclass(frozen=True)
class _Request:
    """A requested machine.

    Attributes:
        machine: the machine.
        is_strict: whether an error is raised if the native machine cannot run a function.
    """

    machine: Machine
    is_strict: bool


def requested(machine: Machine | None) -> _Request:
    """Return the request by an argument, else by the environment.

    Raises:
        OptionsError: there is no such machine.
    """
    name = os.environ.get(VARIABLE) or AUTO if machine is None else machine
    for candidate in MACHINES:
        if name == candidate:
            return _Request(candidate, is_strict=machine is not None)
    where = "machine" if machine is not None else f"environment variable `{VARIABLE}`"
    raise OptionsError(where, "is unknown", got=repr(name), expected=" or ".join(MACHINES))


def choose_machines(
    request: _Request,
    executable: ExecutableLike,
    linked: Mapping[str, LinkedFunction],
    entry_points: Sequence[str],
    *,
    obstacle: str,
) -> dict[str, MachineChoice]:
    """Return the choice for each function; load the artifact by the native machine if a function asks for the machine.

    Args:
        request: the requested machine.
        executable: the program.
        linked: the functions, by name.
        entry_points: the functions called by no other.
        obstacle: a reason against the native machine for all functions; empty without.

    Raises:
        OptionsError: the native machine is asked for, and cannot run an entry point.
    """
    if request.machine == PYTHON:
        return dict.fromkeys(linked, MachineChoice(PYTHON, _REQUESTED))
    obstacles = {name: obstacle or _obstacle(executable, linked[name], request.machine) for name in linked}
    program: Any = ""
    if not all(obstacles.values()):
        machine = _find_machine(executable)
        if request.machine == AUTO and not isinstance(machine, str):
            obstacles = {name: found or _host_obstacle(executable, linked, name) for name, found in obstacles.items()}
        if isinstance(machine, str) or not all(obstacles.values()):
            program = machine if isinstance(machine, str) else _load(machine, executable)
    choices = {
        name: MachineChoice(PYTHON, found or program)
        if found or isinstance(program, str)
        else MachineChoice(NATIVE, _native_reason(linked[name], request.machine), program)
        for name, found in obstacles.items()
    }
    if request.machine == NATIVE and request.is_strict:
        for name in entry_points:
            if choices[name].program is None:
                raise OptionsError("machine", f"function `{name}` cannot run natively: {choices[name].reason}")
    return choices


def _obstacle(executable: ExecutableLike, function: LinkedFunction, machine: Machine) -> str:
    """Return a reason of the program against the native machine for a function; empty without."""
    if executable.program.domains:
        return "the program has memory of devices"
    if machine != AUTO:
        return ""
    if function.function.states:
        return _state_obstacle(function)
    calls = function.call_list
    if calls is not None and calls.is_complete and not calls.has_python_steps:
        return "Python runs no instruction"
    return ""


def _state_obstacle(function: LinkedFunction) -> str:
    """Return a reason of the states against the native machine for a function; empty without."""
    from byoc_core.vm.native_states import find_costly_state, find_unknown_size

    symbol = find_unknown_size(function.function)
    if symbol is not None:
        return f"the shapes of the states do not determine the size `{symbol}`"
    name = find_costly_state(function.program, function.function)
    return "" if name is None else f"each call overwrites the large state `{name}`, and would save the old value"


def _native_reason(function: LinkedFunction, machine: Machine) -> str:
    if machine != AUTO:
        return _REQUESTED
    work = "handle states" if function.function.states else "run instructions"
    return f"Python would {work} in each call"


def _host_obstacle(executable: ExecutableLike, linked: Mapping[str, LinkedFunction], name: str) -> str:
    """Return a reason of the host's ops against the native machine for a function; empty without."""
    from byoc_core.vm.numpy_ops import find_numpy_op

    op = find_numpy_op(executable.modules, sorted(_externs_of(linked, name)))
    return "" if op is None else f"numpy runs `{op}` on the host"


def _externs_of(linked: Mapping[str, LinkedFunction], name: str) -> set[str]:
    """Return the external symbols called by a function and by the functions called inside."""
    names, found, pending = set[str](), {name}, [name]
    while pending:
        function = linked[pending.pop()]
        for call in _calls(function):
            if call.kind in (CallKind.EXTERN, CallKind.PACKED):
                names.add(function.program.externs[call.callee])
            elif call.kind is CallKind.FUNCTION:
                callee = function.program.function_names[call.callee]
                if callee not in found:
                    found.add(callee)
                    pending.append(callee)
    return names


def _calls(function: LinkedFunction) -> Iterator[Call]:
    return (instruction for instruction in function.function.code if isinstance(instruction, Call))


def _find_machine(executable: ExecutableLike) -> NativeMachine | str:
    """Return the native machine, or the reason against any for the executable."""
    artifact = _artifact_of(executable)
    if artifact is None:
        return "the executable is not loaded from an artifact with all constants"
    from byoc_core.runtime.native_machines import native_machines

    machine = native_machines().open()
    if not isinstance(machine, str) and np.frombuffer(artifact, np.uint8).ctypes.data % _ALIGNMENT:
        return "the artifact is not mapped from a file, and its constants would be copied"
    return machine


def _load(machine: NativeMachine, executable: ExecutableLike) -> Any:
    """Return the artifact loaded by the native machine, or the reason for a refusal."""
    artifact = _artifact_of(executable)
    assert artifact is not None
    try:
        return machine.load(artifact, [module.type_key for module in executable.modules])
    except RuntimeError as error:
        return f"{machine.label} refuses the artifact: {error}"


def _artifact_of(executable: ExecutableLike) -> memoryview | None:
    artifact: memoryview | None = getattr(executable, "artifact", None)
    return artifact
