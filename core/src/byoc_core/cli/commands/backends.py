"""``byoc backends``: the plugins and their abilities on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.plugin import PluginRecord
    from byoc_core.runtime.status import Status

__all__ = ["list_backends"]


def list_backends() -> None:
    """List the installed backends, runtimes and ONNX importers, and their abilities on this machine.

    Asks each plugin in a separate process: no plugin's fault stops the list.
    """
    from byoc_core.cli.console import new_table, open_console
    from byoc_core.cli.plugin_status import PluginExaminer
    from byoc_core.plugin import BACKENDS_GROUP, IMPORTERS_GROUP, RUNTIMES_GROUP, installed

    console = open_console()
    columns = ("name", "distribution", "version", "state")
    compilers = new_table("Backends", *columns, "can compile", "reason")
    runners = new_table("Runtimes", *columns, "can run", "reason")
    readers = new_table("Importers", *columns, "can import", "reason")
    tables = {BACKENDS_GROUP: compilers, RUNTIMES_GROUP: runners, IMPORTERS_GROUP: readers}
    with PluginExaminer() as examiner:
        for group, table in tables.items():
            for record in installed(group).records:
                table.add_row(*_cells(*examiner.ask(record)))
    console.print(compilers)
    console.print(runners)
    if readers.row_count:
        console.print(readers)


def _cells(record: PluginRecord, status: Status | None) -> tuple[str, ...]:
    if status is None:
        answer, reason = "no", f"{record.reason}. {record.remedy}" if record.remedy else record.reason
    else:
        answer = "yes" if status.ok else "no"
        reason = f"{status.reason}. {status.remedy}" if status.remedy else status.reason
    return record.name, record.distribution, record.version, str(record.state), answer, reason
