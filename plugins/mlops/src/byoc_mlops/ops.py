"""The ops of the package: ensembles of trees, keys, pairwise coupling, and tokens. Imported by both halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    Trait,
    TypeContext,
    example,
    integers,
    no_flops,
)

from byoc_mlops.coupling_kernel import couple_probabilities
from byoc_mlops.key_kernel import key_index, string_index
from byoc_mlops.token_kernel import KINDS, take_spans, token_spans
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


def _infer_string_index(context: TypeContext) -> tuple[TensorType, ...]:
    for index, dtype in enumerate(("uint8", "int64", "uint8", "int64")):
        _require_dtype(context, index, dtype)
        if index != 1:
            _require_rank(context, index, 1, "a vector")
    return (TensorType(context.tensor(1).shape, "int64"),)


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


SizedTypes = Callable[[TypeContext, Dim], tuple[TensorType, ...]]


def _check_declared(types: SizedTypes, axis: int) -> Callable[[TypeContext], tuple[TensorType, ...]]:
    """Return the type rule of an op with a declared size, at an axis of its result counted from the end."""

    def infer(context: TypeContext) -> tuple[TensorType, ...]:
        declared = (context.declared or (None,))[0]
        shape = declared.shape if isinstance(declared, TensorType) else None
        if shape is None or len(shape) < -axis:
            raise context.error("needs its result type (`out_types=`)", got=declared)
        expected = types(context, shape[axis])
        if context.declared != expected:
            raise context.error("declares a result of another type", got=declared, expected=expected[0])
        return expected

    return infer


def _span_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    _require_rank(context, 0, 1, "(n,)")
    _require_dtype(context, 0, "uint8")
    _require_dtype(context, 1, "int64")
    return (TensorType((*context.shape(1), size, 2), "int64"),)


def _taken_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    _require_rank(context, 0, 1, "(n,)")
    _require_dtype(context, 1, "int64")
    shape = context.shape(1)
    if not shape or shape[-1] != 2:
        raise context.error("has no first byte and byte behind", operand=1, got=shape, expected="(..., 2)")
    return (TensorType((size,), context.tensor(0).dtype),)


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
        "mlops.string_index",
        tuple(OperandSpec(name) for name in ("data", "lengths", "key_data", "key_lengths")),
        infer=_infer_string_index,
        flops=no_flops,
        kernel=string_index,
        cases=lambda: (
            example(
                integers((6,), 97, 98, "uint8"),
                integers((3, 2), 1, 1),
                integers((4,), 97, 98, "uint8"),
                integers((4,), 1, 1),
            ),
        ),
        doc="Return the index of the first of the keys equal to each string; the number of keys if none is equal.\n\n"
        "Shapes: ``data`` uint8 ``(n,)``: the bytes of the strings; ``lengths`` int64 of any shape: the number of "
        "bytes of each; ``key_data`` uint8 ``(m,)`` and ``key_lengths`` int64 ``(K,)`` the same for the keys; the "
        "result is int64 in the shape of ``lengths``.",
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
    OpDef(
        "mlops.token_spans",
        (OperandSpec("data"), OperandSpec("lengths")),
        infer=_check_declared(_span_types, -2),
        attrs=(
            AttrSpec("kind", AttrKind.STR, KINDS[0], KINDS, doc="The kind of tokens."),
            AttrSpec("expressions", AttrKind.STRS, (), doc="The regular expressions of tokens or separators."),
            AttrSpec("min_length", AttrKind.INT, 1, doc="The least number of characters of a token."),
            AttrSpec("mark", AttrKind.BOOL, False, doc="Whether the tokens of a string stand between marks."),
            AttrSpec("pad_nbytes", AttrKind.INT, 0, doc="The number of bytes of the padding."),
        ),
        traits=frozenset({Trait.PURE, Trait.DATA_DEPENDENT}),
        flops=no_flops,
        kernel=token_spans,
        declares_results=True,
        sized_results=_span_types,
        cases=lambda: (
            example(integers((6,), 97, 99, "uint8"), integers((3,), 2, 2), expressions=("[ab]+",)),
            example(integers((6,), 97, 99, "uint8"), integers((3, 1), 2, 2), kind="characters", mark=True),
            example(integers((6,), 97, 99, "uint8"), integers((2,), 3, 3), kind="separated", expressions=("b",)),
        ),
        doc="Return the places of the tokens of strings in UTF-8: matches of an expression, the text between matches "
        "of separators, or single characters. Classes of expressions are of ASCII. A place is the first "
        "byte and the byte behind. Byte ``n`` is the mark in front of the tokens of a string, byte ``n + 1`` the mark "
        "behind; the padding of strings with fewer tokens starts at byte ``n + 2``.\n\n"
        "Shapes: ``data`` uint8 ``(n,)``, ``lengths`` int64 of any shape ``S``: the number of bytes of each string; "
        "the result is int64 ``(*S, t, 2)``, with the largest number ``t`` of tokens of a string.",
    ),
    OpDef(
        "mlops.take_spans",
        (OperandSpec("data"), OperandSpec("spans")),
        infer=_check_declared(_taken_types, -1),
        traits=frozenset({Trait.PURE, Trait.DATA_DEPENDENT}),
        flops=no_flops,
        kernel=take_spans,
        declares_results=True,
        sized_results=_taken_types,
        cases=lambda: (example(integers((6,), 0, 9, "uint8"), integers((3, 2), 4, 4)),),
        doc="Return the elements at places, one place after the other. A place is the first element and the element "
        "behind.\n\n"
        "Shapes: ``data`` ``(n,)``, ``spans`` int64 ``(..., 2)``; the result is ``(k,)``.",
    ),
)
"""The package's ops."""
