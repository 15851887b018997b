"""Importers for control flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from byoc_core.dims import Dim, dim_max
from byoc_core.frontend.onnx.differing_sizes import shapes_of_alike
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.rounds import Round, Rounds, count_nodes, read_scalar
from byoc_core.frontend.onnx.ops.structured import alike, from_parts, part_names, to_parts
from byoc_core.frontend.onnx.regions import Region
from byoc_core.frontend.onnx.weights import to_array
from byoc_core.ir.module import Value, Var
from byoc_core.opset.types import TensorType

__all__ = ["IMPORTERS"]

_FOREVER = np.array(np.iinfo(np.int64).max, np.int64)


def _import_if(node: NodeContext) -> Sequence[Imported]:
    """Import only the taken branch if the condition is known, else both as regions of the IR's ``if``."""
    names = ("then_branch", "else_branch")
    for name in names:
        outputs = node.attr_graph(name).output
        if len(outputs) != len(node.output_names):
            raise node.error(
                f"attribute `{name}` and the node have different numbers of outputs",
                got=len(outputs),
                expected=len(node.output_names),
            )
    constant = node.array(0)
    if constant is not None:
        return node.inline(names[0] if _read_condition(node, constant) else names[1], ())
    condition = read_scalar(node, node.value(0), "bool", "the condition")
    branches = [_import_branch(node, name) for name in names]
    forms = _unify_kinds(node, branches)
    _unify(node, branches)
    finished = [branch.region.finish(branch.results) for branch in branches]
    captured = dict.fromkeys(outer for _, params in finished for outer in params)
    functions = [
        replace(function, params=tuple(params.get(outer) or Var(outer.name, outer.type) for outer in captured))
        for function, params in finished
    ]
    results = iter(node.emit_all("if", (condition, *captured), {}, functions))
    return [from_parts(form, results) for form in forms]


@dataclass
class _Branch:
    """An imported branch of an ``If``.

    Attributes:
        region: the function of the branch.
        inner: the node from the perspective inside.
        outputs: the imported forms of the outputs.
        results: the tensors of the outputs, in order.
        names: a name for each tensor.
    """

    region: Region
    inner: NodeContext
    outputs: Sequence[Imported]
    results: list[Value] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def open(self, axes: Mapping[int, int], size: Dim) -> None:
        """Put a size known only at run time in place of a size of some results, by index with the axis."""
        types = [self._with_size(self.results[index], axis, size) for index, axis in axes.items()]
        attrs: dict[str, object] = {"axes": tuple(axes.values())}
        values = self.inner.emit_all("as_dynamic", [self.results[i] for i in axes], attrs, out_types=types)
        for index, value in zip(axes, values, strict=True):
            self.results[index] = value

    def _with_size(self, value: Value, axis: int, size: Dim) -> TensorType:
        shape = self.inner.shape_of(value)
        return TensorType((*shape[:axis], size, *shape[axis + 1 :]), self.inner.tensor_type(value).dtype)


def _import_branch(node: NodeContext, name: str) -> _Branch:
    region, inner = node.open_region(name)
    return _Branch(region, inner, inner.inline(name, ()))


def _unify_kinds(node: NodeContext, branches: Sequence[_Branch]) -> list[Imported]:
    """Give the outputs of both branches the same kinds, and return a form for each output."""
    found: list[Imported] = []
    nodes = [branch.inner for branch in branches]
    for name, *outputs in zip(node.output_names, *(branch.outputs for branch in branches), strict=True):
        forms = alike(nodes, outputs, f"output `{name}`")
        for branch, form in zip(branches, forms, strict=True):
            branch.results += to_parts(branch.inner, form, f"output `{name}`")
            branch.names += part_names(form, name)
        found.append(forms[0])
    return found


def _unify(node: NodeContext, branches: Sequence[_Branch]) -> None:
    """Give the results of both branches the same types: a size known only at run time stands for different sizes.

    Results with the same pair of sizes share the new size.

    Raises:
        FrontendError: the branches disagree on the dtype or the rank of a result.
    """
    # By the sizes in both branches, and the number of earlier axes of the result with these sizes.
    groups: dict[tuple[Dim, Dim, int], dict[int, int]] = {}
    for index, (first, second) in enumerate(zip(*(branch.results for branch in branches), strict=True)):
        if first.type == second.type:
            continue
        shapes = shapes_of_alike(first.type, second.type)
        if shapes is None:
            raise node.error(
                f"the branches disagree on the type of output `{branches[0].names[index]}`",
                got=f"{first.type} and {second.type}",
                expected="the same dtype and rank, because the condition is computed at run time",
            )
        earlier = Counter[tuple[Dim, Dim]]()
        for axis, sizes in enumerate(zip(*shapes, strict=True)):
            if sizes[0] != sizes[1]:
                groups.setdefault((*sizes, earlier[sizes]), {})[index] = axis
                earlier[sizes] += 1
    for axes in groups.values():
        size = node.fresh_size(branches[0].names[min(axes)])
        for branch in branches:
            branch.open(axes, size)


def _read_condition(node: NodeContext, condition: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bool:
    if condition.size != 1 or condition.dtype != np.bool_:
        raise node.error(
            "the condition is not a scalar of the right dtype",
            got=f"{condition.dtype} of shape {condition.shape}",
            expected="bool",
        )
    return bool(condition.item())


def _import_loop(node: NodeContext) -> Sequence[Imported]:
    """Import a loop. A missing condition starts the loop; later the body's condition decides, as in ONNX Runtime."""
    body = node.attr_graph("body")
    carried = [node.imported(index) for index in range(2, node.num_inputs)]
    num_outputs = len(body.output) - 1
    if not len(carried) <= num_outputs or len(node.output_names) > num_outputs:
        raise node.error(
            "attribute `body` has the wrong number of outputs",
            got=len(body.output),
            expected=f"the condition, {len(carried)} carried values, then the scan outputs",
        )
    if len(body.input) != 2 + len(carried):
        raise node.error(
            "attribute `body` has the wrong number of inputs", got=len(body.input), expected=2 + len(carried)
        )

    condition_rank = len(node.shape(1)) if node.has_input(1) else 0
    ranks = [_declared_rank(body.input[0], 0), _declared_rank(body.input[1], condition_rank)]

    def run(inner: NodeContext, number: Imported, values: Sequence[Imported]) -> Round:
        indicators = [_with_rank(inner, *pair) for pair in zip((number, np.array(True)), ranks, strict=True)]
        condition, *outputs = inner.inline("body", (*indicators, *values))
        return Round(condition, outputs[: len(carried)], outputs[len(carried) :])

    limit: Imported = node.imported(0) if node.has_input(0) else _FOREVER
    condition: Imported = node.imported(1) if node.has_input(1) else np.array(True)
    rounds = Rounds(
        node,
        count_nodes(body),
        [value.name for value in body.input[2:]],
        run,
        _count_rounds(node, body),
        limit,
        condition,
        [False] * (num_outputs - len(carried)),
    )
    return rounds.emit(carried)


def _with_rank(inner: NodeContext, scalar: Imported, rank: int) -> Imported:
    """Return the number of a round, or its condition, with axes of size 1."""
    array = inner.as_array(scalar)
    shape = (1,) * rank
    return inner.reshape(inner.to_value(scalar, "a scalar"), shape) if array is None else array.reshape(shape)


def _declared_rank(declared: onnx.ValueInfoProto, default: int) -> int:
    tensor = declared.type.tensor_type
    return len(tensor.shape.dim) if tensor.HasField("shape") else default


def _count_rounds(node: NodeContext, body: onnx.GraphProto) -> Dim | None:
    """Return the number of rounds, or ``None`` if known only at run time."""
    starts = node.array(1) if node.has_input(1) else np.array(True)
    if starts is not None and not _read_condition(node, starts):
        return 0
    limit = node.shape_value(0) if node.has_input(0) else None
    counts = None if limit is None else limit.dims
    if starts is None or counts is None or len(counts) != 1 or not _is_always_true(node, body):
        return None
    (count,) = counts
    return dim_max(count, 0)


def _is_always_true(node: NodeContext, body: onnx.GraphProto) -> bool:
    """Return whether a body's output condition is its input condition, or a true constant."""
    producers = {output: inner for inner in body.node for output in inner.output}
    name = body.output[0].name
    for _ in body.node:  # a damaged body may have a cycle
        if name in producers and producers[name].op_type == "Identity":
            name = next(iter(producers[name].input), "")
    if name in ("", body.input[1].name):
        return bool(name)
    tensors = {tensor.name: tensor for tensor in body.initializer}
    if name in producers and producers[name].op_type == "Constant":
        tensors.update((name, attribute.t) for attribute in producers[name].attribute if attribute.name == "value")
    if name in tensors:
        constant: np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None = to_array(tensors[name], node.label, None)
    else:
        constant = None if name in producers else node.as_array(node.named(name))
    return constant is not None and bool(np.all(constant))


IMPORTERS: dict[str, NodeImporter] = {
    "If": _import_if,
    "Loop": _import_loop,
}
"""The family's importers, by ONNX name."""
