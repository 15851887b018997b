"""The kinds of generated backends."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Kind"]


class Kind(StrEnum):
    """The form in which a new backend delivers compiled code; the value names the folder of its own templates."""

    GRAPH = "graph"
    """A graph document; the backend's own kernels run the ops one by one: for libraries of functions over arrays."""
    ENGINE = "engine"
    """A graph document, compiled as a whole by a library: for libraries and devices with a graph interface."""
    CSOURCE = "csource"
    """C, built by the system's compiler and run by the core."""
    LOWERING = "lowering"
    """Calls of C functions over memory planned by the core: for libraries of C functions."""

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of the kind's templates, in order; later folders override earlier folders."""
        return ("common", "document" if self in {Kind.GRAPH, Kind.ENGINE} else "c", self.value)

    @property
    def first_file(self) -> str:
        """The first file for an author to change."""
        return {
            Kind.GRAPH: "engine.py",
            Kind.ENGINE: "library.py",
            Kind.CSOURCE: "codegen.py",
            Kind.LOWERING: "library.c",
        }[self]
