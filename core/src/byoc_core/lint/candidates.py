"""Candidates in the search for a pattern's instance: attributes, operand types, sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from byoc_core.dims import Dim
from byoc_core.errors import IRTypeError
from byoc_core.ir import AttrKind, OpDef, TensorType, Type
from byoc_core.pattern import Condition, Predicate
from byoc_core.pattern.conditions import HasDtype, HasRank, HasShape

__all__ = [
    "NothingFitsError",
    "Sizes",
    "fitting_attrs",
    "leaf_types",
    "refined",
    "resized",
    "size_changes",
    "with_count",
]

Sizes = Mapping[Dim, Dim]
"""New sizes by old size."""

_ANY_SIZES = (2, 3, 4, 5, 6, 7)
_PLAIN_VALUES: Mapping[AttrKind, tuple[object, ...]] = {
    AttrKind.BOOL: (False, True),
    AttrKind.INT: (0, 1, -1, 2, 3, 4),
    AttrKind.FLOAT: (0.0, 1.0, 0.5, 6.0),
    AttrKind.DIM: (0, 1, 2, 3, 4),
}


class NothingFitsError(IRTypeError):
    """No tried value passes a pattern's test of an attribute; another might."""


def fitting_attrs(op: OpDef, required: Mapping[str, Any], case_attrs: Mapping[str, object]) -> Mapping[str, Any]:
    """Return all attributes of an op: first the values wanted by a pattern, then the values of a case, then defaults.

    Raises:
        IRTypeError: the op has no such attribute, or never holds the wanted value in this form.
        NothingFitsError: no value was found to pass a test.
    """
    unknown = {name: None for name in required if name not in {spec.name for spec in op.attrs}}
    if unknown:
        op.normalise_attrs(unknown)  # raises: there is no such attribute
    exact = {name: value for name, value in required.items() if not isinstance(value, Predicate)}
    normal = op.normalise_attrs({**case_attrs, **exact})
    for name, value in exact.items():
        if type(normal[name]) is not type(value) or normal[name] != value:
            where = f"op `{op.name}`, attribute `{name}`"
            raise IRTypeError(where, "never has a value in this form", got=repr(value), expected=repr(normal[name]))
    for name, value in required.items():
        if isinstance(value, Predicate):
            normal = _tested(op, normal, name, value)
    return normal


def _tested(op: OpDef, normal: Mapping[str, Any], name: str, test: Predicate) -> Mapping[str, Any]:
    """Return the attributes with a value of one attribute passing a test."""
    try:
        if test(normal[name]):
            return normal
    except Exception:  # noqa: BLE001 - the match that is tried with this value will tell
        return normal
    for value in _values(op, name, normal[name]):
        try:
            changed = op.normalise_attrs({**normal, name: value})
            if test(changed[name]):
                return changed
        except Exception:  # noqa: BLE001, S112 - a value that the op may never have proves nothing against the test
            continue
    raise NothingFitsError(f"op `{op.name}`, attribute `{name}`", "no tried value passes the test", expected=test)


def _values(op: OpDef, name: str, usual: Any) -> Iterator[object]:
    """Yield values to try for an attribute."""
    spec = next(spec for spec in op.attrs if spec.name == name)
    yield from spec.choices
    yield from _PLAIN_VALUES.get(spec.kind, ())
    if isinstance(usual, tuple):
        yield from ((size,) * len(usual) for size in (0, 1, 2, 3))


def with_count(types: tuple[TensorType, ...], count: int, op: OpDef) -> tuple[TensorType, ...] | None:
    """Return ``count`` types, repeating the last if the op takes any number of operands; ``None`` for other ops."""
    if count == len(types):
        return types
    variadic = bool(op.operands) and op.operands[-1].variadic
    if not variadic or not types or count < len(op.operands) - 1:
        return None
    return (*types, *[types[-1]] * (count - len(types)))[:count]


def size_changes(pairs: Sequence[tuple[Type, Type]]) -> Sizes | None:
    """Return the new size of each size after a replacement of types of a case by others; ``None`` if ranks differ."""
    changes: dict[Dim, Dim] = {}
    for before, after in pairs:
        old = before.shape if isinstance(before, TensorType) else None
        new = after.shape if isinstance(after, TensorType) else None
        if old is None or new is None or len(old) != len(new):
            return None
        for was, becomes in zip(old, new, strict=True):
            changes.setdefault(was, becomes)
    return changes


def resized(type_: TensorType, changes: Sizes) -> TensorType:
    """Return the type with other sizes."""
    return TensorType(tuple(changes.get(dim, dim) for dim in type_.shape or ()), type_.dtype)


def leaf_types(
    hint: TensorType, changes: Sizes | None, operand_types: Sequence[TensorType], *, is_free: bool
) -> list[TensorType]:
    """Return types to try for an operand from outside, best first: as in the case, then suiting the other operands.

    Args:
        hint: the type in the case.
        changes: the changes of the case's sizes in the other operands.
        operand_types: the types of the other operands.
        is_free: whether the op leaves the dtype open.
    """
    found = [] if changes is None else [resized(hint, changes)]
    found.append(hint)
    for type_ in operand_types:
        shape = type_.shape or ()
        shapes: list[tuple[Dim, ...]] = [shape, *((size,) for size in dict.fromkeys(reversed(shape))), ()]
        found += [TensorType(candidate, hint.dtype) for candidate in shapes]
    if is_free and operand_types:
        found = [TensorType(type_.shape, operand_types[0].dtype) for type_ in found]
    return list(dict.fromkeys(found))


def refined(hint: TensorType | None, conditions: Sequence[Condition], dtype: str) -> TensorType | None:
    """Return the type nearest to a hint, fulfilling the conditions on dtypes, ranks and sizes."""
    for condition in conditions:
        shape = hint.shape if hint is not None else None
        if isinstance(condition, HasDtype) and hint is not None and hint.dtype not in condition.dtypes:
            hint = TensorType(hint.shape, condition.dtypes[0])
        elif isinstance(condition, HasRank) and (shape is None or len(shape) not in condition.ranks):
            sizes = itertools.islice(itertools.cycle(_ANY_SIZES), condition.ranks[0])
            hint = TensorType(tuple(sizes), dtype if hint is None else hint.dtype)
        elif isinstance(condition, HasShape):
            hint = TensorType(_shaped(shape, condition), dtype if hint is None else hint.dtype)
    return hint


def _shaped(shape: tuple[Dim, ...] | None, condition: HasShape) -> tuple[Dim, ...]:
    required = condition.shape
    base = shape if shape is not None and len(shape) == len(required) else _ANY_SIZES * (len(required) // 6 + 1)
    named: dict[str, Dim] = {}
    sizes: list[Dim] = []
    for required_size, base_size in zip(required, base, strict=False):
        if isinstance(required_size, str):
            sizes.append(named.setdefault(required_size, base_size))
        else:
            sizes.append(base_size if required_size is None else required_size)
    return tuple(sizes)
