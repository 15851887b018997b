"""Canonical form: ops that change nothing go, chains of views become one, constants stand on the right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from byoc_core.dims import product
from byoc_core.dtypes import dtype_info, is_float
from byoc_core.ir import Binding, Constant, IRModule, TensorType, Trait, Value
from byoc_core.ops import default_ops
from byoc_core.transform.common_subexpressions import may_swap
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewriter import RewriteGraph, Rule, Rules, rewrite_module

__all__ = ["Canonicalise"]

Rewritten = Sequence[Value] | None


@dataclass(frozen=True)
class Canonicalise(Pass):
    """Removes ops that change nothing and brings the rest to one form.

    Every result keeps its bits: NaN, infinities and the signs of zeros too. In particular ``x + 0.0`` stays (it turns
    ``-0.0`` into ``0.0``), ``x - 0.0`` and ``x + -0.0`` go.

    Removed: ``x * 1``, ``x / 1``, ``x - 0``, ``x + 0`` (integers), ``x ** 1``, ``x & True``, ``x | False``,
    ``maximum(x, x)``, a choice between equal values or by a constant, double negation, repeated ``abs`` and
    ``nn.relu``, and ``cast``, ``reshape``, ``permute_dims``, ``broadcast_to``, ``strided_slice``, ``nn.pad``, ``clip``,
    ``concat`` and ``split`` that give their operand back. Joined: chains of reshapes, of transposes, of pads with one
    value, and of casts whose first loses nothing. A constant operand of a commutative op goes to the right.

    Attributes:
        keep_signed_zeros: ``False`` also removes ``x + 0.0`` and ``x - -0.0`` of floats: a ``-0.0`` may stay where the
            program gave ``0.0``.
    """

    keep_signed_zeros: bool = True

    def __call__(self, module: IRModule) -> IRModule:
        """Gives the module in canonical form. Cost: linear."""
        return rewrite_module(module, _rules(any_zero=not self.keep_signed_zeros))


def _is_filled(graph: RewriteGraph, value: Value, number: float, *, any_zero: bool = False) -> bool:
    """Tells whether every element of a constant is ``number``, with its sign of zero unless ``any_zero``."""
    array = graph.array(value)
    if array is None or array.size == 0:
        return False
    for part in (array.reshape(-1)[:1], array):
        wide = part if part.dtype.kind in "biuf" else part.astype(np.float64)
        if not (wide == number).all():
            return False
        if wide.dtype.kind == "f" and not any_zero and (np.signbit(wide) != np.signbit(number)).any():
            return False
    return True


def _same_type(value: Value, binding: Binding) -> bool:
    """Tells whether a value has the type of the result, with a known shape: then nothing is broadcast or cut."""
    type_ = value.type
    return isinstance(type_, TensorType) and type_.shape is not None and type_ == binding.results[0].type


def _dtype(value: Value) -> str:
    return value.type.dtype if isinstance(value.type, TensorType) else ""


def _swap_constant(binding: Binding, graph: RewriteGraph) -> Rewritten:
    left, right = binding.operands
    if not isinstance(left, Constant) or isinstance(right, Constant) or not may_swap(binding):
        return None
    return (graph.emit(binding.op.name, (right, left), binding.attrs),)


def _neutral(number: float, *, for_floats: float | None = None, any_zero: bool = False) -> Rule:
    """Gives the rule that removes an op whose right operand is a number, another one for floats if given."""

    def rule(binding: Binding, graph: RewriteGraph) -> Rewritten:
        left, right = binding.operands
        wanted = for_floats if for_floats is not None and is_float(_dtype(left)) else number
        if _same_type(left, binding) and _is_filled(graph, right, wanted, any_zero=any_zero):
            return (left,)
        return None

    return rule


def _equal_operands(binding: Binding, graph: RewriteGraph) -> Rewritten:
    left, right = binding.operands
    return (left,) if left is right or (isinstance(left, Constant) and left == right) else None


def _choice(binding: Binding, graph: RewriteGraph) -> Rewritten:
    condition, chosen, other = binding.operands
    if _same_type(chosen, binding) and (
        chosen is other
        or (isinstance(chosen, Constant) and chosen == other)
        or _is_filled(graph, condition, number=True)
    ):
        return (chosen,)
    if _same_type(other, binding) and _is_filled(graph, condition, number=False):
        return (other,)
    return None


def _undone_by_itself(binding: Binding, graph: RewriteGraph) -> Rewritten:
    inner = graph.maker(binding.operands[0], binding.op.name)
    return (inner.operands[0],) if inner is not None else None


def _idempotent(binding: Binding, graph: RewriteGraph) -> Rewritten:
    return (binding.operands[0],) if graph.maker(binding.operands[0], binding.op.name) is not None else None


def _abs_of_negative(binding: Binding, graph: RewriteGraph) -> Rewritten:
    inner = graph.maker(binding.operands[0], "negative")
    return (graph.emit("abs", inner.operands),) if inner is not None else None


def _identity(when: Callable[[Binding], bool] | None = None) -> Rule:
    """Gives the rule that removes an op that gives its operand back wherever the types agree (and ``when`` holds)."""

    def rule(binding: Binding, graph: RewriteGraph) -> Rewritten:
        is_same = len(binding.operands) == 1 and _same_type(binding.operands[0], binding)
        return binding.operands if is_same and (when is None or when(binding)) else None

    return rule


def _has_steps_of_one(binding: Binding) -> bool:
    return set(_ints(binding.attrs["strides"])) <= {1}


def _is_unbounded(binding: Binding) -> bool:
    return binding.attrs["min"] is None and binding.attrs["max"] is None


def _is_in_order(binding: Binding) -> bool:
    permutation = _permutation(binding)
    return permutation == tuple(range(len(permutation)))


def _permutation(binding: Binding) -> tuple[int, ...]:
    type_ = binding.results[0].type
    rank = type_.rank if isinstance(type_, TensorType) and type_.rank is not None else 0
    axes = binding.attrs["axes"]
    return tuple(reversed(range(rank))) if axes is None else tuple(axis % rank for axis in _ints(axes))


def _ints(value: object) -> tuple[int, ...]:
    return tuple(item for item in value if isinstance(item, int)) if isinstance(value, tuple) else ()


def _join_permutations(binding: Binding, graph: RewriteGraph) -> Rewritten:
    inner = graph.maker(binding.operands[0], "permute_dims")
    if inner is None:
        return None
    first = _permutation(inner)
    axes = tuple(first[axis] for axis in _permutation(binding))
    return (graph.emit("permute_dims", inner.operands, {"axes": axes}),)


def _join_reshapes(binding: Binding, graph: RewriteGraph) -> Rewritten:
    """``reshape(reshape(x))``, unless the inner one also checks, when run, that sizes agree."""
    inner = graph.maker(binding.operands[0], *_reshapes())
    target = binding.results[0].type
    if inner is None or len(inner.operands) != 1 or len(binding.operands) != 1:
        return None
    before, between = inner.operands[0].type, inner.results[0].type
    if not (isinstance(before, TensorType) and isinstance(between, TensorType) and isinstance(target, TensorType)):
        return None
    if before.shape is None or between.shape is None or target.shape is None:
        return None
    if product(before.shape) != product(between.shape):
        return None
    return (graph.emit("reshape", inner.operands, {"shape": target.shape}),)


def _join_pads(binding: Binding, graph: RewriteGraph) -> Rewritten:
    inner = graph.maker(binding.operands[0], "nn.pad")
    if inner is None or repr(inner.attrs["pad_value"]) != repr(binding.attrs["pad_value"]):
        return None
    widths = zip(_ints(inner.attrs["pad_width"]), _ints(binding.attrs["pad_width"]), strict=True)
    attrs = {**binding.attrs, "pad_width": tuple(first + second for first, second in widths)}
    return (graph.emit("nn.pad", inner.operands, attrs),)


def _join_casts(binding: Binding, graph: RewriteGraph) -> Rewritten:
    inner = graph.maker(binding.operands[0], "cast")
    if inner is None:
        return None
    source, between, target = _dtype(inner.operands[0]), _dtype(inner.results[0]), _dtype(binding.results[0])
    kinds = {dtype_info(name).kind for name in (source, between, target)}
    # A float out of an integer's range has no specified cast, so floats and integers do not mix.
    is_by_value = source == target or "bool" in (source, target) or kinds == {"float"} or kinds <= {"int", "uint"}
    if not (is_by_value and _holds_all_of(between, source)):
        return None
    return (graph.emit("cast", inner.operands, {"dtype": target}),)


# Bits of the significand: the floats that hold every integer of fewer bits.
_SIGNIFICANDS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
_WIDER_FLOATS = {
    "bfloat16": ("float32", "float64"),
    "float16": ("float32", "float64"),
    "float32": ("float64",),
}


def _holds_all_of(wide: str, narrow: str) -> bool:
    """Tells whether every value of one dtype is a value of another."""
    if wide == narrow or narrow == "bool":
        return True
    to, of = dtype_info(wide), dtype_info(narrow)
    if of.kind == "float":
        return wide in _WIDER_FLOATS.get(narrow, ())
    if to.kind == "float":
        return _SIGNIFICANDS.get(wide, 0) >= of.bits - (of.kind == "int")
    if to.kind == of.kind:
        return to.bits >= of.bits
    return to.kind == "int" and to.bits > of.bits


@cache
def _reshapes() -> tuple[str, ...]:
    return tuple(name for name, op in default_ops().items() if op.has_trait(Trait.RESHAPING))


@cache
def _rules(*, any_zero: bool) -> Rules:
    minus_nothing = 0.0 if any_zero else -0.0
    views: dict[str, tuple[Rule, ...]] = {name: (_identity(), _join_reshapes) for name in _reshapes()}
    return {
        **views,
        "add": (_swap_constant, _neutral(0, for_floats=minus_nothing, any_zero=any_zero)),
        "subtract": (_neutral(0, for_floats=0.0, any_zero=any_zero),),
        "multiply": (_swap_constant, _neutral(1)),
        "divide": (_neutral(1),),
        "power": (_neutral(1),),
        "logical_and": (_swap_constant, _neutral(1), _equal_operands),
        "logical_or": (_swap_constant, _neutral(0), _equal_operands),
        "equal": (_swap_constant,),
        "maximum": (_swap_constant, _equal_operands),
        "minimum": (_swap_constant, _equal_operands),
        "where": (_choice,),
        "negative": (_undone_by_itself,),
        "logical_not": (_undone_by_itself,),
        "abs": (_idempotent, _abs_of_negative),
        "nn.relu": (_idempotent,),
        "cast": (_identity(), _join_casts),
        "permute_dims": (_identity(_is_in_order), _join_permutations),
        "broadcast_to": (_identity(),),
        "strided_slice": (_identity(_has_steps_of_one),),
        "nn.pad": (_identity(), _join_pads),
        "clip": (_identity(_is_unbounded),),
        "concat": (_identity(),),
        "split": (_identity(),),
    }
