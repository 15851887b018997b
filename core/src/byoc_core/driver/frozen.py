"""Finds the plugin that changed frozen IR in place, before its changes are told as a fault of byoc."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from byoc_core.backend import BackendHandle
from byoc_core.errors import PluginError
from byoc_core.ir import IRModule
from byoc_core.ir.snapshot import Snapshot

__all__ = ["keep_frozen"]


@contextmanager
def keep_frozen(module: IRModule, handles: Sequence[BackendHandle], hook: str = "") -> Iterator[None]:
    """Check that a module is the same after hooks of these backends have run.

    Args:
        module: the module that the hooks see.
        handles: the backends whose hooks run.
        hook: the hook that runs, where it is one.

    Raises:
        PluginError: a part of the module is another one; whatever else went wrong is its cause. No refusal of the
            backend helps: the module that other backends would get is spoilt.
    """
    snapshot = Snapshot(module)
    try:
        yield
    except Exception as error:
        if not snapshot.is_current():
            raise _blame(handles, hook) from error
        raise
    if not snapshot.is_current():
        raise _blame(handles, hook)


def _blame(handles: Sequence[BackendHandle], hook: str) -> PluginError:
    labels = [handle.where(hook) if hook else handle.record.label for handle in handles]
    names = ", ".join(handle.record.distribution or handle.name for handle in handles)
    return PluginError(
        " or ".join(labels),
        "changed a module in place",
        hint=f"IR is frozen: a hook returns new objects. This is a fault of {names}, not of byoc-core.",
    )
