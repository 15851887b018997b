"""The lowering of ensembles of trees to the C in the folder ``c``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from byoc_core.backend.hooks import LoweringBuilder
from byoc_core.backend.lowering import Buffer
from byoc_core.ir import Binding, Constant, TensorType, tensor

from byoc_mlops.tree_kernel import MEMBER
from byoc_mlops.tree_tables import TreeTables, tree_tables

__all__ = ["can_lower_trees", "lower_trees", "read_tables"]

_C_TYPES = {"float32": "float", "float64": "double"}
"""The supported dtypes, and the elements' types in C."""

_COMPARISONS = ("<=", "<", ">=", ">", "==", "!=")
"""The comparisons in C, by mode."""

_BLOCK = 32
"""The number of samples walking through a tree before the next tree: sums and samples stay in the cache."""

_TABLES = (
    *("thresholds", "features", "children", "modes", "missing", "set_starts", "members"),
    *("roots", "depths", "starts", "targets", "weights"),
)
"""The fields of :class:`TreeTables` in the order of the parameters in C."""

_SCRATCH = (("float64", "sums"), ("uint8", "seen"))
"""The dtypes and names of the scratch buffers, with an element for each sample of a block and target."""

_ADDITION = ("0.0", "sums[slot] += weight")
_JOINS = {
    "sum": (*_ADDITION, "sums[i]"),
    "average": (*_ADDITION, "sums[i] / (double)(num_trees > 1 ? num_trees : 1)"),
    "min": (
        "HUGE_VAL",
        "sums[slot] = sums[slot] < weight || sums[slot] != sums[slot] ? sums[slot] : weight;\n      seen[slot] = 1",
        "seen[i] ? sums[i] : 0.0",
    ),
    "max": (
        "-HUGE_VAL",
        "sums[slot] = sums[slot] > weight || sums[slot] != sums[slot] ? sums[slot] : weight;\n      seen[slot] = 1",
        "seen[i] ? sums[i] : 0.0",
    ),
}
"""The start, the joining of a weight and the result in C, by aggregate."""


def can_lower_trees(binding: Binding) -> bool:
    """Return whether an op is an ensemble of constant trees on float32 or float64, with a known number of features."""
    if binding.op.name != "mlops.tree_ensemble":
        return False
    samples = binding.operands[0].type
    return (
        isinstance(samples, TensorType)
        and samples.dtype in _C_TYPES
        and samples.shape is not None
        and isinstance(samples.shape[1], int)
        and all(isinstance(operand, Constant) for operand in binding.operands[1:])
    )


def read_tables(binding: Binding, constants: Any) -> TreeTables | None:
    """Return the tables of an op accepted by :func:`can_lower_trees`; ``None`` for trees left to the numpy kernel.

    Args:
        binding: the op.
        constants: the arrays of constants by digest.
    """
    samples = binding.operands[0].type
    assert isinstance(samples, TensorType)
    assert samples.shape is not None
    assert isinstance(samples.shape[1], int)
    arrays = [constants[operand.digest] for operand in binding.operands[1:] if isinstance(operand, Constant)]
    (num_targets,) = binding.context().ints("num_targets")
    return tree_tables(arrays, samples.shape[1], num_targets)


def lower_trees(binding: Binding, tables: TreeTables, builder: LoweringBuilder) -> None:
    """Add the call of an ensemble."""
    x, out = builder.buffer(binding.operands[0]), builder.buffer(binding.result)
    num_samples, num_features = x.shape
    num_targets = out.shape[1]
    has_missing = bool(tables.missing.any())
    aggregate = str(binding.attrs["aggregate"])
    mode = tables.used_modes[0] if len(tables.used_modes) == 1 else None
    kind = "mixed" if mode is None else f"mode{mode}"
    prefix = f"byoc_mlops_trees_{x.dtype}_{kind}_{aggregate}{'_missing' if has_missing else ''}"
    builder.include("<math.h>")
    builder.add_source(_source(prefix, x.dtype, mode, aggregate, has_missing=has_missing))
    scratch = [builder.allocate(tensor((_BLOCK * num_targets,), dtype), name) for dtype, name in _SCRATCH]
    constants: list[Buffer] = [builder.constant(getattr(tables, name), name) for name in _TABLES]
    num_trees = binding.operands[7].type
    assert isinstance(num_trees, TensorType)
    assert num_trees.shape is not None
    builder.call_extern(
        f"{prefix}_run",
        x,
        *constants,
        *(buffer.written() for buffer in scratch),
        out.written(),
        *(num_samples, num_features, num_trees.shape[0], num_targets, tables.num_nodes, _BLOCK),
    )


def _source(prefix: str, dtype: str, mode: int | None, aggregate: str, *, has_missing: bool) -> str:
    """Return the C for a dtype, the mode of all nodes (``None`` for several modes) and an aggregate."""
    decision = _mixed_decision() if mode is None else _decision(mode)
    if has_missing:
        decision = f"({decision}) | ((value != value) & nodes->missing[node])"
    start, join, result = _JOINS[aggregate]
    text = _template()
    for word, replacement in (
        ("DECISION", decision),
        ("START", start),
        ("JOIN", join),
        ("RESULT", result),
        ("REAL", _C_TYPES[dtype]),
        ("TREES", prefix),
    ):
        text = text.replace(word, replacement)
    return text


def _decision(mode: int) -> str:
    return "TREES_contains(nodes, node, value)" if mode == MEMBER else f"value {_COMPARISONS[mode]} threshold"


def _mixed_decision() -> str:
    modes = "".join(f"nodes->modes[node] == {mode} ? {_decision(mode)}\n         : " for mode in range(MEMBER))
    return f"({modes}{_decision(MEMBER)})"


@cache
def _template() -> str:
    return (files("byoc_mlops") / "c" / "trees.c").read_text("utf-8")
