"""Engines: how the functions of a graph document are checked, compiled and run.

The life of an engine: it is asked about each node (:meth:`GraphEngine.check_node`), compiles each function
(:meth:`GraphEngine.prepare`) and makes it callable (:meth:`GraphEngine.build`). When a module is saved, the engine's
settings (:attr:`GraphEngine.state`) and what it keeps of each compiled function (:meth:`GraphEngine.save_prepared`) go
into the payload. Where the module is loaded, :meth:`GraphEngine.from_state` makes an equal engine.

An engine may leave out the argument ``operands`` of ``check_node`` and the argument ``prepared`` of ``build``.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from byoc_core.dims import Dim
from byoc_core.errors import ArtifactError
from byoc_core.runtime.graph.document import GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.module import NativeEntry, NDArray

__all__ = ["BuiltFunction", "FunctionRefused", "GraphEngine", "build_function", "node_refusals"]


@dataclass(frozen=True, slots=True)
class BuiltFunction:
    """A built function that takes scratch memory from its caller, or that machine code can call.

    Attributes:
        call: as :meth:`GraphEngine.build` says, with an optional last argument where it takes scratch memory: the
            workspace.
        workspace_nbytes: see :class:`~byoc_core.runtime.module.CallTraits`; in the symbols of the function's inputs.
        native: the same function for callers that are machine code; ``None`` where there is none.
    """

    call: Callable[..., object]
    workspace_nbytes: Dim = 0
    native: NativeEntry | None = None

    def __call__(self, *arrays: NDArray) -> object:
        """Call the function."""
        return self.call(*arrays)


@dataclass(frozen=True, slots=True)
class FunctionRefused:
    """An engine refuses a function; the text says why, as in "has more inputs than the device"."""

    text: str


class GraphEngine(ABC):
    """How the functions of a graph document are run."""

    @property
    @abstractmethod
    def type_key(self) -> str:
        """The name of the runtime that loads this engine's modules."""

    @property
    def uses_threads(self) -> bool:
        """Whether what it builds may use more threads than the caller's; see :mod:`byoc_core.runtime.threads`."""
        return True

    @property
    def strided(self) -> bool:
        """Whether what :meth:`build` gives takes strided inputs and fills strided outputs; not unless overridden."""
        return False

    @property
    def state(self) -> Mapping[str, Any]:
        """The settings that a saved payload carries: plain JSON values by name, 64 KiB at most; none by default.

        Equal engines have equal states. :meth:`from_state` makes an engine from a state.
        """
        return {}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Return the engine that has a state; called where a payload is loaded or checked.

        Anyone may have written the state: check every name and value. A misfit is an ``ArtifactError``; a
        ``ValueError``, a ``TypeError`` and a ``LookupError`` become an ``ArtifactError``. Open no device here: this
        method is also called when a payload is only checked.

        Args:
            state: the value of :attr:`state` when the module was saved.
        """
        if state:
            raise ArtifactError("engine state", "is none of this engine's", got=", ".join(map(repr, sorted(state))))
        return cls()

    @abstractmethod
    def check_node(self, node: GraphNode, operands: Sequence[GraphTensor] = ()) -> str | None:
        """Return the reason why this engine cannot run a node, or ``None``; called once for each node, bodies too.

        A node that is an op of byoc obeys the type rule of its op already.

        Args:
            node: the node; ``node.outputs`` are the types of its results.
            operands: the types of the values that it reads, in the order of ``node.inputs``.
        """

    def prepare(
        self, function: GraphFunction, constants: Mapping[str, NDArray], saved: bytes | None = None
    ) -> object | FunctionRefused:
        """Compile a function; called once for each function, before :meth:`build`. The default compiles nothing.

        Args:
            function: a function whose nodes have all passed :meth:`check_node`.
            constants: read-only arrays by digest; holds at least what the function cites.
            saved: the bytes that :meth:`save_prepared` returned when the module was saved, accepted by
                :meth:`check_saved`; ``None`` where the function is compiled for the first time, or where no bytes were
                saved. If the library cannot use the bytes, for example after an update, compile again.

        Returns:
            The object that :meth:`build` and :meth:`save_prepared` receive, or :class:`FunctionRefused`. When byoc
            compiles, a refused function goes to the next backend. When byoc loads, the refusal is an ``ArtifactError``.
        """
        return None

    def save_prepared(self, prepared: Any) -> bytes:
        """Return the bytes that the payload keeps for a compiled function, 16 MiB at most; none by default.

        Leave weights out: a payload is neither shared nor mapped. Equal functions give equal bytes.
        """
        return b""

    def check_saved(self, function: GraphFunction, saved: bytes) -> str | None:
        """Return the reason why :meth:`save_prepared` cannot have returned these bytes for a function, or ``None``.

        Called where a payload is loaded or checked. Anyone may have written the bytes: never unpickle them. The default
        refuses all bytes.
        """
        return "the engine saves nothing of its functions"

    @abstractmethod
    def build(
        self, function: GraphFunction, constants: Mapping[str, NDArray], prepared: Any = None
    ) -> Callable[..., object] | BuiltFunction:
        """Return the implementation of one function; called once, when the module is made.

        Args:
            function: a function whose nodes have all passed :meth:`check_node`.
            constants: read-only arrays by digest; holds at least what the function cites.
            prepared: what :meth:`prepare` returned for the function.

        Returns:
            A callable ``impl(*inputs, *outputs)`` over C-contiguous arrays of the function's signature; where the
            signature has sizes that only running tells (``new_symbols``), ``impl(*inputs)`` that returns a tuple of
            arrays. The callable must be re-entrant unless the runtime's ``RuntimeInfo`` says otherwise. A callable that
            takes scratch memory from its caller, or that machine code can call, is a :class:`BuiltFunction`.
        """


class NodeRefusal(NamedTuple):
    """A node that an engine refuses: the node, its place as errors name it, and the engine's reason."""

    node: GraphNode
    place: str
    reason: str


def node_refusals(
    function: GraphFunction, engine: GraphEngine, where: str, brought: frozenset[str] = frozenset()
) -> Iterator[NodeRefusal]:
    """Yield the nodes that an engine refuses, those of bodies after the node that holds them.

    Args:
        function: the function.
        engine: the engine.
        where: the function, as errors name it.
        brought: ops that are not asked about.
    """
    takes_operands = _names_argument(engine.check_node, "operands")
    for index, node in enumerate(function.nodes):
        place = f"{where}, node {index} (`{node.op}`)"
        if node.op not in brought:
            if takes_operands:
                reason = engine.check_node(node, operands=function.operand_types(node))
            else:
                reason = engine.check_node(node)
            if reason is not None:
                yield NodeRefusal(node, place, reason)
        if node.body is not None:
            yield from node_refusals(node.body, engine, f"{place}, body", brought)


def build_function(
    engine: GraphEngine, function: GraphFunction, constants: Mapping[str, NDArray], prepared: object
) -> BuiltFunction:
    """Return the built function of an engine that has prepared the function."""
    if _names_argument(engine.build, "prepared"):
        built = engine.build(function, constants, prepared=prepared)
    else:
        built = engine.build(function, constants)
    return built if isinstance(built, BuiltFunction) else BuiltFunction(built)


def _names_argument(method: Callable[..., object], name: str) -> bool:
    """Return whether a method takes an argument of a name: engines of older packages do not know all of them."""
    return name in inspect.signature(method).parameters
