"""Engines: checks, compilation and execution of the functions of a graph document.

An engine checks each node (:meth:`GraphEngine.check_node`), then compiles each function (:meth:`GraphEngine.prepare`),
and finally makes the function callable (:meth:`GraphEngine.build`). When a module is saved, the payload receives the
engine's settings (:attr:`GraphEngine.state`) and saved bytes for each compiled function
(:meth:`GraphEngine.save_prepared`). When the module is loaded, :meth:`GraphEngine.from_state` makes an equal engine.

An engine may omit the argument ``operands`` of ``check_node`` and the argument ``prepared`` of ``build``.
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
    """A built function with scratch memory from the caller, or with an entry point for machine code.

    Attributes:
        call: as described in :meth:`GraphEngine.build`, with the workspace as optional last argument if scratch memory
            is taken.
        workspace_nbytes: see :class:`~byoc_core.runtime.module.CallTraits`; in the symbols of the function's inputs.
        native: the same function for callers in machine code; ``None`` if absent.
    """

    call: Callable[..., object]
    workspace_nbytes: Dim = 0
    native: NativeEntry | None = None

    def __call__(self, *arrays: NDArray) -> object:
        """Call the function."""
        return self.call(*arrays)


@dataclass(frozen=True, slots=True)
class FunctionRefused:
    """A function refused by an engine; the text gives the reason, as in "has more inputs than the device"."""

    text: str


class GraphEngine(ABC):
    """The base class of engines: checks, compiles and builds the functions of a graph document."""

    @property
    @abstractmethod
    def type_key(self) -> str:
        """The name of the runtime for loading this engine's modules."""

    @property
    def uses_threads(self) -> bool:
        """Whether built functions may use more threads than the caller's; see :mod:`byoc_core.runtime.threads`."""
        return True

    @property
    def strided(self) -> bool:
        """Whether functions from :meth:`build` accept strided inputs and outputs; ``False`` unless overridden."""
        return False

    @property
    def state(self) -> Mapping[str, Any]:
        """The settings for a saved payload: plain JSON values by name, 64 KiB at most; none by default.

        Equal engines have equal states. :meth:`from_state` makes an engine from a state.
        """
        return {}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Return the engine with a state; called when a payload is loaded or checked.

        The state is untrusted: check every name and value. A misfit is an ``ArtifactError``; a ``ValueError``, a
        ``TypeError`` and a ``LookupError`` become an ``ArtifactError``. Open no device here: this method is also called
        when a payload is only checked.

        Args:
            state: the value of :attr:`state` when the module was saved.
        """
        if state:
            raise ArtifactError(
                "engine state", "does not belong to this engine", got=", ".join(map(repr, sorted(state)))
            )
        return cls()

    def report_parts(self) -> None:
        """Report the parts of calls from now on, of all built functions; called before calls are recorded.

        The default does nothing. An engine that runs steps in machine code takes the address from
        :func:`byoc_core.runtime.parts.part_marker`, if not 0, and calls the function behind each step. Steps run by
        Python are followed by :func:`~byoc_core.runtime.parts.mark_part` if
        :func:`~byoc_core.runtime.parts.is_recording`. The ops of a step are the lines of the nodes' ``origins``.
        """

    @abstractmethod
    def check_node(self, node: GraphNode, operands: Sequence[GraphTensor] = ()) -> str | None:
        """Return the reason why this engine cannot run a node, or ``None``; called once for each node, bodies too.

        A node with an op of byoc already obeys the op's type rule.

        Args:
            node: the node; ``node.outputs`` are the types of the results.
            operands: the types of the operands, in the order of ``node.inputs``.
        """

    def prepare(
        self, function: GraphFunction, constants: Mapping[str, NDArray], saved: bytes | None = None
    ) -> object | FunctionRefused:
        """Compile a function; called once for each function, before :meth:`build`. The default compiles nothing.

        Args:
            function: a function whose nodes have all passed :meth:`check_node`.
            constants: read-only arrays by digest; holds at least the cited constants.
            saved: the bytes from :meth:`save_prepared` of the saved module, accepted by :meth:`check_saved`; ``None``
                if the function is compiled for the first time, or if no bytes were saved. If the library cannot use the
                bytes, for example after an update, compile again.

        Returns:
            The object that :meth:`build` and :meth:`save_prepared` receive, or :class:`FunctionRefused`. When byoc
            compiles, a refused function goes to the next backend. When byoc loads, the refusal is an ``ArtifactError``.
        """
        return None

    def save_prepared(self, prepared: Any) -> bytes:
        """Return the payload's bytes for a compiled function, 16 MiB at most; none by default.

        Leave weights out: a payload is neither shared nor mapped. Equal functions give equal bytes.
        """
        return b""

    def check_saved(self, function: GraphFunction, saved: bytes) -> str | None:
        """Return the reason why :meth:`save_prepared` cannot have returned these bytes for a function, or ``None``.

        Called when a payload is loaded or checked. The bytes are untrusted: never unpickle the bytes. The default
        refuses all bytes.
        """
        return "the engine saves no bytes for functions"

    @abstractmethod
    def build(
        self, function: GraphFunction, constants: Mapping[str, NDArray], prepared: Any = None
    ) -> Callable[..., object] | BuiltFunction:
        """Return the implementation of a function; called once, when the module is made.

        Args:
            function: a function whose nodes have all passed :meth:`check_node`.
            constants: read-only arrays by digest; holds at least the cited constants.
            prepared: the object from :meth:`prepare` for the function.

        Returns:
            A callable ``impl(*inputs, *outputs)`` over C-contiguous arrays of the function's signature. If only running
            determines sizes of the signature (``new_symbols``), ``impl(*inputs)`` returns a tuple of arrays. The
            callable must be re-entrant unless declared otherwise in the runtime's ``RuntimeInfo``. A callable with
            scratch memory from the caller, or with an entry point for machine code, is a :class:`BuiltFunction`.
        """


class NodeRefusal(NamedTuple):
    """A node refused by an engine: the node, the location for errors, and the engine's reason."""

    node: GraphNode
    location: str
    reason: str


def node_refusals(
    function: GraphFunction, engine: GraphEngine, where: str, unchecked_ops: frozenset[str] = frozenset()
) -> Iterator[NodeRefusal]:
    """Yield the nodes refused by an engine; nodes of bodies come after the node with the body.

    Args:
        function: the function.
        engine: the engine.
        where: the function, for errors.
        unchecked_ops: ops not to be checked.
    """
    takes_operands = _names_argument(engine.check_node, "operands")
    for index, node in enumerate(function.nodes):
        location = f"{where}, node {index} (`{node.op}`)"
        if node.op not in unchecked_ops:
            if takes_operands:
                reason = engine.check_node(node, operands=function.operand_types(node))
            else:
                reason = engine.check_node(node)
            if reason is not None:
                yield NodeRefusal(node, location, reason)
        if node.body is not None:
            yield from node_refusals(node.body, engine, f"{location}, body", unchecked_ops)


def build_function(
    engine: GraphEngine, function: GraphFunction, constants: Mapping[str, NDArray], prepared: object
) -> BuiltFunction:
    """Return the built function for a function prepared by the engine."""
    if _names_argument(engine.build, "prepared"):
        built = engine.build(function, constants, prepared=prepared)
    else:
        built = engine.build(function, constants)
    return built if isinstance(built, BuiltFunction) else BuiltFunction(built)


def _names_argument(method: Callable[..., object], name: str) -> bool:
    """Return whether a method takes an argument of a name: engines of older packages do not know all arguments."""
    return name in inspect.signature(method).parameters
