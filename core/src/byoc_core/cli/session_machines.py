"""The machine that a session takes for each function of a model: the option ``--machine`` of commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from byoc_core.artifact import Executable
    from byoc_core.cli.request import RequestFlags

__all__ = ["MachineOption", "find_machines", "machines_to_data", "print_machines"]

MachineOption = Annotated[
    bool,
    typer.Option(
        "--machine",
        help="Name the machine that a session takes, Python's or a native machine, with the reason. Loads the compiled "
        "model, and its native code.",
    ),
]

Machines = Mapping[str, Any]
"""The choice of the machine (:class:`byoc_core.vm.machine_choice.MachineChoice`), by name of the function."""


def find_machines(
    model: Path, flags: RequestFlags | None, max_nodes: int | None = None, *, allow_native: bool = False
) -> Machines:
    """Return the machines for an artifact, or for a model compiled as requested.

    Raises:
        UntrustedCodeError: the artifact holds native code of unknown origin, and ``allow_native`` is false.
        ByocError: the file is neither, or cannot be compiled as requested.
    """
    from byoc_core.artifact import load
    from byoc_core.cli.request import RequestFlags
    from byoc_core.cli.selection import is_artifact, open_executable

    executable = open_executable(model, flags or RequestFlags(), max_nodes, allow_native=allow_native)
    if is_artifact(model):
        return _machines_of(executable)
    with TemporaryDirectory() as folder:  # as in the cache of a session
        path = Path(folder) / "model.byoc"
        executable.save(path)
        return _machines_of(load(path, allow_native=True))


def _machines_of(executable: Executable) -> Machines:
    from byoc_core.vm import VirtualMachine

    machine = VirtualMachine(executable)
    return {name: machine[name].machine for name in machine.functions}


def print_machines(machines: Machines) -> None:
    """Print the machine of each function."""
    from byoc_core.cli.console import print_text

    for name, choice in machines.items():
        print_text(f"machine of function `{name}`: {choice}\n")


def machines_to_data(machines: Machines) -> dict[str, dict[str, str]]:
    """Return the machine of each function as JSON values."""
    return {name: {"name": choice.name, "reason": choice.reason} for name, choice in machines.items()}
