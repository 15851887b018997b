"""The scan outputs of rounds that are not unrolled: values carried from round to round, with a slice more in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from byoc_core.dims import Dim, product
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx.node_context import NodeContext
from byoc_core.frontend.onnx.ops.data_dependent import emit_sized
from byoc_core.frontend.onnx.ops.data_sizes import as_sizes, elements, number, size_value, sizes_value
from byoc_core.frontend.onnx.ops.strings import in_order
from byoc_core.frontend.onnx.regions import Region
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.ir.module import Value, Var
from byoc_core.ir.sizes import type_symbols
from byoc_core.opset.types import TensorType

__all__ = ["Collected", "SliceCollector", "zeros"]

_NUMBER = TensorType((), "int64")


@dataclass(frozen=True)
class Collected:
    """The slices of a scan output, as values carried by a loop.

    Attributes:
        first: the values before the first round.
        params: the values before a round, as parameters of the body.
        following: the values after the round.
        stack: returns the slices as one tensor, from the values after the last round.
    """

    first: Sequence[Value]
    params: Sequence[Var]
    following: Sequence[Value]
    stack: Callable[[Sequence[Value]], Value | StringTensor]


@dataclass(frozen=True)
class SliceCollector:
    """Collects the slices of scan outputs.

    Attributes:
        node: the node with the rounds.
        region: the body.
        inner: the node from the perspective inside the body.
        round_number: the number of the round, in the body.
        count: the number of rounds, or ``None`` if known only at run time.
    """

    node: NodeContext
    region: Region
    inner: NodeContext
    round_number: Var
    count: Dim | None

    def collect(self, slice_value: Value | StringTensor, *, is_reversed: bool) -> Collected:
        """Add a slice to the slices so far; with ``is_reversed`` the last round's slice comes first.

        Slices of a size known only in a round must have equal sizes in all rounds.
        """
        if isinstance(slice_value, StringTensor):
            return self._collect_strings(slice_value, is_reversed)
        return self._collect_numbers(slice_value, is_reversed)

    def _collect_strings(self, slice_value: StringTensor, is_reversed: bool) -> Collected:
        """Join the bytes of the slice to all bytes so far, and collect the lengths as numbers."""
        strings = in_order(self.inner, slice_value)
        data = self._joined(strings.data, is_reversed, _only)
        lengths = self._collect_numbers(strings.lengths, is_reversed)

        def stack(values: Sequence[Value]) -> StringTensor:
            all_data, *parts = values
            return StringTensor(all_data, self.node.to_value(lengths.stack(parts), "lengths"))

        return Collected(
            [*data.first, *lengths.first],
            [*data.params, *lengths.params],
            [*data.following, *lengths.following],
            stack,
        )

    def _collect_numbers(self, slice_value: Value, is_reversed: bool) -> Collected:
        if type_symbols((slice_value,)) & self.region.own_symbols:
            return self._join_elements(slice_value, is_reversed)
        return self._join(slice_value, is_reversed) if self.count is None else self._write(slice_value, is_reversed)

    def _write(self, slice_value: Value, is_reversed: bool) -> Collected:
        """Write the slice in its place, on a copy of all slices: the IR has no op writing in place.

        Cost: all slices, in each round; as elementwise ops, fused by backends, cheaper than a ``scatter_slice``.
        """
        inner, count = self.inner, self.count
        assert count is not None
        room = zeros(self.node, slice_value, count)
        slices = self.region.param("scanned", room.type)
        bounds: dict[str, object] = {"start": count - 1, "stop": -1, "step": -1} if is_reversed else {"stop": count}
        is_current = inner.emit("equal", inner.emit("arange", **bounds), self.round_number)
        mask = inner.reshape(is_current, (*inner.shape_of(is_current), *(1 for _ in inner.shape_of(slice_value))))
        return Collected([room], [slices], [inner.emit("where", mask, slice_value, slices)], _only)

    def _join(self, slice_value: Value, is_reversed: bool) -> Collected:
        """Join the slice to the slices so far. Cost: all slices, in each round."""
        shape = self.inner.shape_of(slice_value)
        return self._joined(self.inner.reshape(slice_value, (1, *shape)), is_reversed, _only)

    def _join_elements(self, slice_value: Value, is_reversed: bool) -> Collected:
        """Join the elements of the slice to all elements so far, and carry the sizes of a slice."""
        node, inner = self.node, self.inner
        rank = len(inner.shape_of(slice_value))
        previous = self.region.param("sizes", TensorType((rank,), "int64"))
        rounds = self.region.param("rounds", _NUMBER)

        def stack(values: Sequence[Value]) -> Value:
            all_elements, last_sizes, num_rounds = values
            (count,) = as_sizes(node, node.reshape(num_rounds, (1,)), 1) if self.count is None else (self.count,)
            return node.emit("reshape", all_elements, shape=(count, *as_sizes(node, last_sizes, rank)))

        shape = self._equal_sizes(inner.shape_of(slice_value), previous)
        joined = self._joined(inner.emit("reshape", slice_value, shape=(product(shape),)), is_reversed, stack)
        next_round = inner.emit("add", self.round_number, number(inner, 1))
        return Collected(
            [*joined.first, node.constant(np.zeros(rank, np.int64)), number(node, 0)],
            [*joined.params, previous, rounds],
            [*joined.following, sizes_value(inner, shape), next_round],
            stack,
        )

    def _equal_sizes(self, shape: Sequence[Dim], previous: Value) -> list[Dim]:
        """Return a shape whose sizes equal the sizes in the previous round; other sizes are an error of the call."""
        inner = self.inner
        is_first = inner.emit("equal", self.round_number, number(inner, 0))
        sizes = []
        for dim, before in zip(shape, elements(inner, previous, len(shape)), strict=True):
            size = size_value(inner, dim)
            expected = inner.emit("where", is_first, size, before)
            rows = [row for value in (size, expected) for row in emit_sized(inner, "as_size", value)]
            sizes.append(inner.shape_of(emit_sized(inner, "as_dynamic", *rows, axes=(0, 0))[0])[0])
        return sizes

    def _joined(self, part: Value, is_reversed: bool, stack: Callable[[Sequence[Value]], Value]) -> Collected:
        """Return the parts of all rounds, joined on axis 0."""
        rest = self.inner.shape_of(part)[1:]
        dtype = self.inner.tensor_type(part).dtype
        size = self.node.fresh_size("scanned")
        self.region.own_symbols |= {str(size)}
        parts = self.region.param("scanned", TensorType((size, *rest), dtype))
        pair = (part, parts) if is_reversed else (parts, part)
        empty = self.node.emit("broadcast_to", self.node.constant(np.zeros((), to_numpy(dtype))), shape=(0, *rest))
        return Collected([empty], [parts], [self.inner.emit("concat", *pair, axis=0)], stack)


def _only(values: Sequence[Value]) -> Value:
    (value,) = values
    return value


def zeros(node: NodeContext, example: Value, count: Dim) -> Value:
    """Return zeros with room for ``count`` values of the given type."""
    zero = node.constant(np.zeros((), to_numpy(node.tensor_type(example).dtype)))
    return node.emit("broadcast_to", zero, shape=(count, *node.shape_of(example)))
