"""Advice by ``byoc compile`` on ops acceptable to a backend of static shapes if given sizes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.artifact import Executable
    from byoc_core.backend import BackendHandle

__all__ = ["advise_sizes"]

_MAX_NAMED = 4


def advise_sizes(executable: Executable, backends: Iterable[BackendHandle]) -> str | None:
    """Return a line pointing to ``--specialize``; ``None`` if no op stays on the host for lack of sizes.

    Args:
        executable: built without sets of sizes.
        backends: the backends asked in the build.
    """
    from byoc_core.dims import shape_symbols
    from byoc_core.printable import to_printable
    from byoc_core.reporting.shares import HOST_NAME, items_of

    reasons = [
        (reason.get("backend"), reason.get("code"))
        for row in items_of(executable.report_data.get("ops"))
        if row.get("outcome") == HOST_NAME
        for reason in items_of(row.get("reasons"))
    ]
    static = [handle.name for handle in backends if not handle.info().dynamic_shapes]
    named = [name for name in static if (name, "dynamic-shape") in reasons]
    specs = [spec for signature in executable.functions.values() for spec in signature.inputs]
    symbols = sorted(shape_symbols(dim for spec in specs for dim in spec.shape))[:_MAX_NAMED]
    if not named or not symbols:
        return None
    options = to_printable(" ".join(f"--specialize {symbol}=1,8" for symbol in symbols))
    verb = "takes" if len(named) == 1 else "take"
    return f"{', '.join(named)} {verb} static shapes only: `{options}` compiles for these sizes, others run on the host"
