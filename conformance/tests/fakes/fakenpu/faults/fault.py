"""A fault as data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

__all__ = ["Change", "Fault"]

Change = Callable[[dict[str, Any]], None]
"""A change of a half's global names, after import: the half's functions and classes are looked up there."""


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        caught_by: the names of the broken promises (``"L4-strided-inputs"``), in every run of the kit.
        also: promises possibly broken besides, because their tests use the faulty part: names, or patterns as in
            shells. No other promise is broken.
        compile_half: the change of the compile half.
        run_half: the change of the run half.
        metadata: changed declarations of the distribution, as arguments of ``install_fakenpu``.
    """

    caught_by: frozenset[str]
    compile_half: Change | None = None
    run_half: Change | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    also: frozenset[str] = frozenset()

    def is_caught_by(self, broken: Collection[str]) -> bool:
        """Return whether the broken promises are the promises of this fault."""
        rest = set(broken) - self.caught_by
        return self.caught_by <= set(broken) and all(any(fnmatch(name, also) for also in self.also) for name in rest)
