"""Sizes of the parts of `split`, from user input: sizes, a number of equal parts, or indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from byoc_core.dims import Dim, DimExpr
from byoc_core.errors import IRTypeError
from byoc_core.opset.types import TensorType, Type

__all__ = ["SPLIT_INDICES", "complete_split"]

SPLIT_INDICES = "indices_or_sections"
"""The name of the attribute in numpy and Relax: the number of equal parts, or the start indices of parts."""


def complete_split(attrs: Mapping[str, object], operands: Sequence[Type]) -> Mapping[str, object]:
    """Return the attributes of a `split` with the sizes of the parts as ``sections``.

    Raises:
        IRTypeError: an axis is not divisible into the number of equal parts, indices do not rise from 0 to the axis's
            size, or both sizes and indices are given.
    """
    if SPLIT_INDICES in attrs and "sections" in attrs:
        raise IRTypeError("op `split`", f"has both `sections` and `{SPLIT_INDICES}`", expected="a single attribute")
    name = SPLIT_INDICES if SPLIT_INDICES in attrs else "sections"
    value, size = attrs.get(name), _axis_size(operands, attrs.get("axis", 0))
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if size is None or (name == "sections" and not is_count):
        return attrs
    rest = {key: item for key, item in attrs.items() if key != name}
    if is_count:
        assert isinstance(value, int)
        return {"sections": _equal_parts(size, value, name), **rest}
    return {"sections": _between(value, size), **rest}


def _axis_size(operands: Sequence[Type], axis: object) -> Dim | None:
    """Return the size of the axis; ``None`` if the type rule must report an error."""
    type_ = operands[0] if operands else None
    if not isinstance(type_, TensorType) or type_.shape is None or not isinstance(axis, int):
        return None
    return type_.shape[axis] if -len(type_.shape) <= axis < len(type_.shape) else None


def _equal_parts(size: Dim, count: int, name: str) -> tuple[Dim, ...]:
    part = size // count if count > 0 else 0
    if count <= 0 or part * count != size:
        problem = f"attribute `{name}` is {count}, and the size of the axis is {size}"
        raise IRTypeError("op `split`", problem, expected="a number of equal parts, or the sizes of the parts")
    return (part,) * count


def _between(value: object, size: Dim) -> tuple[Dim, ...]:
    indices = tuple(value) if isinstance(value, tuple | list) else None
    if indices is None or any(isinstance(index, bool) or not isinstance(index, int | DimExpr) for index in indices):
        problem = f"attribute `{SPLIT_INDICES}` is neither a number nor a list of indices"
        raise IRTypeError("op `split`", problem, got=repr(value), expected="a number of equal parts, or indices")
    sizes = tuple(end - start for start, end in pairwise((0, *indices, size)))
    if any(isinstance(part, int) and part < 0 for part in sizes):
        problem = f"attribute `{SPLIT_INDICES}` does not rise from 0 to {size}, the size of the axis"
        raise IRTypeError("op `split`", problem, got=f"({', '.join(map(str, indices))})")
    return sizes
