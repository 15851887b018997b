"""A backend's pattern with its name, its check and its rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from byoc_core.errors import PatternError
from byoc_core.pattern.language import Pattern
from byoc_core.pattern.match import Match
from byoc_core.pattern.verdict import Rejection

__all__ = ["CompositePattern"]


@dataclass(frozen=True, eq=False, slots=True)
class CompositePattern:
    """A group of ops that a backend takes as one.

    Attributes:
        name: ``<backend>.<what>``, e.g. ``"mynpu.conv2d_relu"``.
        pattern: what to match.
        check: looks at a match and refuses it with a reason, or gives ``None``.
        priority: higher goes first; the whole order is that of
            :attr:`byoc_core.partitioning.claiming.selection.Candidate.rank`.
        leaked: what becomes of a match whose inner value is read elsewhere: ``"decline"`` it, or ``"return"`` the value
            as one more result of the composite, behind those of the last op.
    """

    name: str
    pattern: Pattern
    check: Callable[[Match], Rejection | None] | None = None
    priority: int = 0
    leaked: Literal["decline", "return"] = "decline"

    def __post_init__(self) -> None:
        backend, dot, what = self.name.partition(".")
        if not (backend and dot and what):
            raise PatternError(
                f"composite pattern `{self.name}`", "has a malformed name", expected="`<backend>.<what>`"
            )

    @property
    def backend(self) -> str:
        """The backend it belongs to."""
        return self.name.partition(".")[0]
