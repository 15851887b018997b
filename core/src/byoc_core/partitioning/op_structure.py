"""Numbers for ops: equal ops have equal numbers, whatever the names of the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from byoc_core.ir import Binding, Constant, Value
from byoc_core.ir.structural_equality import attributes_text

__all__ = ["OpNumbers"]


class OpNumbers:
    """A number for each distinct op, or composite, in the order of first sight.

    Names, locations and claims make no op distinct. An op is compared once; later calls with the same binding are a
    look-up.

    Cost: the numbers keep all ops seen in memory.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._exact_numbers: dict[tuple[int, tuple[str, ...]], int] = {}
        # By id: an id is unique as long as the object is kept.
        self._seen: dict[int, tuple[Binding, int, tuple[str, ...]]] = {}
        self._texts: dict[int, tuple[Mapping[str, Any], str]] = {}

    def number(self, binding: Binding) -> int:
        """Return the number of an op; the elements of constants make no op distinct."""
        return self._find(binding)[1]

    def exact_number(self, binding: Binding) -> int:
        """Return the number of an op, in a numbering with ops distinct by the elements of constants too."""
        _, number, digests = self._find(binding)
        return self._exact_numbers.setdefault((number, digests), len(self._exact_numbers))

    def _find(self, binding: Binding) -> tuple[Binding, int, tuple[str, ...]]:
        seen = self._seen.get(id(binding))
        if seen is None:
            digests: list[str] = []
            number = self._numbers.setdefault(self._structure(binding, {}, digests), len(self._numbers))
            seen = self._seen[id(binding)] = (binding, number, tuple(digests))
        return seen

    def _structure(self, binding: Binding, values: dict[int, int], digests: list[str]) -> tuple[object, ...]:
        """Return a key of an op.

        Args:
            binding: the op.
            values: a number for each value by ``id``, in the order of first sight; extended here.
            digests: gets the digests of the constants.
        """

        def cite(value: Value) -> tuple[object, ...]:
            if isinstance(value, Constant):
                digests.append(value.digest)
                return (None, value.type)
            return (values.setdefault(id(value), len(values)), value.type)

        operands = tuple(map(cite, binding.operands))
        bodies = tuple(
            (
                *map(cite, region.params),
                *(self._structure(inner, values, digests) for inner in region.bindings),
                *map(cite, region.results),
            )
            for region in binding.regions
        )
        return (binding.op.name, self._text(binding.attrs), operands, bodies, *map(cite, binding.results))

    def _text(self, attrs: Mapping[str, Any]) -> str:
        entry = self._texts.get(id(attrs))
        if entry is None:
            entry = self._texts[id(attrs)] = (attrs, attributes_text(attrs))
        return entry[1]
