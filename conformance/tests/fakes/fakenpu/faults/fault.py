"""One way to be wrong, as data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

__all__ = ["Change", "Fault"]

Change = Callable[[dict[str, Any]], None]
"""Changes the global names of a half, after it has been imported: functions and classes in it are looked up there."""


@dataclass(frozen=True)
class Fault:
    """One way to be wrong.

    Attributes:
        caught_by: the names of the promises (``"L4-strided-inputs"``) that are broken, in every run of the kit.
        also: promises that may be broken besides, since their tests compute with what is wrong: names, or patterns
            as shells have them. No other promise is broken.
        compile_half: how the compile half is broken.
        run_half: how the run half is broken.
        metadata: what the distribution declares otherwise, as arguments of ``install_fakenpu``.
    """

    caught_by: frozenset[str]
    compile_half: Change | None = None
    run_half: Change | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    also: frozenset[str] = frozenset()

    def is_caught_by(self, broken: Collection[str]) -> bool:
        """Return whether promises that are broken are those that this fault breaks."""
        rest = set(broken) - self.caught_by
        return self.caught_by <= set(broken) and all(any(fnmatch(name, also) for also in self.also) for name in rest)
