"""Canonical form: ops without effect are removed, chains of views joined, constants moved to the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from byoc_core.dims import product
from byoc_core.dtypes import dtype_info
from byoc_core.errors import IRTypeError
from byoc_core.ir import Binding, IRModule, OpRegistry, Trait, Value
from byoc_core.ops.identity import is_identity
from byoc_core.transform.arithmetic_rules import Exactness, arithmetic_rules, swap_constant
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewriter import RewriteGraph, Rules, rewrite_module
from byoc_core.transform.tensors import dtype_of, permutation_of, shape_of

__all__ = ["Canonicalise"]

Rewritten = Sequence[Value] | None


@dataclass(frozen=True)
class Canonicalise(Pass):
    """Removal of ops without effect, and a canonical form for the rest.

    Every result keeps its bits: NaN (not its payload), infinities and the signs of zeros too. In particular ``x + 0.0``
    stays (``-0.0`` becomes ``0.0``); ``x - 0.0`` and ``x + -0.0`` are removed.

    Removed: ``x * 1``, ``x / 1``, ``x - 0``, ``x + 0`` (integers), ``x ** 1``, ``x & True``, ``x | False``, bits and
    shifts likewise; ``maximum`` and ``minimum`` of equals or with the end of the range; a choice between equal values
    or by a constant; double negation; repeated ``abs``, ``nn.relu``, ``sign`` and roundings. Also ``cast``,
    ``reshape``, ``permute_dims``, ``broadcast_to``, ``strided_slice``, ``nn.pad``, ``clip``, ``concat`` and ``split``
    returning the operand unchanged, empty parts of ``concat``, and broadcasts done anyway by an elementwise op. Joined:
    chains of reshapes, of transposes, of broadcasts, of pads with the same value, of casts with a lossless first cast,
    and of integer sums and products with constants. ``x - x`` and ``x * 0`` of integers are 0. A sum with a negative
    becomes a difference, a quotient by powers of two a product. A constant operand of a commutative op moves to the
    right.

    Each option set to ``False`` permits changes of results:

    Attributes:
        keep_signed_zeros: ``False`` also removes ``x + 0.0`` and ``x - -0.0`` of floats: a ``-0.0`` may stay in place
            of the program's ``0.0``.
        keep_special_values: ``False`` assumes no NaN, no infinity and no division by zero: ``x - x`` is 0, ``x / x`` is
            1, ``isnan`` and ``isinf`` are false everywhere; without signs of zeros also ``x * 0`` and ``0 / x`` are 0.
        keep_rounding: ``False`` rounds less, or differently: ``(x + a) + b`` is ``x + (a + b)`` for constants, products
            likewise, ``x / a`` is ``x * (1 / a)``. If the joined constant is a normal number, an intermediate overflow
            or underflow may disappear. Without special values also ``exp(log(x))``, ``log(exp(x))`` and
            ``sqrt(x) ** 2`` are ``x``, and ``sqrt(x ** 2)`` is ``abs(x)``.
    """

    keep_signed_zeros: bool = True
    keep_special_values: bool = True
    keep_rounding: bool = True

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module in canonical form. Cost: linear."""
        keep = Exactness(self.keep_signed_zeros, self.keep_special_values, self.keep_rounding)
        return rewrite_module(module, _rules(keep, module.ops))


def _without_identity(binding: Binding, graph: RewriteGraph) -> Rewritten:
    return binding.operands if is_identity(binding) else None


def _ints(value: object) -> tuple[int, ...]:
    return tuple(item for item in value if isinstance(item, int)) if isinstance(value, tuple) else ()


def _join_permutations(binding: Binding, graph: RewriteGraph) -> Rewritten:
    inner = graph.maker(binding.operands[0], "permute_dims")
    if inner is None:
        return None
    first = permutation_of(inner)
    axes = tuple(first[axis] for axis in permutation_of(binding))
    return (graph.emit("permute_dims", inner.operands, {"axes": axes}),)


def _join_reshapes(binding: Binding, graph: RewriteGraph) -> Rewritten:
    """Join ``reshape(reshape(x))``, unless the inner reshape also checks at run time for agreeing sizes."""
    inner = graph.maker(binding.operands[0], Trait.RESHAPING)
    target = shape_of(binding.results[0])
    if inner is None or len(inner.operands) != 1 or len(binding.operands) != 1:
        return None
    before, between = shape_of(inner.operands[0]), shape_of(inner.results[0])
    if before is None or between is None or target is None or product(before) != product(between):
        return None
    return (graph.emit("reshape", inner.operands, {"shape": target}),)


def _join_broadcasts(binding: Binding, graph: RewriteGraph) -> Rewritten:
    inner = graph.maker(binding.operands[0], "broadcast_to")
    if inner is None or not _only_repeats(inner):
        return None
    return (graph.emit("broadcast_to", inner.operands, binding.attrs),)


def _without_broadcasts(binding: Binding, graph: RewriteGraph) -> Rewritten:
    """Remove the broadcast of an operand if another operand of the elementwise op has the shape of the result."""
    result_shape = shape_of(binding.results[0])
    for index, operand in enumerate(binding.operands):
        inner = graph.maker(operand, "broadcast_to")
        siblings = (*binding.operands[:index], *binding.operands[index + 1 :])
        if inner is not None and _only_repeats(inner) and any(shape_of(other) == result_shape for other in siblings):
            operands = (*binding.operands[:index], inner.operands[0], *binding.operands[index + 1 :])
            try:
                return (graph.emit(binding.op, operands, binding.attrs),)
            except IRTypeError:  # an op may require operands of the same shape
                return None
    return None


def _only_repeats(broadcast: Binding) -> bool:
    """Return whether a broadcast does no check of sizes at run time."""
    before, after = shape_of(broadcast.operands[0]), shape_of(broadcast.results[0])
    if before is None or after is None:
        return False
    front = len(after) - len(before)
    return all(size in (1, repeated) for size, repeated in zip(before, after[front:], strict=True))


def _without_empty_parts(binding: Binding, graph: RewriteGraph) -> Rewritten:
    (axis,) = _ints((binding.attrs["axis"],))
    shapes = [shape_of(part) for part in binding.operands]
    parts = [part for part, shape in zip(binding.operands, shapes, strict=True) if shape is None or shape[axis] != 0]
    if not parts or len(parts) == len(binding.operands):
        return None
    return (graph.emit("concat", parts, binding.attrs),)


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
    source, between, target = dtype_of(inner.operands[0]), dtype_of(inner.results[0]), dtype_of(binding.results[0])
    kinds = {dtype_info(name).kind for name in (source, between, target)}
    # Casts of floats beyond an integer's range are unspecified, therefore floats and integers do not mix.
    is_by_value = source == target or "bool" in (source, target) or kinds == {"float"} or kinds <= {"int", "uint"}
    if not (is_by_value and _includes_values(between, source)):
        return None
    return (graph.emit("cast", inner.operands, {"dtype": target}),)


# Bits of the significand: each float represents every integer of at most so many bits.
_SIGNIFICANDS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
_WIDER_FLOATS = {
    "bfloat16": ("float32", "float64"),
    "float16": ("float32", "float64"),
    "float32": ("float64",),
}


def _includes_values(wide: str, narrow: str) -> bool:
    """Return whether every value of a dtype is a value of another."""
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


def _rules(keep: Exactness, ops: OpRegistry) -> Rules:
    """Return the rules by op: rules for the op's name, surrounded by rules for the op's traits."""
    named = _named_rules(keep)
    rules = dict(named)
    for name, op in ops.items():
        before = (swap_constant,) if Trait.COMMUTATIVE in op.traits else ()
        after = (_without_identity, _join_reshapes) if Trait.RESHAPING in op.traits else ()
        last = (_without_broadcasts,) if Trait.ELEMENTWISE in op.traits else ()
        if before or after or last:
            rules[name] = (*before, *named.get(name, ()), *after, *last)
    return rules


@cache
def _named_rules(keep: Exactness) -> Rules:
    rules = dict(arithmetic_rules(keep))
    for name, views in _VIEW_RULES.items():
        rules[name] = (*rules.get(name, ()), *views)
    return rules


_VIEW_RULES: Rules = {
    "cast": (_without_identity, _join_casts),
    "permute_dims": (_without_identity, _join_permutations),
    "broadcast_to": (_without_identity, _join_broadcasts),
    "strided_slice": (_without_identity,),
    "nn.pad": (_without_identity, _join_pads),
    "concat": (_without_identity, _without_empty_parts),
    "split": (_without_identity,),
}
