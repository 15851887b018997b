"""The ops of the package: ensembles of trees, keys, and pairwise coupling. Imported by both halves."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim
from byoc_core.dtypes import is_float
from byoc_core.opset import (
    NORM,
    AttrKind,
    AttrSpec,
    OpContext,
    OpDef,
    OperandCase,
    OperandSpec,
    TensorType,
    TypeContext,
    example,
    integers,
    no_flops,
)

from byoc_mlops.coupling_kernel import couple_probabilities
from byoc_mlops.key_kernel import key_index
from byoc_mlops.tree_kernel import AGGREGATES, tree_ensemble

__all__ = ["OPS"]

_NODE_OPERANDS = ("features", "thresholds", "modes", "true_children", "false_children", "missing_true")
_TREE_OPERANDS = (
    ("x", *_NODE_OPERANDS, "roots"),
    ("member_nodes", "members"),
    ("weight_leaves", "weight_targets", "weights"),
)
_TREE_NAMES = tuple(name for group in _TREE_OPERANDS for name in group)
_REALS = ("thresholds", "members", "weights")


def _require_rank(context: TypeContext, index: int, rank: int, layout: str) -> tuple[Dim, ...]:
    shape = context.shape(index)
    if len(shape) != rank:
        raise context.error("has the wrong rank", operand=index, got=f"({', '.join(map(str, shape))})", expected=layout)
    return shape


def _require_dtype(context: TypeContext, index: int, dtype: str) -> None:
    if context.tensor(index).dtype != dtype:
        raise context.error("has the wrong dtype", operand=index, got=context.tensor(index).dtype, expected=dtype)


def _require_float(context: TypeContext) -> str:
    dtype = context.tensor(0).dtype
    if not is_float(dtype):
        raise context.error("is not of floats", operand=0, got=dtype)
    return dtype


def _require_equal_sizes(context: TypeContext, indices: Sequence[int]) -> None:
    """Check that vectors have as many elements as the first."""
    (size,) = _require_rank(context, indices[0], 1, "a vector")
    for index in indices[1:]:
        (other,) = _require_rank(context, index, 1, "a vector")
        if isinstance(other - size, int) and other != size:
            first = context.operand_names[indices[0]] if context.operand_names else indices[0]
            raise context.error(f"has another size than `{first}`", operand=index, got=other, expected=size)


def _infer_trees(context: TypeContext) -> tuple[TensorType, ...]:
    dtype = _require_float(context)
    samples, _ = _require_rank(context, 0, 2, "(N, F)")
    for index, name in enumerate(_TREE_NAMES[1:], 1):
        _require_dtype(context, index, "bool" if name == "missing_true" else dtype if name in _REALS else "int64")
    names = _TREE_NAMES
    _require_rank(context, names.index("roots"), 1, "a vector")
    for group in (_NODE_OPERANDS, *_TREE_OPERANDS[1:]):
        _require_equal_sizes(context, [names.index(name) for name in group])
    num_targets = context.attrs["num_targets"]
    if num_targets < 1:
        raise context.error("attribute `num_targets` is not positive", got=num_targets)
    return (TensorType((samples, num_targets), dtype),)


def _tree_flops(context: OpContext) -> Dim:
    """Return a comparison for each level of balanced trees, and an addition, for each sample and tree."""
    (nodes,), (trees,) = context.operand_shape(1), context.operand_shape(_TREE_NAMES.index("roots"))
    if not (isinstance(nodes, int) and isinstance(trees, int) and trees):
        return context.elements()
    depth = (nodes // trees + 1).bit_length()
    return context.operand_shape(0)[0] * (trees * (depth + 1))


def _infer_key_index(context: TypeContext) -> tuple[TensorType, ...]:
    _require_rank(context, 1, 1, "a vector")
    _require_dtype(context, 1, context.tensor(0).dtype)
    return (TensorType(context.tensor(0).shape, "int64"),)


def _infer_coupling(context: TypeContext) -> tuple[TensorType, ...]:
    dtype = _require_float(context)
    samples, pairs = _require_rank(context, 0, 2, "(N, K * (K - 1) / 2)")
    count = context.attrs["num_classes"]
    if count < 2:
        raise context.error("attribute `num_classes` is below 2", got=count)
    if isinstance(pairs, int) and pairs != count * (count - 1) // 2:
        raise context.error("has another number of pairs", operand=0, got=pairs, expected=count * (count - 1) // 2)
    return (TensorType((samples, count), dtype),)


def _coupling_flops(context: OpContext) -> Dim:
    """Return the operations of ten rounds."""
    count = context.ints("num_classes")[0]
    return context.operand_shape(0)[0] * (10 * count * count * 6)


_STUMPS = (
    (5, 4),
    integers((3,), 0, 3),
    (3,),
    integers((3,), 0, 5),
    integers((3,), -4, -1),
    integers((3,), -4, -1),
    OperandCase((3,), "bool"),
    integers((2,), 0, 2),
    integers((2,), 0, 2),
    (2,),
    integers((7,), 0, 3),
    integers((7,), 0, 2),
    (7,),
)
"""Two trees of a single node each."""


OPS: tuple[OpDef, ...] = (
    OpDef(
        "mlops.tree_ensemble",
        tuple(OperandSpec(name) for name in _TREE_NAMES),
        infer=_infer_trees,
        attrs=(
            AttrSpec("num_targets", AttrKind.INT, doc="The number of targets."),
            AttrSpec("aggregate", AttrKind.STR, "sum", AGGREGATES, doc="The way of joining all weights of a target."),
        ),
        flops=_tree_flops,
        kernel=tree_ensemble,
        rounding=NORM,
        cases=lambda: tuple(example(*_STUMPS, num_targets=3, aggregate=aggregate) for aggregate in AGGREGATES),
        doc="Return the weights of the leaves reached by each sample, joined by target; 0 for a target without "
        "weights. Node ``m`` compares feature ``features[m]`` with ``thresholds[m]`` by ``modes[m]``: ``<=``, ``<``, "
        "``>=``, ``>``, ``==``, ``!=`` for 0 to 5; 6 asks whether the feature is among the ``members`` with "
        "``member_nodes`` equal to ``m``. The next node is ``true_children[m]`` or ``false_children[m]``; a negative "
        "number ``c`` is the leaf ``-1 - c``. NaN is compared by IEEE 754, and goes to the true child of nodes with "
        "``missing_true``. Weight ``w`` belongs to leaf ``weight_leaves[w]`` and target ``weight_targets[w]``. The "
        "average is over trees.\n\n"
        "Shapes: ``x`` ``(N, F)``; ``features`` to ``missing_true`` ``(M,)``; ``roots`` ``(T,)``; ``member_nodes`` "
        "and ``members`` ``(S,)``; the weights ``(W,)``. The result is ``(N, num_targets)``.",
    ),
    OpDef(
        "mlops.key_index",
        (OperandSpec("x"), OperandSpec("keys")),
        infer=_infer_key_index,
        flops=no_flops,
        kernel=key_index,
        cases=lambda: (
            example(integers((3, 4), 0, 6), integers((5,), 0, 6)),
            example((2, 3), (5,)),
        ),
        doc="Return the index of the first of the ``keys`` equal to each element of ``x``; the number of keys if none "
        "is equal. NaN equals NaN.\n\n"
        "Shapes: ``x`` of any shape, ``keys`` ``(K,)``; the result is int64 in the shape of ``x``.",
    ),
    OpDef(
        "mlops.couple_probabilities",
        (OperandSpec("pairs"),),
        infer=_infer_coupling,
        attrs=(AttrSpec("num_classes", AttrKind.INT, doc="The number ``K`` of classes."),),
        flops=_coupling_flops,
        kernel=couple_probabilities,
        rounding=NORM,
        cases=lambda: (example((4, 3), num_classes=3),),
        doc="Return the probabilities of ``K`` classes from the probabilities of class ``i`` against class ``j`` for "
        "all ``i < j``, by pairwise coupling (Wu, Lin, Weng, 2004, algorithm 2). The pairs are clipped to 1e-7 and "
        "1 - 1e-7.\n\n"
        "Shapes: ``(N, K * (K - 1) / 2) -> (N, K)``.",
    ),
)
"""The package's ops."""
