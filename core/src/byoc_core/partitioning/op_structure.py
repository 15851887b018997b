"""Numbers for ops: equal ops have equal numbers, whatever the names of the values."""

from __future__ import annotations

from byoc_core.ir import Binding, Constant, Value
from byoc_core.ir.structural_equality import attributes_text

__all__ = ["OpNumbers"]


class OpNumbers:
    """A number for each distinct op, or composite, in the order of first sight.

    Ops are equal if they differ in names, locations and claims only. An op is compared once; later calls with the same
    binding are a look-up.

    Args:
        has_digests: whether constants of equal types and other elements make ops distinct.

    Cost: the numbers keep all ops seen in memory.
    """

    def __init__(self, *, has_digests: bool) -> None:
        self._has_digests = has_digests
        self._numbers: dict[tuple[object, ...], int] = {}
        self._seen: dict[int, tuple[Binding, int]] = {}  # by id: an id is unique as long as the binding is kept

    def number(self, binding: Binding) -> int:
        """Return the number of an op."""
        seen = self._seen.get(id(binding))
        if seen is None:
            number = self._numbers.setdefault(self._structure(binding, {}), len(self._numbers))
            seen = self._seen[id(binding)] = (binding, number)
        return seen[1]

    def _structure(self, binding: Binding, values: dict[int, int]) -> tuple[object, ...]:
        """Return a key; ``values`` has the number of each value by ``id``, in the order of first sight."""

        def cite(value: Value) -> tuple[object, ...]:
            if isinstance(value, Constant):
                return (value.digest if self._has_digests else None, value.type)
            return (values.setdefault(id(value), len(values)), value.type)

        operands = tuple(map(cite, binding.operands))
        bodies = tuple(
            (
                *map(cite, region.params),
                *(self._structure(inner, values) for inner in region.bindings),
                *map(cite, region.results),
            )
            for region in binding.regions
        )
        return (binding.op.name, attributes_text(binding.attrs), operands, bodies, *map(cite, binding.results))
