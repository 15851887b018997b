"""The command line of nox: whether a run is the run of all default sessions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

__all__ = ["runs_defaults"]

_OPTIONS = ("-s", "-e", "-k", "-t", "-l", "-p", "--session", "--keyword", "--tag", "--list", "--python")
_VARIABLES = ("NOXSESSION", "NOXPYTHON")


def runs_defaults(arguments: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Return whether nox runs the default sessions: no option or environment variable selects or lists sessions."""
    own = itertools.takewhile(lambda argument: argument != "--", arguments)
    return not any(argument.startswith(_OPTIONS) for argument in own) and not any(map(variables.get, _VARIABLES))
