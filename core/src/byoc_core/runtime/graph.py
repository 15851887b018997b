"""The run half of the graph kit: modules that run graph documents by an engine.

A library-style backend writes an engine (:class:`GraphEngine`): it turns one function of a document into something
that can be called, once, when the module is loaded. Everything else (the document's form and laws, signatures,
saving, loading, sources) is here. :class:`KernelEngine` is the engine of the core's own numpy host.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol

from byoc_core.dims import Dim
from byoc_core.errors import ArtifactError, PluginError, near_names
from byoc_core.runtime.graph_document import GraphDocument, GraphFunction, GraphNode, print_document
from byoc_core.runtime.graph_encoding import decode_document, document_version, encode_document
from byoc_core.runtime.module import CallTraits, NativeEntry, NDArray, PackedFunction, RuntimeModule

__all__ = [
    "BuiltFunction",
    "ConstantSource",
    "GraphEngine",
    "GraphModule",
    "KernelEngine",
    "check_graph",
    "load_graph",
    "save_graph",
]

Kernel = Callable[..., Any]

KERNEL_ENGINE_KEY = "graph"
"""The type key of modules that the core's own engine runs."""


class ConstantSource(Protocol):
    """What :func:`load_graph` needs of a load context."""

    def constant(self, digest: str) -> NDArray:
        """Gives the read-only array of that digest."""
        ...


@dataclass(frozen=True, slots=True)
class BuiltFunction:
    """What an engine makes of a function that takes scratch memory from its caller, or that machine code can call.

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
        """Calls it."""
        return self.call(*arrays)


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

    @abstractmethod
    def check_node(self, node: GraphNode) -> str | None:
        """Gives the reason why this engine cannot run a node, or ``None``; called once for each node, bodies too."""

    @abstractmethod
    def build(self, function: GraphFunction, constants: Mapping[str, NDArray]) -> Callable[..., object] | BuiltFunction:
        """Gives the implementation of one function; called once, when the module is made.

        Args:
            function: a function whose nodes have all passed :meth:`check_node`.
            constants: read-only arrays by digest; holds at least what the function cites.

        Returns:
            A callable ``impl(*inputs, *outputs)`` over C-contiguous arrays of the function's signature; where the
            signature has sizes that only running tells (``new_symbols``), ``impl(*inputs)`` that gives a tuple of
            arrays. It must be re-entrant unless the runtime's ``RuntimeInfo`` says otherwise. One that takes scratch
            memory from its caller, or that machine code can call, is a :class:`BuiltFunction`.
        """


class GraphModule(RuntimeModule):
    """A runtime module that runs a graph document by an engine.

    Args:
        document: the functions.
        constants: arrays by digest: at least those that the document cites.
        engine: how to run them; numpy's kernels where not given.

    Raises:
        ArtifactError: the engine cannot run a node, or a constant is missing or of another type.
    """

    def __init__(
        self, document: GraphDocument, constants: Mapping[str, NDArray], engine: GraphEngine | None = None
    ) -> None:
        self.document = document
        self._engine = engine or KernelEngine()
        self._constants: dict[str, NDArray] = {}
        for function in document.functions.values():
            _check_nodes(function, self._engine, f"graph function `{function.name}`")
            for constant in function.all_constants():
                array = constants.get(constant.digest)
                if (
                    array is None
                    or array.dtype.name != constant.tensor.dtype
                    or tuple(array.shape) != constant.tensor.shape
                ):
                    raise ArtifactError(
                        f"graph function `{function.name}`",
                        f"constant {constant.digest[:12]} is missing or of another type",
                        got="nothing" if array is None else f"{array.dtype}{list(array.shape)}",
                        expected=constant.tensor,
                    )
                self._constants[constant.digest] = array
        self._functions: dict[str, PackedFunction] = {}
        self._workspaces: dict[str, Dim] = {}
        for name, function in document.functions.items():
            built = self._engine.build(function, self._constants)
            whole = built if isinstance(built, BuiltFunction) else BuiltFunction(built)
            self._workspaces[name] = whole.workspace_nbytes
            self._functions[name] = PackedFunction(name, whole.call, function.signature, whole.native)

    @property
    def type_key(self) -> str:
        """The engine's type key."""
        return self._engine.type_key

    @property
    def uses_threads(self) -> bool:
        """Whether the engine says so of what it builds."""
        return self._engine.uses_threads

    @property
    def workspaces_may_differ(self) -> bool:
        """``True``: documents say nothing of memory, which is the engine's to plan."""
        return True

    @property
    def function_names(self) -> tuple[str, ...]:
        """The names of the document's functions."""
        return tuple(self._functions)

    def find_function(self, name: str) -> PackedFunction:
        """Gives a function whose name is in :attr:`function_names`."""
        return self._functions[name]

    def call_traits(self, name: str) -> CallTraits:
        """Gives what the engine says; a function that returns its results has the plain contract."""
        if self._functions[name].returns_results:
            return CallTraits()
        return CallTraits(strided=self._engine.strided, workspace_nbytes=self._workspaces[name])

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the field's usual keyword
        """Gives the graph as text, one line for each value; ``"json"`` for the document itself."""
        if format == "json":
            return encode_document(self.document, indent=2).decode()
        return print_document(self.document) if format in ("", "text") else ""

    @property
    def constants(self) -> Mapping[str, NDArray]:
        """The arrays that the document cites, by digest."""
        return MappingProxyType(self._constants)

    @property
    def payload_format(self) -> int | None:
        """The version of the document for the core's own runtime; ``None`` for others, which have their formats."""
        return document_version(self.document) if self.type_key == KERNEL_ENGINE_KEY else None

    @property
    def needed_runtimes(self) -> tuple[str, ...]:
        """The runtimes that bring kernels of plugins' ops."""
        return tuple(sorted({origin.runtime for origin in self.document.kernels.values()}))

    @property
    def unnamed_kernels(self) -> tuple[str, ...]:
        """The ops that a kernel from this process alone computes: the document does not say who brings it."""
        given = self._engine.plugin_kernels if isinstance(self._engine, KernelEngine) else frozenset()
        return tuple(sorted(given - self.document.kernels.keys()))


def save_graph(module: GraphModule) -> bytes:
    """Gives the payload of a graph module: its document, constants cited by digest.

    Raises:
        PluginError: the module runs the kernel of a plugin's op that no installed runtime brings, so that nobody could
            load the payload.
    """
    if lost := module.unnamed_kernels:
        raise PluginError(
            f"op `{lost[0]}`",
            "has a kernel that no installed runtime brings, so a saved module could not find it",
            hint="Give the kernel by the hook `byoc_kernels` of an entry point in the group `byoc.runtimes`.",
        )
    return encode_document(module.document)


def load_graph(payload: bytes, context: ConstantSource, engine: GraphEngine | None = None) -> GraphModule:
    """Gives the module of a payload.

    Args:
        payload: what :func:`save_graph` gave.
        context: where the constants come from.
        engine: how to run it; numpy's kernels where not given.

    Raises:
        ArtifactError: the payload breaks a law of graph documents, or holds what the engine cannot run.
    """
    document = decode_document(payload)
    if engine is None and document.kernels:
        engine = KernelEngine(plugin_kernels=_plugin_kernels(document))
    digests = dict.fromkeys(c.digest for f in document.functions.values() for c in f.all_constants())
    return GraphModule(document, {digest: context.constant(digest) for digest in digests}, engine)


def check_graph(payload: bytes, engine: GraphEngine | None = None) -> None:
    """Check a payload as :func:`load_graph` does, but build nothing: what a runtime's ``byoc_check_payload`` calls.

    Nodes whose kernels the document takes from a plugin are for the plugin to judge: no plugin is asked.

    Args:
        payload: what :func:`save_graph` gave.
        engine: how it would be run; numpy's kernels where not given.

    Raises:
        ArtifactError: the payload breaks a law of graph documents, or holds what the engine cannot run.
    """
    document = decode_document(payload)
    brought = frozenset(document.kernels if engine is None else ())
    for function in document.functions.values():
        _check_nodes(function, engine or KernelEngine(), f"graph function `{function.name}`", brought)


class KernelEngine(GraphEngine):
    """Runs nodes one by one with numpy kernels; a value is released as soon as nothing reads it any more.

    A node with a body is run as its body, unless :meth:`bind_composite` has one kernel for it.

    Args:
        kernels: by op name; the core's own where not given.
        plugin_kernels: kernels of plugins' ops, by op name, beside these.
    """

    def __init__(
        self, kernels: Mapping[str, Kernel] | None = None, *, plugin_kernels: Mapping[str, Kernel] | None = None
    ) -> None:
        self._has_own_kernels = kernels is None
        if kernels is None:
            from byoc_core.kernels import KERNELS

            kernels = KERNELS
        self._kernels: Mapping[str, Kernel] = {**plugin_kernels, **kernels} if plugin_kernels else kernels
        self.plugin_kernels = frozenset(plugin_kernels or ())

    @property
    def type_key(self) -> str:
        """``"graph"``."""
        return KERNEL_ENGINE_KEY

    @property
    def uses_threads(self) -> bool:
        """``False``: kernels run in the calling thread (what numpy's BLAS does is its own business)."""
        return False

    @property
    def strided(self) -> bool:
        """``True`` where all that runs is the core's own; a subclass says for itself what its library takes."""
        return self._has_own_kernels and type(self) is KernelEngine

    def check_node(self, node: GraphNode) -> str | None:
        """Gives a reason where the op has no kernel, or its kernel does not take these operands and attributes."""
        if node.body is not None:
            return None
        kernel = self._kernels.get(node.op)
        if kernel is None:
            return f"is not an op that has a kernel. {near_names(node.op, self._kernels)}".strip()
        return _misfit(kernel, len(node.inputs), tuple(node.attrs))

    def bind_composite(self, node: GraphNode, constants: Mapping[str, NDArray]) -> Kernel | None:
        """Gives what computes a node with a body in one call, or ``None`` to run its body node by node.

        Called once for each such node, when the module is made: the place to prepare weights. An engine whose library
        computes a pattern in one call overrides it, and looks at the whole body, which may come from a file.

        Args:
            node: the composite; its body cites its constants.
            constants: read-only arrays by digest.

        Returns:
            A callable over the node's inputs that gives its output, or a tuple of several. It must be re-entrant.
        """
        return None

    def build(self, function: GraphFunction, constants: Mapping[str, NDArray]) -> Callable[..., object]:
        """Gives a callable that runs the nodes in order, with what they make in the workspace."""
        from byoc_core.runtime.graph_plan import implement  # the kernels, which other engines do without

        def find(node: GraphNode) -> Kernel | None:
            return self._kernels[node.op] if node.body is None else self.bind_composite(node, constants)

        return BuiltFunction(*implement(function, constants, find))


def _plugin_kernels(document: GraphDocument) -> Mapping[str, Kernel]:
    from byoc_core.runtime.plugin_kernels import core_kernel, find_kernels

    for op in document.kernels:
        if core_kernel(op) is not None:
            raise ArtifactError(
                "graph document, kernels", "names a plugin's kernel for an op of the core", got=repr(op)
            )
    return find_kernels(document.kernels, "graph document")


@lru_cache(maxsize=1024)
def _misfit(kernel: Kernel, num_inputs: int, attr_names: tuple[str, ...]) -> str | None:
    """Gives the reason why a kernel cannot be called with so many operands and these attributes, or ``None``."""
    try:
        signature = inspect.signature(kernel)
    except ValueError:  # a function in C that does not tell
        return None
    try:
        signature.bind(*range(num_inputs), **dict.fromkeys(attr_names))
    except TypeError as error:
        return f"the kernel does not take these operands and attributes: {error}"
    return None


def _check_nodes(
    function: GraphFunction, engine: GraphEngine, where: str, brought: frozenset[str] = frozenset()
) -> None:
    for index, node in enumerate(function.nodes):
        place = f"{where}, node {index} (`{node.op}`)"
        reason = None if node.op in brought else engine.check_node(node)
        if reason is not None:
            raise ArtifactError(place, reason)
        if node.body is not None:
            _check_nodes(node.body, engine, f"{place}, body", brought)
