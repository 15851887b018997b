"""Regions as the runtime has them: graph documents, planned for the number of threads of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from byoc_core.errors import ArtifactError, ExecutionError
from byoc_core.runtime.fork_lock import ForkLock
from byoc_core.runtime.graph import GraphEngine, GraphModule
from byoc_core.runtime.graph_document import GraphFunction, GraphNode
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.threads import num_threads

from byoc_dnnl.handles import Engine
from byoc_dnnl.library import load_library
from byoc_dnnl.lowerings import declines
from byoc_dnnl.planner import Planner
from byoc_dnnl.program import PackedConstants, Program

__all__ = ["DnnlEngine", "DnnlModule", "open_engine"]

_MAX_PROGRAMS = 4
"""For how many numbers of threads a region keeps its primitives."""


@cache
def open_engine() -> Engine:
    """Gives the engine of this process; all primitives are made in it.

    Raises:
        PluginError: there is no oneDNN that can be used.
    """
    return Engine(load_library())


class Region:
    """One function: a program for each number of threads it was called with, the last few of them.

    Args:
        function: what it computes.
        constants: arrays by digest.

    Raises:
        ArtifactError: a node cannot be planned.
    """

    def __init__(self, function: GraphFunction, constants: Mapping[str, NDArray]) -> None:
        self._function = function
        self._constants = constants
        self._packed = PackedConstants()
        self._programs: dict[int, Program] = {}
        self._fork_lock = ForkLock()
        self.program(num_threads())

    def __call__(self, *arrays: NDArray) -> None:
        """Runs it on inputs and outputs, with the number of threads of this call."""
        number = num_threads()
        (self._programs.get(number) or self.program(number))(*arrays)

    def program(self, number: int) -> Program:
        """Gives the program for a number of threads."""
        with self._fork_lock.lock:
            found = self._programs.get(number)
            if found is None:
                found = self._make(number)
                self._programs = {**dict([*self._programs.items()][1 - _MAX_PROGRAMS :]), number: found}
            return found

    def _make(self, number: int) -> Program:
        engine = open_engine()
        with engine.threads(number):
            try:
                plan = Planner(engine, self._function, strict=False).plan()
            except ExecutionError as error:  # a document from a file may ask for what makes no sense
                raise ArtifactError(f"graph function `{self._function.name}`", f"cannot be planned: {error}") from error
            if isinstance(plan, str):
                raise ArtifactError(f"graph function `{self._function.name}`", plan)
            return Program(engine, plan, self._constants, self._packed)


class DnnlEngine(GraphEngine):
    """Runs graph documents by oneDNN's primitives."""

    @property
    def type_key(self) -> str:
        """``"dnnl"``."""
        return "dnnl"

    def check_node(self, node: GraphNode) -> str | None:
        """Gives a reason where an op has no primitive; what depends on types shows when the function is planned."""
        if node.body is not None or len(node.outputs) != 1:
            return "is no single op with one result"
        return declines(node.op)

    def build(self, function: GraphFunction, constants: Mapping[str, NDArray]) -> Callable[..., object]:
        """Gives what runs a function; its primitives are made for the number of threads that is set now."""
        return Region(function, constants)


class DnnlModule(GraphModule):
    """A graph module whose source is the list of primitives."""

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the field's usual keyword
        """Gives the primitives with implementations and layouts; ``"graph"`` and ``"json"`` give the document."""
        if format in ("", "dnnl"):
            regions = ((name, self.find_function(name).impl) for name in self.function_names)
            return "\n".join(
                f"{name}\n{region.program(num_threads()).plan}"
                for name, region in regions
                if isinstance(region, Region)
            )
        return super().get_source("text" if format == "graph" else format)
