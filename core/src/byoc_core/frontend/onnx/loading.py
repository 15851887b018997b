"""Loading of a model from a file, bytes or a protobuf object, with checks of graph and opset."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx.graph_order import subgraphs
from byoc_core.frontend.onnx.import_bounds import check_nesting
from byoc_core.frontend.onnx.upgrade import OLDEST_OPSET, upgraded
from byoc_core.frontend.onnx_names import STANDARD_DOMAINS, OnnxName, standardised

__all__ = ["FunctionKey", "LoadedModel", "find_opset", "function_key", "load_model", "onnx_name"]

FunctionKey = tuple[str, str, str]
"""The key of a function and of the calls: domain, name and overload."""


@dataclass(frozen=True)
class LoadedModel:
    """A model in a valid container.

    Attributes:
        graph: the main graph.
        functions: the functions callable by nodes.
        opset: the version of the standard operator set used in the main graph.
        written_opset: the version before the conversion of an old model.
        opset_imports: the versions of all operator sets used in the main graph.
        source: the file, or ``"ONNX model"``; for messages and locations.
        directory: the folder for external data, or ``None`` for a model without file.
        num_nodes: the nodes of the main graph and of all functions, nested graphs included, each once.
        ir_version: the version of the file format.
        producer: name and version of the producer of the model; may be empty.
    """

    graph: onnx.GraphProto
    functions: Mapping[FunctionKey, onnx.FunctionProto]
    opset: int
    written_opset: int
    opset_imports: Sequence[onnx.OperatorSetIdProto]
    source: str
    directory: Path | None
    num_nodes: int
    ir_version: int
    producer: str

    @cached_property
    def name(self) -> str:
        """The name of the file, without folders, for locations."""
        return Path(self.source).name


def load_model(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> LoadedModel:
    """Load a model's graph and opset.

    Raises:
        FrontendError: the file cannot be read, is no ONNX model, is damaged, nests graphs too deeply, or is of an
            unsupported opset.
    """
    source, directory = "ONNX model", None
    if isinstance(model, onnx.ModelProto):
        proto = model
    elif isinstance(model, bytes):
        proto = _parse(model, source)
    elif isinstance(model, str | os.PathLike):
        path = Path(model)
        source, directory = str(path), path.parent
        proto = _parse(_read(path), source)
    else:
        raise FrontendError(
            "from_onnx",
            "cannot import an object of this type",
            got=type(model).__name__,
            expected="a path, bytes or an onnx.ModelProto",
        )
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise FrontendError(source, "is not an ONNX model: it has no graph", hint="Is the file complete?")
    num_nodes = check_nesting(proto, source)
    opset = find_opset(proto, source, nodes=proto.graph.node, oldest=1)
    for name in _names(proto):
        if not isinstance(name, str):  # protobuf returns bytes for text other than UTF-8
            raise FrontendError(source, "is damaged: a name is not UTF-8 text", got=repr(name))
    written_opset, written = opset, proto
    if opset < OLDEST_OPSET:
        proto, opset = upgraded(proto, opset, source), OLDEST_OPSET
        num_nodes = check_nesting(proto, source)
    functions: dict[FunctionKey, onnx.FunctionProto] = {}
    for function in proto.functions:
        key = standardised(function.domain), function.name, function.overload
        if key in functions:
            raise FrontendError(f"{source}, function `{function.name}`", "is defined twice")
        functions[key] = function
    return LoadedModel(
        proto.graph,
        functions,
        opset,
        written_opset,
        proto.opset_import,
        source,
        directory,
        num_nodes,
        int(written.ir_version),
        f"{written.producer_name} {written.producer_version}".strip(),
    )


def function_key(node: onnx.NodeProto) -> FunctionKey:
    """Return the key of the function called by a node, if any."""
    return standardised(node.domain), node.op_type, node.overload


def onnx_name(node: onnx.NodeProto) -> OnnxName:
    """Return domain and operator of a node; the standard domain is empty."""
    return standardised(node.domain), node.op_type


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise FrontendError(str(path), f"cannot be read: {reason}") from error
    if not data:
        raise FrontendError(str(path), "is not an ONNX model: the file is empty")
    return data


def _parse(data: bytes, source: str) -> onnx.ModelProto:
    try:
        proto: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise FrontendError(
            source, "is not an ONNX model, or is truncated", got=f"{len(data)} bytes, rejected by protobuf"
        ) from error
    return proto


def find_opset(
    proto: onnx.ModelProto | onnx.FunctionProto,
    source: str,
    *,
    nodes: Sequence[onnx.NodeProto],
    oldest: int = OLDEST_OPSET,
) -> int:
    """Return the version of the standard operator set used by a model or function; the newest if none is needed.

    Args:
        proto: the model or function.
        source: the model or function, for messages.
        nodes: its nodes.
        oldest: the oldest version supported here.

    Raises:
        FrontendError: the version is missing, stated twice, or unsupported.
    """
    versions = {int(entry.version) for entry in proto.opset_import if entry.domain in STANDARD_DOMAINS}
    newest = onnx.defs.onnx_opset_version()
    if not versions:
        if nodes and all(node.domain not in STANDARD_DOMAINS for node in nodes):
            return newest
        raise FrontendError(source, "does not declare a version of the ONNX operator set")
    if len(versions) > 1:
        raise FrontendError(
            source, "declares several versions of the ONNX operator set", got=", ".join(map(str, sorted(versions)))
        )
    (version,) = versions
    if not oldest <= version <= newest:
        hint = (
            "Convert the model with onnx.version_converter."
            if version < oldest
            else "Update the package `onnx`, or export the model for an older opset."
        )
        raise FrontendError(
            source,
            "needs an unsupported version of the ONNX operator set",
            got=version,
            expected=f"{oldest} to {newest}",
            hint=hint,
        )
    return version


def _names(proto: onnx.ModelProto) -> Iterator[object]:
    """Yield every name read by the importer."""
    yield from _graph_names(proto.graph)
    for function in proto.functions:
        yield from (function.domain, function.name, function.overload)
        yield from (*function.input, *function.output, *function.attribute)
        yield from (attribute.name for attribute in function.attribute_proto)
        yield from (entry.domain for entry in function.opset_import)
        yield from _node_names(function.node)


def _graph_names(graph: onnx.GraphProto) -> Iterator[object]:
    yield from _node_names(graph.node)
    for value in (*graph.input, *graph.output):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        yield from _tensor_names(tensor)


def _node_names(nodes: Iterable[onnx.NodeProto]) -> Iterator[object]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
            yield from _tensor_names(attribute.t)
        for _, graph in subgraphs(node):
            yield from _graph_names(graph)


def _tensor_names(tensor: onnx.TensorProto) -> Iterator[object]:
    yield tensor.name
    for entry in tensor.external_data:
        yield from (entry.key, entry.value)
