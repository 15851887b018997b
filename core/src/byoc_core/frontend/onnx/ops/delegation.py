"""Nodes left to the package ``onnx``: of operators without importer, and of operators reading strings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import Imported, NodeContext
from byoc_core.frontend.onnx.ops.strings import in_order
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.frontend.onnx.weights import DTYPES, ELEMENT_TYPES
from byoc_core.ir.module import Value
from byoc_core.opset.delegated import ABSENT, PREFIX, STRINGS, TENSOR, node_text
from byoc_core.opset.types import TensorType

__all__ = ["STRING_DOMAINS", "check_all_strings", "delegate", "is_evaluated", "makes_strings", "op_name"]


STRING_DOMAINS = ("", "ai.onnx.ml")
"""The domains with operators on strings that the package ``onnx`` evaluates."""


def makes_strings(node: NodeContext) -> bool:
    """Return whether a node without strings as inputs is a conversion to strings."""
    is_cast = node.op_type == "Cast" and not node.domain
    return is_cast and node.attr_int("to") == onnx.TensorProto.STRING


def op_name(domain: str, op_type: str) -> str:
    """Return the name of the delegated op for an operator."""
    return f"{PREFIX}{'ml.' if domain else ''}{op_type}"


def is_evaluated(domain: str, op_type: str, opset: int) -> bool:
    """Return whether the package ``onnx`` can evaluate an operator of the domains with strings."""
    from onnx.reference.op_run import OpRun
    from onnx.reference.ops import aionnxml, load_op

    try:
        onnx.defs.get_schema(op_type, opset, domain)
        found = (aionnxml.load_op if domain else load_op)(domain, op_type, opset)
    except onnx.defs.SchemaError:
        return False
    except (RuntimeError, KeyError, ValueError):  # no class is documented
        return False
    return isinstance(found, type) and issubclass(found, OpRun)


def delegate(node: NodeContext) -> Sequence[Imported]:
    """Import a node as a delegated op.

    Raises:
        FrontendError: an input is a sequence, or the rank of an output is unknown.
    """
    forms: list[str] = []
    operands: list[Value] = []
    infos: list[onnx.ValueInfoProto] = []
    sizes: dict[str, Dim] = {}
    for index, name in enumerate(node.input_names):
        if not name:
            forms.append(ABSENT)
            continue
        value = node.imported(index)
        if isinstance(value, StringTensor):
            if not _takes_strings(node, index):
                raise node.error(f"needs `{name}` as a tensor of numbers", got=value)
            strings = in_order(node, value)
            forms.append(STRINGS)
            operands += strings.data, strings.lengths
            kind, shape = int(onnx.TensorProto.STRING), node.shape_of(strings.lengths)
        else:
            forms.append(TENSOR)
            operands.append(node.value(index))
            kind, shape = ELEMENT_TYPES[node.type(index).dtype], node.shape(index)
        infos.append(_info(name, kind, shape))
        sizes.update((str(dim), dim) for dim in shape)
    outputs = list(_outputs(node, infos, sizes))
    types: list[TensorType] = []
    for form, type_ in outputs:
        if form == STRINGS:
            types.append(TensorType((node.fresh_size("bytes"),), "uint8"))
        if type_ is not None:
            types.append(type_)
    attrs: dict[str, object] = {
        "node": node_text(node.serialised()),
        "opset": node.opset,
        "ml_opset": node.domain_version if node.domain else onnx.defs.onnx_ml_opset_version(),
        "inputs": "".join(forms),
        "outputs": "".join(form for form, _ in outputs),
    }
    results = iter(node.emit_all(op_name(node.domain, node.op_type), operands, attrs, out_types=types))
    return list(_imported([form for form, _ in outputs], results))


def check_all_strings(node: NodeContext) -> None:
    """Check whether each input is of strings that may be of strings, for a node that moves strings.

    Raises:
        FrontendError: an input is of numbers.
    """
    for index, name in enumerate(node.input_names):
        if name and not isinstance(node.imported(index), StringTensor) and _takes_strings(node, index):
            raise node.error(f"needs `{name}` as a tensor of strings")


def _takes_strings(node: NodeContext, index: int) -> bool:
    """Return whether an input may be of strings.

    Raises:
        FrontendError: the operator set has no such operator.
    """
    version = node.domain_version if node.domain else node.opset
    try:
        declared = onnx.defs.get_schema(node.op_type, version, node.domain).inputs
    except onnx.defs.SchemaError as error:
        raise node.error(f"the op does not exist in version {version} of the operator set") from error
    return "tensor(string)" in declared[min(index, len(declared) - 1)].types


def _imported(forms: Sequence[str], results: Iterator[Value]) -> Iterator[Imported]:
    for form in forms:
        if form == STRINGS:
            yield StringTensor(next(results), next(results))
        elif form == TENSOR:
            yield next(results)


def _info(name: str, kind: int, shape: Sequence[Dim]) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, kind, [dim if isinstance(dim, int) else str(dim) for dim in shape])


def _outputs(
    node: NodeContext, inputs: Sequence[onnx.ValueInfoProto], sizes: Mapping[str, Dim]
) -> Iterator[tuple[str, TensorType | None]]:
    """Yield the form and the type of each output: of the lengths, for strings; ``sizes`` has the sizes of inputs."""
    types = {value.name: value.type.tensor_type for value in _infer(node, inputs)}
    for name in node.output_names:
        if not name:
            yield ABSENT, None
            continue
        found = types.get(name)
        if found is None or not found.HasField("shape"):
            raise node.error(f"is left to the package `onnx`, but the rank of output `{name}` is unknown")
        shape = tuple(
            dim.dim_value
            if dim.HasField("dim_value")
            else sizes[dim.dim_param]
            if dim.dim_param in sizes
            else node.fresh_size(name)
            for dim in found.shape.dim
        )
        is_text = found.elem_type == onnx.TensorProto.STRING
        yield (STRINGS, TensorType(shape, "int64")) if is_text else (TENSOR, TensorType(shape, DTYPES[found.elem_type]))


def _infer(node: NodeContext, inputs: Sequence[onnx.ValueInfoProto]) -> Sequence[onnx.ValueInfoProto]:
    """Return the outputs with the types inferred by the package ``onnx``."""
    graph = onnx.helper.make_graph(
        [onnx.NodeProto.FromString(node.serialised())],
        "node",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in node.output_names if name],
    )
    versions = {"": node.opset, **({node.domain: node.domain_version} if node.domain else {})}
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in versions.items()]
    model = onnx.helper.make_model(graph, opset_imports=imports)
    try:
        return list(onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output)
    except Exception as error:  # InferenceError of the C extension
        raise node.error(f"is refused by the package `onnx`: {error}") from error
