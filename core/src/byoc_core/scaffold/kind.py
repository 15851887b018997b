"""The kinds of backend that can be written."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Kind"]


class Kind(StrEnum):
    """How a new backend hands over what it compiles; the value names its folder of templates."""

    GRAPH = "graph"
    """As a graph document, which an engine of its own runs: for libraries and devices."""
    CSOURCE = "csource"
    """As C, which the system's compiler builds and the core runs."""

    @property
    def first_file(self) -> str:
        """The module that an author changes first."""
        return {Kind.GRAPH: "engine.py", Kind.CSOURCE: "codegen.py"}[self]
