"""Status requests to plugins about this machine, made in a separate process.

The listing survives any behaviour of a plugin's code on import or request (printing, ending the process, never
returning), and reports the failure.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from byoc_core.errors import ByocError
from byoc_core.isolation import Ended, Worker, serve
from byoc_core.plugin import BACKENDS_GROUP, IMPORTERS_GROUP, RUNTIMES_GROUP, PluginRecord, PluginState
from byoc_core.runtime.status import Status

if TYPE_CHECKING:
    from byoc_core.backend.registry import Backends
    from byoc_core.frontend.importers import Importers
    from byoc_core.runtime.registry import Runtimes

__all__ = ["PluginExaminer", "main"]

PATIENCE = 60.0
"""The time limit for importing a plugin and getting its answer, in seconds."""


class PluginExaminer:
    """A process asking plugins, one after another; restarted after an exit or a timeout."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="byoc-plugins-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._folder.cleanup()

    def ask(self, record: PluginRecord) -> tuple[PluginRecord, Status | None]:
        """Return a plugin's record after the import of its code, and the plugin's answer.

        Args:
            record: of a plugin installed for this process.

        Returns:
            The record with its present state, and the answer; ``None`` for the answer of an unusable plugin. A failing
            hook counts as the answer no, with the failure as the reason.
        """
        if record.state is not PluginState.AVAILABLE:
            return record, None
        if self._worker is None:
            entry = "byoc_core.cli.plugin_status:main"
            self._worker = Worker(entry, {}, Path(self._folder.name) / "stderr.txt")
        reply = self._worker.ask({"group": record.group, "name": record.name}, PATIENCE)
        if isinstance(reply, Ended):
            self._stop()
            return _broken(record, f"during import or the status query: {reply.text.splitlines()[0]}"), None
        if "fault" in reply:
            return _broken(record, reply["fault"]), None
        status = reply["status"]
        present = replace(record, state=PluginState(reply["state"]), reason=reply["reason"], remedy=reply["remedy"])
        return present, None if status is None else Status(**status)

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None


def main(setup: Mapping[str, Any]) -> None:
    """Answer for plugins in the inner process."""
    from byoc_core.backend.registry import backends
    from byoc_core.frontend.importers import importers
    from byoc_core.runtime.registry import runtimes

    registries: dict[str, Backends | Runtimes | Importers] = {
        BACKENDS_GROUP: backends(),
        RUNTIMES_GROUP: runtimes(),
        IMPORTERS_GROUP: importers(),
    }
    serve(lambda: lambda request: _answer(registries[request["group"]], str(request["name"])))


def _answer(registry: Backends | Runtimes | Importers, name: str) -> Mapping[str, object]:
    try:
        record, status = _ask(registry, name)
    except KeyboardInterrupt:  # this process has no user to interrupt it
        return {"fault": "the import or the status query raised KeyboardInterrupt"}
    answer = None if status is None else asdict(status)
    return {"state": record.state, "reason": record.reason, "remedy": record.remedy, "status": answer}


def _ask(registry: Backends | Runtimes | Importers, name: str) -> tuple[PluginRecord, Status | None]:
    record = registry.catalog.find(name)
    assert record is not None
    try:
        handle = registry.get(name)
    except ByocError:
        return registry.catalog.find(name) or record, None
    try:
        return record, handle.compile_status() if hasattr(handle, "compile_status") else handle.status()
    except ByocError as error:
        return record, Status(False, str(error))


def _broken(record: PluginRecord, reason: str) -> PluginRecord:
    remedy = f"Report this to the authors of {record.distribution}"
    if record.group == BACKENDS_GROUP:
        remedy += f"; until then, set BYOC_DISABLE_BACKENDS={record.name}"
    return replace(record, state=PluginState.BROKEN, reason=reason, remedy=f"{remedy}.")
