"""Which bindings give their operand back as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from byoc_core.ir import Binding, OpDef, TensorType, Trait
from byoc_core.ops import default_ops

__all__ = ["is_identity", "permutation_of"]


def is_identity(binding: Binding) -> bool:
    """Tells whether the only result is, by construction, the only operand: same type, same elements, same order.

    Such are ``cast``, reshapes, ``broadcast_to``, ``nn.pad``, ``concat`` and ``split`` where the types agree,
    ``permute_dims`` in order, and ``strided_slice`` in steps of one that cuts nothing off.

    Cost: one look-up for other ops.
    """
    condition = _conditions().get(binding.op)
    if condition is None or len(binding.operands) != 1 or len(binding.results) != 1:
        return False
    type_ = binding.operands[0].type
    is_same = isinstance(type_, TensorType) and type_.shape is not None and type_ == binding.results[0].type
    return is_same and condition(binding)


def permutation_of(binding: Binding) -> tuple[int, ...]:
    """Gives the axes of a ``permute_dims`` of known rank, counted from the front."""
    type_, axes = binding.results[0].type, binding.attrs["axes"]
    rank = (isinstance(type_, TensorType) and type_.rank) or 0
    if not isinstance(axes, tuple):
        return tuple(reversed(range(rank)))
    return tuple(axis % rank for axis in axes if isinstance(axis, int))


def _is_in_order(binding: Binding) -> bool:
    permutation = permutation_of(binding)
    return permutation == tuple(range(len(permutation)))


def _has_steps_of_one(binding: Binding) -> bool:
    strides = binding.attrs["strides"]
    return isinstance(strides, tuple) and set(strides) <= {1}


def _always(binding: Binding) -> bool:
    return True


@cache
def _conditions() -> Mapping[OpDef, Callable[[Binding], bool]]:
    """What must hold, where the types agree, of each op that can be an identity."""
    ops = default_ops()
    reshapes = (op for op in ops.values() if op.has_trait(Trait.RESHAPING))
    return {
        **dict.fromkeys(reshapes, _always),
        **{ops[name]: _always for name in ("cast", "broadcast_to", "nn.pad", "concat", "split")},
        ops["permute_dims"]: _is_in_order,
        ops["strided_slice"]: _has_steps_of_one,
    }
