"""The lowering of ensembles of trees to the C in the folder ``c``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from byoc_core.backend.hooks import LoweringBuilder
from byoc_core.backend.lowering import Buffer
from byoc_core.ir import Binding, Constant, TensorType, tensor

from byoc_mlops.tree_tables import LANES, TreeTables, tree_tables

__all__ = ["can_lower_trees", "lower_trees", "read_tables"]

_C_TYPES = {"float32": ("float", "int32_t"), "float64": ("double", "int64_t")}
"""The supported dtypes, and the types in C: of the elements, and of integers of the same size."""

_BLOCK = 4 * LANES
"""The number of samples walking through a tree before the next tree: sums and samples stay in the cache."""

_KEYS_OF_A_COMPARISON = 2
"""Computing this number of keys first takes as long as computing a key in a comparison."""

_MOST_KEYS = 1 << 13
"""The largest number of keys of a block of more than ``LANES`` samples: keys stay in the second-level cache."""

_TABLES = ("nodes", "features", "depths", "starts", "targets", "weights")
"""The fields of :class:`TreeTables` in the order of the parameters in C."""

_ENTRIES = {
    "all": (
        "(int64_t)leaf * NUM_TARGETS",
        "(int64_t)leaf * NUM_TARGETS + NUM_TARGETS",
        "entry - (int64_t)leaf * NUM_TARGETS",
    ),
    "single": ("leaf", "(int64_t)leaf + 1", "targets[entry]"),
    "any": ("starts[leaf]", "starts[leaf + 1]", "targets[entry]"),
}
"""The first weight of a leaf, the end of its weights and a weight's target, by ``TreeTables.weights_of_leaves``."""

_INPUTS = {
    True: {
        "SLOT_KEY": "inputs[slot]",
        "GROUP_INPUTS": "keys + i * num_slots",
        "GROUP_LANE": "1",
        "SINGLE_INPUTS": "keys + grouped * num_slots + i - grouped",
        "HAS_KEYS": "1",
        "INPUT": "KEY",
    },
    False: {
        "SLOT_KEY": "TREES_key(inputs[forest->features[slot / TREES_LANES]],\n"
        "                                         slot / TREES_LANES < forest->num_low ? -LARGEST - 1 : LARGEST)",
        "GROUP_INPUTS": "x + (first + i) * num_features",
        "GROUP_LANE": "num_features",
        "SINGLE_INPUTS": "x + (first + i) * num_features",
        "HAS_KEYS": "0",
        "INPUT": "REAL",
    },
}
"""What walks read: the keys of a sample, computed first, or the sample."""

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
    aggregate = str(binding.attrs["aggregate"])
    kind = tables.weights_of_leaves
    assert isinstance(num_targets, int)
    # A sample has a key for each slot, but compares no more often than the trees are deep.
    has_keys = tables.num_slots <= _KEYS_OF_A_COMPARISON * int(tables.depths.sum())
    prefix = f"byoc_mlops_trees_{x.dtype}_{aggregate}_{kind}{num_targets if kind == 'all' else ''}"
    prefix = prefix if has_keys else f"{prefix}_in_place"
    builder.include("<math.h>")
    builder.include("<string.h>")
    builder.add_source(_source(prefix, x.dtype, aggregate, kind, num_targets, has_keys=has_keys))
    block = _BLOCK if not has_keys or tables.num_slots * _BLOCK <= _MOST_KEYS else LANES
    integers = "int32" if x.dtype == "float32" else "int64"
    scratch = [
        builder.allocate(tensor(shape, dtype), name)
        for name, dtype, shape in (
            ("keys", integers, (block * max(tables.num_slots, 1) if has_keys else 1,)),
            ("sums", "float64", (block * num_targets,)),
            ("seen", "uint8", (block * num_targets,)),
        )
    ]
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
        *(num_samples, num_features, tables.num_low, tables.num_slots, num_trees.shape[0], num_targets, block),
    )


def _source(prefix: str, dtype: str, aggregate: str, kind: str, num_targets: int, *, has_keys: bool) -> str:
    """Return the C for a dtype, an aggregate, ``TreeTables.weights_of_leaves``, and the input of walks."""
    start, join, result = _JOINS[aggregate]
    real, key = _C_TYPES[dtype]
    text = _template()
    for word, replacement in (
        *_INPUTS[has_keys].items(),
        *zip(("FIRST_ENTRY", "LAST_ENTRY", "ENTRY_SLOT"), _ENTRIES[kind], strict=True),
        ("NUM_TARGETS", str(num_targets)),
        ("START", start),
        ("JOIN", join),
        ("RESULT", result),
        ("LARGEST", "INT32_MAX" if key == "int32_t" else "INT64_MAX"),
        ("INFINITE", "0x7f800000" if key == "int32_t" else "0x7ff0000000000000"),
        ("REAL", real),
        ("KEY", key),
        ("TREES", prefix),
    ):
        text = text.replace(word, replacement)
    return text


@cache
def _template() -> str:
    return (files("byoc_mlops") / "c" / "trees.c").read_text("utf-8")
