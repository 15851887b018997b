"""Modules with an engine for graph documents, and their saved form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from byoc_core.dims import Dim
from byoc_core.errors import ArtifactError, PluginError
from byoc_core.runtime.graph.document import GraphDocument, GraphFunction, print_document
from byoc_core.runtime.graph.encoding import document_version, encode_document
from byoc_core.runtime.graph.engine import FunctionRefused, GraphEngine, build_function, node_refusals
from byoc_core.runtime.graph.kernel_engine import KERNEL_ENGINE_KEY, KernelEngine
from byoc_core.runtime.graph.payload import GraphPayload, decode_payload, encode_payload
from byoc_core.runtime.module import CallTraits, NDArray, PackedFunction, RuntimeModule

__all__ = ["ConstantSource", "GraphModule", "check_graph", "load_graph", "save_graph"]


class ConstantSource(Protocol):
    """The part of a load context needed by :func:`load_graph`."""

    def constant(self, digest: str) -> NDArray:
        """Return the read-only array of this digest."""
        ...


class GraphModule(RuntimeModule):
    """A runtime module that runs a graph document by an engine.

    Args:
        document: the functions.
        constants: arrays by digest: at least the constants cited by the document.
        engine: the engine for the functions; numpy's kernels by default.
        prepared: the functions already prepared by the engine, by name.
        saved: the bytes of a payload for compiled functions, by name.

    Raises:
        ArtifactError: the engine cannot run a node or refuses a function, saved bytes are not the engine's, or a
            constant is missing or of another type.
    """

    def __init__(
        self,
        document: GraphDocument,
        constants: Mapping[str, NDArray],
        engine: GraphEngine | None = None,
        *,
        prepared: Mapping[str, object] | None = None,
        saved: Mapping[str, bytes] | None = None,
    ) -> None:
        self.document = document
        self._engine = engine or KernelEngine()
        self._constants: dict[str, NDArray] = {}
        for function in document.functions.values():
            _check_nodes(function, self._engine)
            self._constants.update(_cited_constants(function, constants))
        _check_saved(document, self._engine, saved or {})
        self._prepared = dict(prepared or {})
        self._functions: dict[str, PackedFunction] = {}
        self._workspaces: dict[str, Dim] = {}
        for name, function in document.functions.items():
            if name not in self._prepared:
                self._prepared[name] = _prepare(self._engine, function, self._constants, (saved or {}).get(name))
            built = build_function(self._engine, function, self._constants, self._prepared[name])
            self._workspaces[name] = built.workspace_nbytes
            self._functions[name] = PackedFunction(name, built.call, function.signature, built.native)

    @property
    def engine(self) -> GraphEngine:
        """The engine that runs the functions."""
        return self._engine

    def find_prepared(self, name: str) -> object:
        """Return the prepared form of a function whose name is in :attr:`function_names`."""
        return self._prepared[name]

    @property
    def type_key(self) -> str:
        """The engine's type key."""
        return self._engine.type_key

    @property
    def uses_threads(self) -> bool:
        """Whether built functions may use threads, according to the engine."""
        return self._engine.uses_threads

    def report_parts(self) -> None:
        """Ask the engine to report the parts of calls."""
        self._engine.report_parts()

    @property
    def workspaces_may_differ(self) -> bool:
        """``True``: documents do not describe memory; the engine plans memory."""
        return True

    @property
    def function_names(self) -> tuple[str, ...]:
        """The names of the document's functions."""
        return tuple(self._functions)

    def find_function(self, name: str) -> PackedFunction:
        """Return a function whose name is in :attr:`function_names`."""
        return self._functions[name]

    def call_traits(self, name: str) -> CallTraits:
        """Return the engine's permissions for callers; a function with returned results has the plain contract."""
        if self._functions[name].returns_results:
            return CallTraits()
        return CallTraits(strided=self._engine.strided, workspace_nbytes=self._workspaces[name])

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the field's usual keyword
        """Return the graph as text, one line for each value; the document itself for ``"json"``."""
        if format == "json":
            return encode_document(self.document, indent=2).decode()
        return print_document(self.document) if format in ("", "text") else ""

    @property
    def constants(self) -> Mapping[str, NDArray]:
        """The arrays cited by the document, by digest."""
        return MappingProxyType(self._constants)

    @property
    def payload_format(self) -> int | None:
        """The version of the document for the core's own runtime; ``None`` for other runtimes with own formats."""
        return document_version(self.document) if self.type_key == KERNEL_ENGINE_KEY else None

    @property
    def needed_runtimes(self) -> tuple[str, ...]:
        """The runtimes with kernels of plugins' ops."""
        return tuple(sorted({origin.runtime for origin in self.document.kernels.values()}))

    @property
    def unnamed_kernels(self) -> tuple[str, ...]:
        """The ops computed by a kernel of this process alone: the document names no origin of the kernel."""
        plugin_ops = self._engine.plugin_kernels if isinstance(self._engine, KernelEngine) else frozenset()
        return tuple(sorted(plugin_ops - self.document.kernels.keys()))


def save_graph(module: GraphModule) -> bytes:
    """Return the payload of a graph module: document, settings of the engine, bytes for each compiled function.

    Constants are cited by digest.

    Raises:
        PluginError: the module runs the kernel of a plugin's op from no installed runtime, so the payload could not be
            loaded; or the engine's settings or bytes exceed the limits of a payload.
    """
    if unnamed := module.unnamed_kernels:
        raise PluginError(
            f"op `{unnamed[0]}`",
            "no installed runtime has the kernel: a saved module could not be loaded",
            hint="Provide the kernel by the hook `byoc_kernels` of an entry point in the group `byoc.runtimes`, or "
            "register the op of the module by `byoc_core.register_op(domain, op_type, op=...)` before the build.",
        )
    engine = module.engine
    saved = {name: engine.save_prepared(module.find_prepared(name)) for name in module.function_names}
    return encode_payload(GraphPayload(module.document, engine.state, saved), f"engine `{engine.type_key}`")


def load_graph(
    payload: bytes, context: ConstantSource, engine: GraphEngine | type[GraphEngine] | None = None
) -> GraphModule:
    """Return the module of a payload.

    Args:
        payload: the bytes from :func:`save_graph`.
        context: the source of the constants.
        engine: the engine, or an engine class, whose :meth:`GraphEngine.from_state` makes an engine from the state in
            the payload; numpy's kernels by default. An engine must have the state saved in the payload.

    Raises:
        ArtifactError: the payload breaks a law of graph documents, or holds parts that the engine cannot run or did not
            save.
    """
    decoded = decode_payload(payload)
    document = decoded.document
    if engine is None and document.kernels:
        engine = KernelEngine(plugin_kernels=_plugin_kernels(document))
    digests = dict.fromkeys(c.digest for f in document.functions.values() for c in f.all_constants())
    constants = {digest: context.constant(digest) for digest in digests}
    return GraphModule(document, constants, _engine_of(decoded, engine), saved=decoded.saved)


def check_graph(payload: bytes, engine: GraphEngine | type[GraphEngine] | None = None) -> None:
    """Check a payload as in :func:`load_graph`, but build nothing; for ``byoc_check_payload`` of a runtime.

    Nodes with kernels from a plugin are for the plugin to judge: no plugin is asked. No function is prepared.

    Args:
        payload: the bytes from :func:`save_graph`.
        engine: the engine for running, as for :func:`load_graph`; numpy's kernels by default.

    Raises:
        ArtifactError: the payload breaks a law of graph documents, or holds parts that the engine cannot run or did not
            save.
    """
    decoded = decode_payload(payload)
    plugin_ops = frozenset(decoded.document.kernels if engine is None else ())
    instance = _engine_of(decoded, engine)
    for function in decoded.document.functions.values():
        _check_nodes(function, instance, plugin_ops)
    _check_saved(decoded.document, instance, decoded.saved)


def _engine_of(payload: GraphPayload, engine: GraphEngine | type[GraphEngine] | None) -> GraphEngine:
    """Return the engine of a payload.

    Raises:
        ArtifactError: the payload's state differs from the engine's state, or is not accepted by the engine's class.
    """
    if isinstance(engine, type):
        try:
            return engine.from_state(dict(payload.state))
        except (LookupError, TypeError, ValueError) as error:
            raise ArtifactError("engine state", f"cannot be read: {error}") from error
    instance = engine or KernelEngine()
    if instance.state != payload.state:
        got, expected = (f"{dict(state)!r:.200}" for state in (payload.state, instance.state))
        raise ArtifactError("engine state", "differs from the state of the engine", got=got, expected=expected)
    return instance


def _plugin_kernels(document: GraphDocument) -> Mapping[str, Callable[..., object]]:
    from byoc_core.runtime.graph.plugin_kernels import core_kernel, find_kernels

    for op in document.kernels:
        if core_kernel(op) is not None:
            raise ArtifactError(
                "graph document, kernels", "names a plugin's kernel for an op of the core", got=repr(op)
            )
    return find_kernels(document.kernels, "graph document")


def _check_nodes(function: GraphFunction, engine: GraphEngine, unchecked_ops: frozenset[str] = frozenset()) -> None:
    for refusal in node_refusals(function, engine, f"graph function `{function.name}`", unchecked_ops):
        raise ArtifactError(refusal.location, refusal.reason)


def _check_saved(document: GraphDocument, engine: GraphEngine, saved: Mapping[str, bytes]) -> None:
    for name, data in saved.items():
        reason = engine.check_saved(document.functions[name], data)
        if reason is not None:
            raise ArtifactError(f"graph function `{name}`", f"the saved bytes do not fit the engine: {reason}")


def _cited_constants(function: GraphFunction, constants: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """Return the arrays cited by a function, by digest."""
    cited: dict[str, NDArray] = {}
    for constant in function.all_constants():
        array = constants.get(constant.digest)
        if array is None or array.dtype.name != constant.tensor.dtype or tuple(array.shape) != constant.tensor.shape:
            raise ArtifactError(
                f"graph function `{function.name}`",
                f"constant {constant.digest[:12]} is missing or of another type",
                got="nothing" if array is None else f"{array.dtype}{list(array.shape)}",
                expected=constant.tensor,
            )
        cited[constant.digest] = array
    return cited


def _prepare(
    engine: GraphEngine, function: GraphFunction, constants: Mapping[str, NDArray], saved: bytes | None
) -> object:
    prepared = engine.prepare(function, constants, saved)
    if isinstance(prepared, FunctionRefused):
        raise ArtifactError(f"graph function `{function.name}`", f"is refused by the engine: {prepared.text}")
    return prepared
