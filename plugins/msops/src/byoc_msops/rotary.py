"""The importer of rotary position embedding, and its emission for attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import Value

from byoc_msops.operands import join_heads, split_heads

__all__ = ["IMPORTERS", "rotate"]


def rotate(node: NodeContext, x: Value, positions: Value, caches: tuple[int, int], *, interleaved: bool) -> Value:
    """Return heads with pairs of elements rotated by the angles of their positions.

    Shapes: ``(B, H, S, D)``, positions ``(B, S)`` or ``(S,)``; caches ``(M, R)`` with ``2 * R <= D``.

    Args:
        node: the node.
        x: the heads.
        positions: integers, rows of the caches.
        caches: the inputs with the cosines and the sines.
        interleaved: whether the elements of a pair are neighbours.
    """
    batch, _, steps, _ = node.shape_of(x)
    angles: list[Value] = []
    for index in caches:
        angle: Value = node.emit("take", node.value(index), positions, axis=0)
        if len(node.shape_of(angle)) == 2:
            angle = node.emit("broadcast_to", angle, shape=(batch, steps, node.shape_of(angle)[1]))
        angles.append(angle)
    return node.emit("nn.rotary_embedding", x, *angles, interleaved=interleaved)


def _import_rotary(node: NodeContext) -> Sequence[Imported]:
    """Import the rotation of heads ``(B, H, S, D)``, or side by side ``(B, S, H * D)``."""
    node.ignore_attrs("scale")  # without effect in ONNX Runtime
    if node.attr_flag("is_packed_batching"):
        raise node.error("attribute `is_packed_batching` has an unsupported value", got=1, expected=0)
    shape, width = node.shape(0), node.shape(2)[-1] * 2
    heads, partial = node.attr_int("num_heads", 0), node.attr_int("rotary_embedding_dim", 0)
    if partial and partial != width:
        raise node.error("attribute `rotary_embedding_dim` differs from the caches", got=partial, expected=width)
    x = node.value(0)
    if len(shape) == 3:
        if not heads and partial:
            raise node.error("lacks attribute `num_heads`")
        inferred = shape[2] // width
        if not heads and not isinstance(inferred, int):
            raise node.error("the number of heads is unknown", got=shape, expected="attribute `num_heads`")
        x = split_heads(node, x, heads or int(str(inferred)), "input 0")
    elif len(shape) != 4:
        raise node.error("input 0 has the wrong rank", got=shape, expected="3 or 4")
    result = rotate(node, x, _read_positions(node, x), (2, 3), interleaved=node.attr_flag("interleaved"))
    return (join_heads(node, result) if len(shape) == 3 else result,)


def _read_positions(node: NodeContext, x: Value) -> Value:
    """Return the positions of all steps; a single number is the position of the first step."""
    shape = node.shape(1)
    if shape != (1,):
        if len(shape) != 2:
            raise node.error(
                "input 1, the positions, has the wrong shape", got=shape, expected="(1,) or (batch, steps)"
            )
        return node.value(1)
    steps = node.emit("arange", stop=node.shape_of(x)[2], dtype=node.type(1).dtype)
    return node.emit("add", steps, node.value(1))


IMPORTERS: Mapping[str, NodeImporter] = {"RotaryEmbedding": _import_rotary}
"""The module's importers, by operator."""
