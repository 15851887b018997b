"""Importer for attention with graphs modifying scores and probabilities (domain ``ai.onnx.preview``)."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.attention_stages import PRECISIONS, scale_factors
from byoc_core.frontend.onnx.ops.normalisation import NARROW_FLOATS
from byoc_core.frontend.onnx.weights import DTYPES
from byoc_core.ir.module import Value

__all__ = ["DOMAIN", "IMPORTERS"]

DOMAIN = "ai.onnx.preview"
"""The domain of the family's ops."""

_MODIFIERS = ("score_mod", "prob_mod")


def _import_flex_attention(node: NodeContext) -> Sequence[Imported]:
    """Import ``prob_mod(softmax(score_mod(query @ key.T * scale))) @ value``.

    Without modifiers, attention of float32 and float64 is ``nn.attention``. Otherwise stages are separate ops, rounded
    like the stages of ONNX's function body; :class:`byoc_core.transform.RecogniseComposites` finds ``nn.attention`` if
    a modifier only adds to the scores or hides scores. A negative scale is the sign of the queries' factor; ONNX's
    function body takes its root, which is NaN.
    """
    shapes = _read_shapes(node)
    dtype, precision = node.type(0).dtype, _read_precision(node)
    scale = node.attr_float("scale") if node.has_attr("scale") else None
    is_plain = not any(map(node.has_attr, _MODIFIERS))
    if is_plain and precision == dtype and dtype not in NARROW_FLOATS:
        return (node.emit("nn.attention", *node.values(), scale=scale),)
    return (_emit_stages(node, shapes, precision, scale),)


def _read_shapes(node: NodeContext) -> list[tuple[Dim, ...]]:
    """Return the shapes of queries, keys and values.

    Raises:
        FrontendError: there are other inputs, or shapes of other ranks or with different sizes of a shared axis.
    """
    if node.num_inputs != 3:
        raise node.error("has the wrong number of inputs", got=node.num_inputs, expected=3)
    shapes = [node.shape(index) for index in range(3)]
    for index, shape in enumerate(shapes):
        if len(shape) != 4:
            raise node.error(f"input {index} has the wrong rank", got=shape, expected="(batch, heads, steps, size)")
    query, key, value = shapes
    for problem, found, expected in (
        ("keys have another batch size than queries", key[0], query[0]),
        ("keys have another head size than queries", key[3], query[3]),
        ("values have another batch size than keys", value[0], key[0]),
        ("values have another number of heads than keys", value[1], key[1]),
        ("values have another number of steps than keys", value[2], key[2]),
    ):
        if isinstance(found - expected, int) and found != expected:
            raise node.error(problem, got=found, expected=expected)
    return shapes


def _read_precision(node: NodeContext) -> str:
    """Return the dtype of the softmax: by default float64 for float64, else float32.

    Raises:
        FrontendError: the softmax is not of floats.
    """
    element_type = node.attr_int("softmax_precision", 0)
    if not element_type:
        return "float64" if node.type(0).dtype == "float64" else "float32"
    precision = DTYPES.get(element_type)
    if precision not in PRECISIONS:
        raise node.error(
            "attribute `softmax_precision` is unknown", got=precision or element_type, expected=", ".join(PRECISIONS)
        )
    return precision


def _emit_stages(node: NodeContext, shapes: Sequence[tuple[Dim, ...]], precision: str, scale: float | None) -> Value:
    """Return the attention as separate ops: scores in the dtype of the inputs, the other stages in the precision."""
    emit, dtype = node.emit, node.type(0).dtype
    (_, heads, _, size), (_, groups, _, _) = shapes[0], shapes[1]
    repeats = _count_repeats(node, heads, groups)
    query, key, value = node.value(0), *(_repeat_heads(node, node.value(index), repeats) for index in (1, 2))
    of_queries, of_keys = scale_factors(node, scale, size)
    turned = emit("permute_dims", emit("multiply", key, of_keys), axes=(0, 1, 3, 2))
    scores = _cast(node, emit("matmul", emit("multiply", query, of_queries), turned), precision)
    logits = _modify(node, "score_mod", scores)
    weights = emit("nn.stepwise_softmax" if precision in NARROW_FLOATS else "nn.softmax", logits, axis=3)
    result = emit("matmul", _modify(node, "prob_mod", weights), _cast(node, value, precision))
    return _cast(node, result, dtype)


def _count_repeats(node: NodeContext, heads: Dim, groups: Dim) -> int:
    """Return the number of query heads sharing a head of keys and values.

    Raises:
        FrontendError: the numbers of heads differ, and are unknown or no multiples.
    """
    if heads == groups:
        return 1
    if not (isinstance(heads, int) and isinstance(groups, int) and groups and heads % groups == 0):
        problem = "modifiers and rounding of each stage need equal or known numbers of heads"
        raise node.error(problem, got=(heads, groups), expected="a multiple of the second number as first number")
    return heads // groups


def _repeat_heads(node: NodeContext, value: Value, repeats: int) -> Value:
    """Return keys or values with each head repeated: ``(B, G, T, D) -> (B, G * repeats, T, D)``."""
    if repeats == 1:
        return value
    batch, groups, *rest = node.shape_of(value)
    groups_of_one = node.reshape(value, (batch, groups, 1, *rest))
    repeated = node.emit("broadcast_to", groups_of_one, shape=(batch, groups, repeats, *rest))
    return node.reshape(repeated, (batch, groups * repeats, *rest))


def _cast(node: NodeContext, value: Value, dtype: str) -> Value:
    return value if node.tensor_type(value).dtype == dtype else node.emit("cast", value, dtype=dtype)


def _modify(node: NodeContext, attribute: str, value: Value) -> Value:
    """Return the output of a modifier graph for a value; the value without such a graph.

    Raises:
        FrontendError: the graph has not one input and one output, or changes dtype or shape.
    """
    if not node.has_attr(attribute):
        return value
    num_outputs = len(node.attr_graph(attribute).output)
    if num_outputs != 1:
        raise node.error(f"attribute `{attribute}` has the wrong number of outputs", got=num_outputs, expected=1)
    (output,) = node.inline(attribute, (value,))
    modified = node.to_value(output, f"the output of `{attribute}`")
    expected, found = node.tensor_type(value), node.tensor_type(modified)
    shapes = node.shape_of(value), node.shape_of(modified)
    is_same_shape = len(shapes[0]) == len(shapes[1]) and all(
        left == right or not isinstance(left - right, int) for left, right in zip(*shapes, strict=True)
    )
    if found.dtype != expected.dtype or not is_same_shape:
        raise node.error(f"attribute `{attribute}` changes the type", got=found, expected=expected)
    return modified


IMPORTERS: dict[str, NodeImporter] = {"FlexAttention": _import_flex_attention}
"""The family's importers, by ONNX name."""
