"""Swappable weights of a function: parameters with known values, unknown to passes and backends.

A function with swappable weights is still a function from parameters to results: no pass and no backend can read the
value of a weight, so no choice of a compilation depends on the value. The attribute ``weights`` of the function names
pairs of a parameter and a constant. A build passes the constant in every call; the artifact names the constant, so the
value may be replaced later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy.typing as npt

from byoc_core.dtypes import dtype_name
from byoc_core.errors import IRError, near_names
from byoc_core.ir.constants import Constant, ConstantStore
from byoc_core.ir.module import Function, IRModule
from byoc_core.ir.states import states_of
from byoc_core.opset.attributes import AttrValue
from byoc_core.opset.types import TensorType

__all__ = [
    "FIXED_WEIGHTS",
    "WEIGHTS",
    "FixedWeight",
    "declare_weights",
    "fixed_weights_of",
    "weight_constants",
    "weights_of",
]

WEIGHTS = "weights"
"""The attribute of a function for its swappable weights: a tuple with ``(input, digest)`` for each."""

FIXED_WEIGHTS = "fixed_weights"
"""The attribute of a function for weights of the model that are not swappable, with the reasons."""


@dataclass(frozen=True, slots=True)
class FixedWeight:
    """A weight of the model that is not swappable.

    Attributes:
        name: the name of the weight in the model.
        dtype: the dtype.
        shape: the shape.
        reason: the reason, without subject: ``"is a scalar"``.
        digest: the result of :func:`digest_of` for the value; empty if no value changes a result.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    reason: str
    digest: str

    def to_attr(self) -> AttrValue:
        """Return the weight as an item of the attribute :data:`FIXED_WEIGHTS`."""
        return (self.name, self.dtype, self.shape, self.reason, self.digest)


def weights_of(function: Function) -> Mapping[str, str]:
    """Return the digests of a function's swappable weights by input name, in the order of the declaration.

    Raises:
        IRError: the attribute is malformed, or names no input.
    """
    items = function.attrs.get(WEIGHTS, ())
    where = f"function `{function.name}`"
    found: dict[str, str] = {}
    for item in items if isinstance(items, tuple) else (items,):
        match item:
            case (str(name), str(digest)) if name in function.input_names and name not in found:
                found[name] = digest
            case _:
                raise IRError(where, "a swappable weight is malformed", got=item, expected="(input, digest)")
    return found


def fixed_weights_of(function: Function) -> tuple[FixedWeight, ...]:
    """Return the weights of a function that are not swappable.

    Raises:
        IRError: the attribute is malformed.
    """
    items = function.attrs.get(FIXED_WEIGHTS, ())
    found = []
    for item in items if isinstance(items, tuple) else (items,):
        match item:
            case (str(name), str(dtype), tuple(shape), str(reason), str(digest)):
                found.append(FixedWeight(name, dtype, tuple(int(str(size)) for size in shape), reason, digest))
            case _:
                where, form = f"function `{function.name}`", "(name, dtype, shape, reason, digest)"
                raise IRError(where, "a fixed weight is malformed", got=item, expected=form)
    return tuple(found)


def weight_constants(function: Function, store: ConstantStore | None) -> tuple[Constant, ...]:
    """Return the constants of a function's swappable weights that are in a store; malformed weights have none."""
    items = function.attrs.get(WEIGHTS)
    if store is None or not isinstance(items, tuple):
        return ()
    digests = [item[1] for item in items if isinstance(item, tuple) and len(item) == 2]
    return tuple(
        Constant(digest, TensorType(tuple(store[digest].shape), dtype_name(store[digest].dtype)))
        for digest in dict.fromkeys(digest for digest in digests if isinstance(digest, str) and digest in store)
    )


def declare_weights(
    module: IRModule,
    weights: Mapping[str, npt.ArrayLike],
    *,
    function: str = "main",
    fixed: Sequence[FixedWeight] = (),
) -> IRModule:
    """Return the module with parameters of a function declared as swappable weights.

    Args:
        module: the module.
        weights: the values by input name.
        function: the name of the function.
        fixed: weights of the model that are not parameters, with the reasons.

    Raises:
        IRError: there is no such input, an input is a state or a weight already, or a value is not of the input's type.
    """
    target = module[function]
    where = f"function `{function}`"
    declared = dict(weights_of(target))
    states = {state.input for state in states_of(target)}
    types = {name: param.type for name, param in zip(target.input_names, target.params, strict=True)}
    for name, value in weights.items():
        if name not in types:
            raise IRError(where, f"has no input `{name}`", hint=near_names(name, types) or None)
        if name in states or name in declared:
            kind = "a state" if name in states else "a weight already"
            raise IRError(where, f"input `{name}` is {kind} and cannot become a swappable weight")
        constant = module.constants.add(value)
        if constant.type != types[name]:
            raise IRError(where, f"weight `{name}` is not of the input's type", got=constant.type, expected=types[name])
        declared[name] = constant.digest
    attrs: dict[str, AttrValue] = {WEIGHTS: tuple(declared.items())} if declared else {}
    items = (*fixed_weights_of(target), *fixed)
    if items:
        attrs[FIXED_WEIGHTS] = tuple(item.to_attr() for item in items)
    return module.with_function(target.with_attrs(input_names=target.input_names, **attrs))
