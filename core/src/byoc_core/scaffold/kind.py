"""The kinds of backend that can be written."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Kind"]


class Kind(StrEnum):
    """How a new backend hands over what it compiles; the value names the folder of its own templates."""

    GRAPH = "graph"
    """As a graph document, whose ops kernels of its own run one by one: for libraries of functions over arrays."""
    ENGINE = "engine"
    """As a graph document, which a library compiles as a whole: for libraries and devices that take graphs."""
    CSOURCE = "csource"
    """As C, which the system's compiler builds and the core runs."""

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of its templates, in order; a later one has what is its own."""
        return ("common", *(("document",) if self is not Kind.CSOURCE else ()), self.value)

    @property
    def first_file(self) -> str:
        """The module that an author changes first."""
        return {Kind.GRAPH: "engine.py", Kind.ENGINE: "library.py", Kind.CSOURCE: "codegen.py"}[self]
