"""The command line of nox: whether a run is the run of all default sessions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

__all__ = ["runs_defaults"]

_SELECTING = ("-s", "-e", "-k", "-t", "-l", "--session", "--keyword", "--tag", "--list")


def runs_defaults(arguments: Sequence[str]) -> bool:
    """Return whether a command line of nox runs the default sessions: no option selects or lists sessions."""
    own = itertools.takewhile(lambda argument: argument != "--", arguments)
    return not any(argument.startswith(_SELECTING) for argument in own)
