"""A backend's pattern with name, check and rank."""

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
    """A group of ops taken by a backend as a unit.

    Attributes:
        name: ``<backend>.<what>``, e.g. ``"mynpu.conv2d_relu"``.
        pattern: the pattern to match.
        check: examines a match and returns a rejection with a reason, or ``None``.
        priority: higher goes first; for the whole order see
            :attr:`byoc_core.partitioning.claiming.selection.Candidate.rank`.
        leaked: the handling of a match with an inner value read elsewhere: ``"decline"`` the match, or ``"return"`` the
            value as a further result of the composite, after the results of the last op.
    """

    name: str
    pattern: Pattern
    check: Callable[[Match], Rejection | None] | None = None
    priority: int = 0
    leaked: Literal["decline", "return"] = "decline"

    def __post_init__(self) -> None:
        backend, dot, own_name = self.name.partition(".")
        if not (backend and dot and own_name):
            raise PatternError(
                f"composite pattern `{self.name}`", "has a malformed name", expected="`<backend>.<what>`"
            )

    @property
    def backend(self) -> str:
        """The name of the composite's backend."""
        return self.name.partition(".")[0]
