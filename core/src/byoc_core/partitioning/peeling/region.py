"""One region and its call: the ops leaving the region, and the remainder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from byoc_core.ir import Binding, Constant, Function, Trait, Value, Var
from byoc_core.ir.sizes import SizeSources, cited_symbols, given_symbols
from byoc_core.partitioning.peeling.views import has_contiguous_views, joins

__all__ = ["Peeled", "peel_region"]


@dataclass(frozen=True, slots=True)
class Peeled:
    """The replacement of a call.

    Attributes:
        bindings: the moved ops, and the call, in order.
        region: the remainder of the function; ``None`` if nothing remains, and nothing calls the function.
    """

    bindings: tuple[Binding, ...]
    region: Function | None


def peel_region(
    call: Binding, region: Function, is_view: Callable[[Binding], bool], *, strided: bool, views_only: bool
) -> Peeled | None:
    """Move view ops of a region in front of the call and behind the call.

    Args:
        call: the only call of the region; operands and results have the types of the region's parameters and results.
            The results of the region are different values made by the region's ops.
        region: a region with pure ops.
        is_view: whether an op is a view and may leave.
        strided: whether the backend takes strided views and writes into such views.
        views_only: whether all ops are such views, and the region is to be opened.

    Returns:
        ``None`` if nothing moves.

    Cost: linear in the region's bindings and operands, once more for each joint in front that frees others.
    """
    peeler = _Peeler(call, region, is_view, strided=strided, views_only=views_only)
    peeler.move_behind()
    peeler.move_in_front()
    return peeler.peeled()


class _Peeler:
    def __init__(
        self, call: Binding, region: Function, is_view: Callable[[Binding], bool], *, strided: bool, views_only: bool
    ) -> None:
        self._call = call
        self._region = region
        self._is_view = is_view
        self._strided = strided
        self._views_only = views_only
        # The caller's values for the values of the region: for its inputs, and for its outputs.
        self._outer: dict[int, Value] = {
            id(param): operand for param, operand in zip(region.params, call.operands, strict=True)
        }
        self._outer_results: dict[int, Var] = {
            id(value): result for value, result in zip(region.results, call.results, strict=True)
        }
        self._num_readers = Counter(id(operand) for binding in region.bindings for operand in binding.operands)
        self._moved: set[int] = set()
        self._front: list[Binding] = []
        self._behind: list[Binding] = []

    def move_behind(self) -> None:
        """Move producers of results without readers in the region; then the producers of their operands, and so on."""
        for binding in reversed(self._region.bindings):
            if self._may_go_behind(binding):
                self._moved.add(id(binding))
                self._num_readers.subtract(map(id, binding.operands))
                results = tuple(map(self._caller_result, binding.results))
                self._behind.append(
                    replace(binding, operands=tuple(map(self._caller_value, binding.operands)), results=results)
                )
        self._behind.reverse()

    def _may_go_behind(self, binding: Binding) -> bool:
        if any(self._num_readers[id(result)] for result in binding.results) or not self._is_view(binding):
            return False
        num_results = sum(id(result) in self._outer_results for result in binding.results)
        if len(binding.results) > 1 and not self._views_only:
            # Readers may want each part contiguous; and a part without readers would be made for nothing.
            return num_results == len(binding.results) and has_contiguous_views(binding)
        if not num_results:
            return False
        if joins(binding):
            return self._views_only or self._strided or has_contiguous_views(binding)
        return self._views_only or binding.op.has_trait(Trait.RESHAPING)

    def _caller_value(self, value: Value) -> Value:
        """Return the caller's value for a value of the region; a value made by the region becomes a result."""
        if isinstance(value, Constant):
            return value
        outer_value = self._outer.get(id(value))
        return (
            outer_value
            if outer_value is not None
            else self._outer_results.setdefault(id(value), Var(value.name, value.type))
        )

    def _caller_result(self, value: Var) -> Var:
        """Return the value defined in the caller by a moved op, in place of a result of the op."""
        return self._outer_results.pop(id(value)) if id(value) in self._outer_results else Var(value.name, value.type)

    def move_in_front(self) -> None:
        """Move the readers of a parameter unless a reader must stay; then the readers of their results, and so on."""
        num_moved = -1
        while num_moved < len(self._moved):  # a moved joint may leave a parameter to one reader
            num_moved = len(self._moved)
            remaining = self._remaining()
            staying = {id(o) for b in remaining if not self._may_go_in_front(b) for o in b.operands}
            for binding in remaining:
                if self._leaves_in_front(binding, staying):
                    self._moved.add(id(binding))
                    operands = tuple(map(self._caller_value, binding.operands))
                    results = tuple(map(self._caller_result, binding.results))
                    self._outer.update((id(old), new) for old, new in zip(binding.results, results, strict=True))
                    self._front.append(replace(binding, operands=operands, results=results))

    def _may_go_in_front(self, binding: Binding) -> bool:
        if joins(binding) or not self._is_view(binding):
            return False
        return self._strided or has_contiguous_views(binding)

    def _leaves_in_front(self, binding: Binding, staying: Collection[int]) -> bool:
        if any(isinstance(operand, Var) and id(operand) not in self._outer for operand in binding.operands):
            return False
        if joins(binding):
            # A result must be contiguous anyway: the region gains nothing by keeping the joint.
            return self._is_view(binding) and id(binding.results[0]) in self._outer_results
        return self._may_go_in_front(binding) and id(binding.operands[0]) not in staying

    def peeled(self) -> Peeled | None:
        """Return the replacement of the call."""
        if not self._moved:
            return None
        remaining = self._remaining()
        if not remaining:
            return Peeled((*self._front, *self._behind), None)
        outputs = [result for binding in remaining for result in binding.results if id(result) in self._outer_results]
        if not outputs:  # the rest would be dead code, left to another pass
            return None
        inputs = self._inputs(remaining)
        params = {id(value): Var(value.name, value.type) for value in inputs}

        def inside(value: Value) -> Value:
            return params.get(id(value), value)

        bindings = tuple(replace(b, operands=tuple(map(inside, b.operands))) for b in remaining)
        region = replace(self._region, params=tuple(params.values()), bindings=bindings, results=tuple(outputs))
        call = replace(
            self._call,
            operands=tuple(self._outer[id(value)] for value in inputs),
            results=tuple(self._outer_results[id(value)] for value in outputs),
        )
        return Peeled((*self._front, call, *self._behind), region)

    def _remaining(self) -> list[Binding]:
        return [binding for binding in self._region.bindings if id(binding) not in self._moved]

    def _inputs(self, remaining: Sequence[Binding]) -> list[Var]:
        """Return the inputs in order of first use, then the inputs needed only for symbolic sizes."""
        read: dict[int, Var] = {}
        for binding in remaining:
            for operand in binding.operands:
                if isinstance(operand, Var) and id(operand) in self._outer:
                    read.setdefault(id(operand), operand)
        missing = cited_symbols(remaining).difference(*(given_symbols(value.type) for value in read.values()))
        read.update((id(value), value) for value in SizeSources(self._region.params).find(missing))
        return list(read.values())
