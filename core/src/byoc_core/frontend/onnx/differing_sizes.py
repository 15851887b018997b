"""Sizes that differ between branches, or from round to round: a symbol known only at run time stands for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from byoc_core.dims import Dim, DimExpr, symbols_of
from byoc_core.opset.types import TensorType, Type

__all__ = ["shapes_of_alike", "types_of_all_rounds"]


def shapes_of_alike(*types: Type) -> list[tuple[Dim, ...]] | None:
    """Return the shapes of types with the same dtype and rank; ``None`` if these differ or are unknown."""
    shapes = [type_.shape for type_ in types if isinstance(type_, TensorType) and type_.shape is not None]
    dtypes = {type_.dtype for type_ in types if isinstance(type_, TensorType)}
    if len(shapes) != len(types) or len(dtypes) != 1 or len(set(map(len, shapes))) != 1:
        return None
    return shapes


def types_of_all_rounds(
    first: Sequence[Type], before: Sequence[Type], after: Sequence[Type], new_size: Callable[[int], Dim]
) -> list[Type] | None:
    """Return wider types for the values carried by a loop: a symbol for each size that a round changes.

    Sizes that are equal before the round and after the round share a symbol.

    Args:
        first: the types of the values before all rounds.
        before: the types assumed before a round; equal to ``first`` except for new symbols.
        after: the types after this round; dtype and rank are the same.
        new_size: returns a new symbol, for the index of a value.

    Returns:
        A type for each value; ``None`` if the types before the round hold for all rounds.
    """
    found = [list(type_.shape or ()) if isinstance(type_, TensorType) else [] for type_ in before]
    changes: dict[tuple[Dim, Dim], list[tuple[int, int]]] = {}
    for index, types in enumerate(zip(first, before, after, strict=True)):
        for axis, (start, old, new) in enumerate(zip(*(shapes_of_alike(*types) or ()), strict=True)):
            if start != old or old != new:
                changes.setdefault((old, new), []).append((index, axis))
    first_symbols = frozenset[str]().union(*(type_.symbols for type_ in first if isinstance(type_, TensorType)))
    changing = {old for old, _ in changes}
    if len(changing) == len(changes) and all(
        isinstance(old, DimExpr) and symbols_of(old) - first_symbols for old in changing
    ):
        return None
    for same in changes.values():
        size = new_size(same[0][0])
        for index, axis in same:
            found[index][axis] = size
    return [
        TensorType(tuple(shape), type_.dtype) if isinstance(type_, TensorType) else type_
        for type_, shape in zip(before, found, strict=True)
    ]
