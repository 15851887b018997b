"""Protection against plugins ending a command with the status of success."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["exits_raise"]


@contextmanager
def exits_raise() -> Iterator[None]:
    """Make ``os._exit`` raise ``SystemExit`` in this process while a command runs.

    A plugin calling ``os._exit(0)`` would end ``byoc compile`` with status 0 and no artifact. ``SystemExit`` in a
    plugin's module or hook is a failure of the plugin, named in an error. Forked children keep ``os._exit``. Machine
    code ending the process itself is out of reach.
    """
    leave, command = os._exit, os.getpid()

    def raise_or_leave(status: int) -> NoReturn:
        if os.getpid() == command:
            raise SystemExit(status)
        leave(status)

    os._exit = raise_or_leave
    try:
        yield
    finally:
        os._exit = leave
