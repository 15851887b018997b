"""Commands brought by other distributions: the entry-point group ``byoc.commands``.

::

    [project.entry-points."byoc.commands"]
    frobnicate = "byoc_frobnicator.command:app"

The entry point's name is the name of the command; the referenced object is a ``typer.Typer``. The module is imported if
the command line names the command, or asks for the list of all commands. Heavy imports should therefore wait until the
command runs. A broken command is a line in ``byoc --help`` and ``byoc doctor``, an error when called, and disturbs no
other command.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from byoc_core.cli.own_commands import OwnCommands
from byoc_core.errors import ByocError, PluginError
from byoc_core.printable import to_printable, to_printable_lines

if TYPE_CHECKING:
    from byoc_core.plugin import Catalog, PluginRecord

__all__ = ["COMMANDS_GROUP", "CommandGroup", "find_command_faults"]

COMMANDS_GROUP = "byoc.commands"


class CommandGroup(TyperGroup):
    """The commands of byoc itself, followed by commands of other distributions; byoc's names cannot be taken over."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = OwnCommands()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return byoc's own commands in the order of their table, then the others by name."""
        return [*self.commands, *sorted({record.name for record in _catalog().records} - set(self.commands))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or a stub raising the reason for its absence; ``None`` for an unknown name."""
        return super().get_command(ctx, cmd_name) or _find_command(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; report errors in a command of another distribution as faults of the distribution."""
        try:
            with _printable_usage_errors():
                return super().invoke(ctx)
        except (ByocError, OSError, MemoryError, typer.Abort):
            raise
        except Exception as error:
            record = _catalog().find(str(ctx.invoked_subcommand))
            # Wrong usage and intended exits carry their exit status.
            if hasattr(error, "exit_code") or record is None or record.name in self.commands:
                raise
            hint = f"Report this to the authors of {record.distribution}."
            raise PluginError(record.label, f"raised {type(error).__name__}: {error}", hint=hint) from error


@contextlib.contextmanager
def _printable_usage_errors() -> Iterator[None]:
    """Make the message of a wrong command line printable; the command-line parser prints the message itself."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "exit_code") and isinstance(message := getattr(error, "message", None), str):
            error.__dict__["message"] = to_printable_lines(message)
        raise


def find_command_faults(own: CommandGroup) -> list[PluginRecord]:
    """Return the unusable commands of other distributions, with reasons and remedies. Imports all others."""
    from byoc_core.plugin import PluginState

    faults = []
    for record in _catalog().records:
        if record.name in own.commands:
            reason, remedy = (
                "the name belongs to byoc-core",
                f"Uninstall the distribution: pip uninstall {record.distribution}.",
            )
            faults.append(replace(record, state=PluginState.CLASH, reason=reason, remedy=remedy))
            continue
        with contextlib.suppress(PluginError):
            _load(record.name)
    return [*faults, *(record for record in _catalog().records if record.state is not PluginState.AVAILABLE)]


def _catalog() -> Catalog:
    from byoc_core.plugin import installed

    return installed(COMMANDS_GROUP)


def _find_command(name: str) -> Any:
    from byoc_core.plugin.released import released_distributions

    if _catalog().find(name) is not None:
        try:
            return _load(name)
        except PluginError as error:
            return _new_stub(name, error)
    if home := released_distributions("byoc.commands").get(name):
        absent = PluginError(f"command `{name}`", "is not installed", hint=f"pip install {home}")
        return _new_stub(name, absent, hidden=True)
    return None


def _load(name: str) -> Any:
    """Return the command of another distribution.

    Raises:
        PluginError: the command cannot be used; a quarantine follows.
    """
    catalog = _catalog()
    app = catalog.load(name)
    record = catalog.find(name)
    assert record is not None
    remedy = f"Report this to the authors of {record.distribution}."
    if not isinstance(app, typer.Typer):
        reason = f"`{record.value}` is of type `{type(app).__name__}`, not `typer.Typer`"
        raise catalog.quarantine(record, reason, remedy)
    try:
        command = typer.main.get_command(app)
    except Exception as error:
        reason = f"`{record.value}` is not usable as a command: {type(error).__name__}: {error}"
        raise catalog.quarantine(record, reason, remedy) from error
    command.name = name
    return command


def _new_stub(name: str, error: PluginError, *, hidden: bool = False) -> TyperCommand:
    """Return a command taking any arguments and raising an error."""
    from rich.markup import escape

    def fail() -> NoReturn:
        raise error

    return TyperCommand(
        name,
        callback=fail,
        help=escape(to_printable(error.problem)),
        hidden=hidden,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
