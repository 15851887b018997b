"""The JSON form of graph documents: versioned, canonical, and checked in full when read."""

from __future__ import annotations

import json
import marshal
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from byoc_core.dims import Dim, DimExpr, read_dim
from byoc_core.dtypes import dtype_info
from byoc_core.errors import ArtifactError, IRTypeError
from byoc_core.runtime.graph.document import (
    GraphAttr,
    GraphConstant,
    GraphDocument,
    GraphFunction,
    GraphNode,
    GraphTensor,
    KernelOrigin,
    attr_symbols,
)
from byoc_core.runtime.graph.types import check_document_types, with_all_attributes
from byoc_core.runtime.module import TensorSpec

__all__ = [
    "GRAPH_VERSION",
    "checked_fields",
    "decode_document",
    "decode_json",
    "document_version",
    "encode_document",
    "read_document",
]

GRAPH_VERSION = 3
"""The newest version of the JSON form readable by this core.

Version 2 names kernels of plugins, version 3 the origins of nodes. A document is written in the oldest version with all
fields of the document.
"""

_SCHEMA = "byoc.graph"
_MAX_SIZE = 2**63 - 1
_MAX_BODY_DEPTH = 16
_NESTS = frozenset({dict, list})
_Shared = dict[object, Any]
"""The parts of a document read so far.

Values are keyed by themselves. A JSON object shared by :func:`_sharing` is keyed by its kind and the object's ``id``;
the entry holds the object and the object's meaning as this kind.
"""
_WHERE = "graph document"


def encode_document(document: GraphDocument, *, indent: int | None = None) -> bytes:
    """Return the JSON form of a document; equal documents have equal bytes.

    Args:
        document: the document to write.
        indent: for people to read; ``None`` writes the compact form.
    """
    data: dict[str, Any] = {
        "schema": _SCHEMA,
        "version": document_version(document),
        "functions": [_encode_function(function) for function in document.functions.values()],
    }
    if document.kernels:
        data["kernels"] = [
            {"op": op, "runtime": origin.runtime, "distribution": origin.distribution}
            for op, origin in sorted(document.kernels.items())
        ]
    separators = (",", ":") if indent is None else None
    return json.dumps(data, sort_keys=True, allow_nan=False, separators=separators, indent=indent).encode()


def document_version(document: GraphDocument) -> int:
    """Return the version of the JSON form for writing a document: the oldest sufficient version."""
    if any(node.origin for function in document.functions.values() for node in function.walk()):
        return 3
    return 2 if document.kernels else 1


def decode_document(payload: bytes) -> GraphDocument:
    """Read a document from the JSON form; check every law of documents, and every node against the op's rule.

    Raises:
        ArtifactError: the payload is not such a document, is of a newer version, or breaks a law; names the location.
    """
    return read_document(decode_json(payload))


def decode_json(payload: bytes) -> Any:
    """Return the JSON value of a payload; equal types and attributes inside are the same object.

    Raises:
        ArtifactError: the payload is not JSON text.
    """
    try:
        return json.loads(payload.decode("utf-8"), parse_constant=_refuse_constant, object_hook=_sharing())
    except (ValueError, RecursionError) as error:
        raise ArtifactError(_WHERE, "is not JSON text", hint=f"{error}.") from error


def read_document(data: Any) -> GraphDocument:
    """Return the document of a JSON value, whose lists are emptied; see :func:`decode_document`."""
    document = checked_fields(data, _WHERE, "schema", "version", "functions", optional=("kernels",))
    if document["schema"] != _SCHEMA:
        raise ArtifactError(_WHERE, "has another schema", got=repr(document["schema"]), expected=repr(_SCHEMA))
    version = document["version"]
    if type(version) is not int or not 1 <= version <= GRAPH_VERSION:
        raise ArtifactError(
            _WHERE,
            "has a version unknown to this byoc-core",
            got=repr(version),
            expected=f"1 to {GRAPH_VERSION}",
        )
    functions: dict[str, GraphFunction] = {}
    shared: _Shared = {}
    for index, item in enumerate(_list(document["functions"], f"{_WHERE}, functions")):
        function = _decode_function(item, f"{_WHERE}, function {index}", 0, shared)
        if function.name in functions:
            raise ArtifactError(f"{_WHERE}, function {index}", f"the name `{function.name}` is used twice")
        functions[function.name] = function
    if version == 1 and "kernels" in document:
        raise ArtifactError(_WHERE, "has an unknown field 'kernels'", expected="schema, version, functions")
    kernels = _decode_kernels(document.get("kernels", []), f"{_WHERE}, kernels")
    decoded = GraphDocument(MappingProxyType(functions), MappingProxyType(kernels))
    if unused := sorted(kernels.keys() - decoded.ops()):
        raise ArtifactError(f"{_WHERE}, kernels", "names a kernel for an op without nodes", got=repr(unused[0])[:80])
    if version < document_version(decoded) == 3:
        raise ArtifactError(_WHERE, "names the origin of a node", got=f"version {version}", expected="version 3")
    check_document_types(decoded, _WHERE)
    return with_all_attributes(decoded)


def _sharing() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a JSON object hook that makes equal types and attributes the same object: most objects are repetitions."""
    shared: dict[bytes, dict[str, Any]] = {}

    def share(item: dict[str, Any]) -> dict[str, Any]:
        # Skip nested objects, marshalled once per level otherwise; and constants, because each constant is unique.
        for value in item.values():
            if type(value) is dict or (type(value) is list and not _NESTS.isdisjoint(map(type, value))):
                return item
        if "digest" in item:
            return item
        return shared.setdefault(marshal.dumps(item, 2), item)  # version 2: equal values, equal bytes

    return share


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


# Writing


def _encode_function(function: GraphFunction) -> dict[str, Any]:
    return {
        "name": function.name,
        "inputs": [{"name": s.name, "dtype": s.dtype, "shape": _encode_shape(s.shape)} for s in function.inputs],
        "constants": [{"digest": c.digest, **_encode_tensor(c.tensor)} for c in function.constants],
        "nodes": [_encode_node(node) for node in function.nodes],
        "outputs": [{"name": name, "value": id_} for name, id_ in function.outputs],
    }


def _encode_node(node: GraphNode) -> dict[str, Any]:
    data: dict[str, Any] = {
        "op": node.op,
        "inputs": list(node.inputs),
        "attrs": {name: _encode_attr(value) for name, value in node.attrs.items()},
        "outputs": [_encode_tensor(tensor) for tensor in node.outputs],
    }
    if node.body is not None:
        data["body"] = _encode_function(node.body)
    if node.origin:
        data["origin"] = node.origin
    return data


def _encode_tensor(tensor: GraphTensor) -> dict[str, Any]:
    return {"dtype": tensor.dtype, "shape": _encode_shape(tensor.shape)}


def _encode_shape(shape: tuple[Dim, ...]) -> list[int | str]:
    return [dim if isinstance(dim, int) else str(dim) for dim in shape]


def _encode_attr(value: GraphAttr) -> Any:
    if isinstance(value, DimExpr):
        return {"dim": str(value)}
    if isinstance(value, tuple):
        return [_encode_attr(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


# Reading


def checked_fields(data: object, where: str, *names: str, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a JSON object with exactly the fields of these names and perhaps optional fields.

    Raises:
        ArtifactError: a field is missing or unknown, or the value is no object.
    """
    if not isinstance(data, dict):
        raise ArtifactError(where, "is not an object", got=type(data).__name__)
    missing = [name for name in names if name not in data]
    if missing:
        raise ArtifactError(where, f"has no field {missing[0]!r}")
    unknown = sorted(set(data) - set(names) - set(optional))
    if unknown:
        raise ArtifactError(where, f"has an unknown field {unknown[0]!r}", expected=", ".join((*names, *optional)))
    return data


def _list(data: object, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise ArtifactError(where, "is not a list", got=type(data).__name__)
    return data


def _text(data: object, where: str) -> str:
    if not isinstance(data, str) or not data:
        raise ArtifactError(where, "is not a text", got=repr(data))
    return data


def _decode_kernels(data: object, where: str) -> dict[str, KernelOrigin]:
    kernels: dict[str, KernelOrigin] = {}
    for index, value in enumerate(_list(data, where)):
        location = f"{where}, item {index}"
        item = checked_fields(value, location, "op", "runtime", "distribution")
        op, runtime, distribution = (
            _text(item[key], f"{location}, {key}") for key in ("op", "runtime", "distribution")
        )
        if op in kernels:
            raise ArtifactError(location, "names a kernel twice", got=repr(op)[:80])
        kernels[op] = KernelOrigin(runtime, distribution)
    return kernels


def _decode_shape(data: object, where: str) -> tuple[Dim, ...]:
    return tuple(_decode_dim(item, f"{where}, axis {axis}") for axis, item in enumerate(_list(data, where)))


def _decode_dim(data: object, where: str) -> Dim:
    if type(data) is int and 0 <= data <= _MAX_SIZE:
        return data
    if isinstance(data, str):
        try:
            dim = read_dim(data)
        except IRTypeError as error:
            raise ArtifactError(where, error.problem) from error
        if isinstance(dim, DimExpr):
            return dim
    raise ArtifactError(where, "is not a size", got=repr(data)[:80], expected="a non-negative integer or an expression")


def _decode_dtype(data: object, where: str) -> str:
    try:
        return dtype_info(_text(data, where)).name
    except IRTypeError as error:
        raise ArtifactError(where, error.problem, hint=error.hint) from error


def _decode_tensor(item: dict[str, Any], where: str, shared: _Shared) -> GraphTensor:
    tensor = GraphTensor(_decode_dtype(item["dtype"], where), _decode_shape(item["shape"], f"{where}, shape"))
    first: GraphTensor = shared.setdefault(tensor, tensor)
    return first


def _decode_constant(data: object, where: str, shared: _Shared) -> GraphConstant:
    item = checked_fields(data, where, "digest", "dtype", "shape")
    digest = _text(item["digest"], where)
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise ArtifactError(where, "has no valid digest", got=repr(digest)[:80])
    tensor = _decode_tensor(item, where, shared)
    if not all(isinstance(dim, int) for dim in tensor.shape):
        raise ArtifactError(where, "has a symbolic size", got=tensor)
    return GraphConstant(sys.intern(digest), tensor)  # the artifact cites the digest too


def _decode_function(data: object, where: str, depth: int, shared: _Shared) -> GraphFunction:
    if depth > _MAX_BODY_DEPTH:
        raise ArtifactError(where, f"bodies are nested more than {_MAX_BODY_DEPTH} levels deep")
    item = checked_fields(data, where, "name", "inputs", "constants", "nodes", "outputs")
    name = _text(item["name"], f"{where}, name")
    where = f"{where} (`{name}`)"
    inputs: list[TensorSpec] = []
    for index, value in enumerate(_list(item["inputs"], f"{where}, inputs")):
        location = f"{where}, input {index}"
        value = checked_fields(value, location, "name", "dtype", "shape")
        tensor = _decode_tensor(value, location, shared)
        inputs.append(TensorSpec(_text(value["name"], location), tensor.dtype, tensor.shape))
    constants = [
        _decode_constant(value, f"{where}, constant {index}", shared)
        for index, value in _consumed(_list(item["constants"], f"{where}, constants"))
    ]
    values = [GraphTensor(s.dtype, s.shape) for s in inputs] + [c.tensor for c in constants]
    nodes: list[GraphNode] = []
    for index, value in _consumed(_list(item["nodes"], f"{where}, nodes")):
        node = _decode_node(value, f"{where}, node {index}", values, depth, shared)
        nodes.append(node)
        values.extend(node.outputs)
    outputs: list[tuple[str, int]] = []
    for index, value in enumerate(_list(item["outputs"], f"{where}, outputs")):
        location = f"{where}, output {index}"
        value = checked_fields(value, location, "name", "value")
        outputs.append((_text(value["name"], location), _decode_id(value["value"], len(values), location)))
    function = GraphFunction(name, tuple(inputs), tuple(constants), tuple(nodes), tuple(outputs))
    _check_symbols(function, where)
    return function


def _consumed(items: list[Any]) -> Iterator[tuple[int, Any]]:
    """Yield items with their indexes, and remove the items from the list: the decoded objects reuse their memory."""
    for index, item in enumerate(items):
        items[index] = None
        yield index, item


def _decode_id(data: object, count: int, where: str) -> int:
    if type(data) is not int or not 0 <= data < count:
        raise ArtifactError(where, "reads a value not defined earlier", got=repr(data)[:80])
    return data


def _decode_node(data: object, where: str, values: list[GraphTensor], depth: int, shared: _Shared) -> GraphNode:
    item = checked_fields(data, where, "op", "inputs", "attrs", "outputs", optional=("body", "origin"))
    op = _text(item["op"], f"{where}, op")
    op = shared.setdefault(op, op)
    where = f"{where} (`{op}`)"
    inputs = tuple(_decode_id(value, len(values), where) for value in _list(item["inputs"], f"{where}, inputs"))
    if not isinstance(item["attrs"], dict):
        raise ArtifactError(f"{where}, attrs", "is not an object", got=type(item["attrs"]).__name__)
    attrs = _decode_attrs(item["attrs"], where, shared)
    outputs = tuple(
        _decode_output(value, f"{where}, output {index}", shared)
        for index, value in enumerate(_list(item["outputs"], f"{where}, outputs"))
    )
    if not outputs:
        raise ArtifactError(where, "has no output")
    body = None
    if "body" in item:
        body = _decode_function(item["body"], f"{where}, body", depth + 1, shared)
        _check_body(body, [values[id_] for id_ in inputs], outputs, where)
    origin = _decode_origin(item["origin"], where) if "origin" in item else ""
    return GraphNode(op, inputs, shared.setdefault(outputs, outputs), attrs, body, origin)


def _decode_origin(data: object, where: str) -> str:
    origin = _text(data, f"{where}, origin")
    if not origin.isprintable():
        raise ArtifactError(f"{where}, origin", "is not printable", got=repr(origin)[:80])
    return origin


def _decode_output(data: object, where: str, shared: _Shared) -> GraphTensor:
    cached: tuple[object, GraphTensor] | None = shared.get(("output", id(data)))
    if cached is None:
        item = checked_fields(data, where, "dtype", "shape")
        cached = shared["output", id(data)] = data, _decode_tensor(item, where, shared)
    return cached[1]


def _decode_attrs(data: dict[str, Any], where: str, shared: _Shared) -> Mapping[str, GraphAttr]:
    cached: tuple[object, Mapping[str, GraphAttr]] | None = shared.get(("attrs", id(data)))
    if cached is None:
        attrs = {name: _decode_attr(value, f"{where}, attribute `{name}`") for name, value in data.items()}
        cached = shared["attrs", id(data)] = data, MappingProxyType(attrs)
    return cached[1]


def _decode_attr(data: object, where: str) -> GraphAttr:
    if isinstance(data, list):
        return tuple(_decode_attr(item, where) for item in data)
    if isinstance(data, dict):
        if set(data) == {"dim"} and isinstance(data["dim"], str):
            return _decode_dim(data["dim"], where)
        if set(data) == {"float"} and data["float"] in ("nan", "inf", "-inf"):
            return float(data["float"])
        raise ArtifactError(where, "is not an attribute value", got=repr(data)[:80])
    assert data is None or isinstance(data, bool | int | float | str)  # the other types of JSON
    if isinstance(data, int) and abs(data) > _MAX_SIZE + 1:
        raise ArtifactError(where, "is an integer of more than 64 bits")
    return data


def _check_body(body: GraphFunction, inputs: list[GraphTensor], outputs: tuple[GraphTensor, ...], where: str) -> None:
    def kinds(tensors: list[GraphTensor] | tuple[GraphTensor, ...]) -> list[tuple[str, int]]:
        return [(tensor.dtype, len(tensor.shape)) for tensor in tensors]

    parameters = [GraphTensor(spec.dtype, spec.shape) for spec in body.inputs]
    results = [body.values[id_] for _, id_ in body.outputs]
    if kinds(parameters) != kinds(inputs) or kinds(results) != kinds(outputs):
        raise ArtifactError(where, "the body has other inputs or outputs than the node")


def _check_symbols(function: GraphFunction, where: str) -> None:
    """Check that every symbol needed by an attribute occurs in a shape passed by the caller."""
    for index, node in enumerate(function.nodes):
        for name, value in node.attrs.items():
            unknown = attr_symbols(value) - function.given_symbols
            if unknown:
                raise ArtifactError(
                    f"{where}, node {index} (`{node.op}`), attribute `{name}`",
                    f"symbol {min(unknown)} is in no shape passed by the caller",
                )
