"""Importer for gradients of a graph (domain ``ai.onnx.preview.training``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from byoc_core.dtypes import is_float
from byoc_core.errors import IRError, IRTypeError, UnsupportedOpsError
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.optimisers import DOMAIN
from byoc_core.frontend.onnx.regions import Region
from byoc_core.ir.module import Function, Value, Var

__all__ = ["DOMAIN", "IMPORTERS"]


def _import_gradient(node: NodeContext) -> Sequence[Imported]:
    """Import the gradients of the sum of the elements of ``y`` by the tensors of ``xs``.

    The inputs replace the tensors named in ``xs`` and ``zs``, and the nodes between these tensors and ``y`` are
    imported once more. If the inputs are the named tensors, the compiler merges both imports.
    """
    variables, fixed = _read_sources(node)
    if len(node.output_names) > len(variables):
        raise node.error("has more outputs than `xs` has tensors", got=len(node.output_names), expected=len(variables))
    region, inner = node.open_region("gradient")
    params = {name: region.param(name, value.type) for name, value in variables.items()}
    target = node.attr_string("y")
    result = inner.to_value(node.recompute(target, region, params, fixed), f"`{target}`")
    if not is_float(node.tensor_type(result).dtype):
        raise node.error(f"`{target}` holds no floats", got=result.type)
    function, captured = region.finish((result,))
    function = replace(function, params=(*params.values(), *captured.values()))
    indices = [index for index, name in enumerate(node.output_names) if name]
    order = list(params.values())
    gradients = _differentiate(node, region, function, [order[index] for index in indices])
    values = node.inline_region(region, gradients, (*variables.values(), *captured))
    found: dict[int, Imported] = dict(zip(indices, values, strict=True))
    return [found.get(index, values[0]) for index in range(node.num_outputs)]  # nothing reads an omitted output


def _read_sources(node: NodeContext) -> tuple[dict[str, Value], dict[str, Imported]]:
    """Return the inputs for the tensors of ``xs``, then the inputs for the tensors of ``zs``, by name.

    Raises:
        FrontendError: a name is repeated, the number of inputs is wrong, or a tensor of ``xs`` holds no floats.
    """
    xs, zs = node.attr_strings("xs"), node.attr_strings("zs", ())
    if not xs:
        raise node.error("attribute `xs` names no tensor")
    repeated = [name for name, count in Counter((*xs, *zs)).items() if count > 1]
    if repeated:
        raise node.error("attributes `xs` and `zs` name a tensor twice", got=repeated[0])
    if node.num_inputs != len(xs) + len(zs):
        expected = f"{len(xs) + len(zs)}, one for each tensor of `xs` and `zs`"
        raise node.error("has the wrong number of inputs", got=node.num_inputs, expected=expected)
    for index, name in enumerate(xs):
        if not is_float(node.type(index).dtype):
            raise node.error(f"input {index}, for `{name}`, holds no floats", got=node.type(index))
    variables = {name: node.value(index) for index, name in enumerate(xs)}
    return variables, {name: node.imported(index) for index, name in enumerate(zs, len(xs))}


def _differentiate(node: NodeContext, region: Region, function: Function, variables: Sequence[Var]) -> Function:
    """Return the function of the gradients.

    Raises:
        UnsupportedOpsError: there are ops without derivative; all of these are listed.
    """
    from byoc_core.transform.gradients import differentiate

    try:
        return differentiate(function, variables, ops=region.builder.ops, constants=region.builder.constants)
    except IRTypeError:
        raise
    except IRError as error:
        problem = f"{error.where} {error.problem}"
        raise UnsupportedOpsError(node.label, problem, got=error.got, detail=error.detail) from error


IMPORTERS: dict[str, NodeImporter] = {"Gradient": _import_gradient}
"""The family's importers, by ONNX name."""
