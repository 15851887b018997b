"""Rounds: the common part of ``Loop`` and ``Scan``, unrolled or as the IR's ``loop``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from byoc_core.dims import Dim
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx.graph_order import subgraphs
from byoc_core.frontend.onnx.node_context import Imported, NodeContext
from byoc_core.frontend.onnx.regions import Region
from byoc_core.ir.module import Value, Var
from byoc_core.ir.sizes import type_symbols
from byoc_core.opset.types import TensorType

__all__ = ["MAX_UNROLLED_NODES", "Round", "Rounds"]

MAX_UNROLLED_NODES = 256
"""The most nodes in all rounds together for unrolling; unrolling also needs a known number of rounds."""

_INDEX = TensorType((), "int64")


@dataclass(frozen=True)
class Round:
    """The results of a round.

    Attributes:
        condition: whether another round follows.
        carried: the carried values for the next round.
        scanned: a slice of each scan output.
    """

    condition: Imported
    carried: Sequence[Imported]
    scanned: Sequence[Imported]


@dataclass(frozen=True)
class Rounds:
    """The rounds of a node repeating a graph.

    Attributes:
        node: the node.
        body: the graph.
        names: the names of the carried values in messages.
        run: imports a round: takes the node from the perspective inside, the round's number and the carried values.
        count: the number of rounds, or ``None`` if known only at run time.
        limit: the most rounds, as an IR value if no integer is known.
        condition: whether there is a first round.
        is_reversed: for each scan output, whether its first slice belongs to the last round.
    """

    node: NodeContext
    body: onnx.GraphProto
    names: Sequence[str]
    run: Callable[[NodeContext, Imported, Sequence[Imported]], Round]
    count: Dim | None
    limit: Imported
    condition: Imported
    is_reversed: Sequence[bool]

    def emit(self, carried: Sequence[Imported]) -> list[Imported]:
        """Emit the rounds; return the final carried values, then the scan outputs, stacked on axis 0.

        Few rounds are unrolled. In unrolled rounds, scan outputs are stacked once instead of written in each round, the
        round's number and dependent values are known, and sizes may change from round to round.

        Raises:
            FrontendError: the rounds are not unrolled and a carried value changes its type, or there are scan outputs
                with sizes only known after a run: the number of slices, or a size of a slice.
        """
        count, repeats = self.count, self.node.repeats
        if isinstance(count, int) and count * repeats * _count_nodes(self.body) <= MAX_UNROLLED_NODES:
            return self._unroll(carried, count)
        if self.is_reversed and count is None:
            raise self.node.error(
                "has scan outputs, but the number of rounds is computed at run time",
                expected="a number of rounds computed from sizes, and a constantly true condition",
            )
        return self._emit_loop(carried, 0 if count is None else count)

    def _unroll(self, carried: Sequence[Imported], count: int) -> list[Imported]:
        if count == 0:
            return [*carried, *self._empty_outputs(carried)]
        slices: list[list[Imported]] = [[] for _ in self.is_reversed]
        inner = self.node.repeated(count)
        for number in range(count):
            result = self.run(inner, np.array(number, np.int64), carried)
            carried = result.carried
            for collected, item in zip(slices, result.scanned, strict=True):
                collected.append(item)
        ordered = (
            items[::-1] if is_backward else items for items, is_backward in zip(slices, self.is_reversed, strict=True)
        )
        return [*carried, *(self._stack(items) for items in ordered)]

    def _stack(self, items: Sequence[Imported]) -> Imported:
        arrays = [array for array in map(self.node.as_array, items) if array is not None]
        if len(arrays) == len(items) and len({(array.dtype, array.shape) for array in arrays}) == 1:
            return np.stack(arrays)
        return self.node.stack([self.node.to_value(item, "a scan output") for item in items])

    def _empty_outputs(self, carried: Sequence[Imported]) -> list[Imported]:
        """Return the scan outputs of zero rounds, with types taken from a trial round."""
        if not self.is_reversed:
            return []
        region, inner = self.node.open_region("body")
        result = self.run(inner, region.param("i", _INDEX), [inner.bring_in(item) for item in carried])
        return [self._zeros(self._slice_value(region, inner, item), 0) for item in result.scanned]

    def _slice_value(self, region: Region, inner: NodeContext, item: Imported) -> Value:
        """Return a slice of a scan output as value.

        Raises:
            FrontendError: a size of the slice is only known inside a round, from an op.
        """
        slice_value = inner.to_value(item, "a scan output")
        if type_symbols((slice_value,)) & region.own_symbols:
            raise self.node.error(
                "the slices of a scan output have a size computed at run time by the body",
                got=slice_value.type,
                expected="sizes known outside the body",
            )
        return slice_value

    def _zeros(self, example: Value, count: Dim) -> Value:
        """Return zeros with room for ``count`` values of the given type."""
        type_ = self.node.tensor_type(example)
        zero = self.node.constant(np.zeros((), to_numpy(type_.dtype)))
        return self.node.emit("broadcast_to", zero, shape=(count, *self.node.shape_of(example)))

    def _emit_loop(self, carried: Sequence[Imported], num_slices: Dim) -> list[Imported]:
        """Emit a loop; ``num_slices`` is the number of rounds if there are scan outputs."""
        node = self.node
        first = [node.to_value(item, f"carried value `{name}`") for item, name in zip(carried, self.names, strict=True)]
        region, inner = node.open_region("body")
        number = region.param("i", _INDEX)
        params = [region.param(name, value.type) for name, value in zip(self.names, first, strict=True)]
        result = self.run(inner, number, params)
        pairs = zip(result.carried, self.names, strict=True)
        following = [inner.to_value(item, f"carried value `{name}`") for item, name in pairs]
        for name, before, after in zip(self.names, first, following, strict=True):
            if before.type != after.type:
                raise node.error(
                    f"carried value `{name}` changes type from round to round",
                    got=after.type,
                    expected=before.type,
                    hint=f"Types may change if the rounds are unrolled: at most {MAX_UNROLLED_NODES} nodes in all, "
                    "a constant number of rounds, and a constantly true condition.",
                )
        for item, is_reversed in zip(result.scanned, self.is_reversed, strict=True):
            slice_value = self._slice_value(region, inner, item)
            room = self._zeros(slice_value, num_slices)
            params.append(region.param("scanned", room.type))
            first.append(room)
            bounds: dict[str, object] = (
                {"start": num_slices - 1, "stop": -1, "step": -1} if is_reversed else {"stop": num_slices}
            )
            order = inner.emit("arange", **bounds)
            following.append(self._write(inner, params[-1], slice_value, inner.emit("equal", order, number)))
        condition = read_scalar(inner, inner.to_value(result.condition, "the condition"), "bool", "the condition")
        return list(self._bind(region, (number, *params), first, (condition, *following)))

    def _write(self, inner: NodeContext, slices: Var, slice_value: Value, is_current: Value) -> Value:
        """Return the slices gathered so far with a further slice, copied because the IR has no op writing in place.

        Cost: all slices, in each round; as elementwise ops, fused by backends, cheaper than a ``scatter_slice``.
        """
        mask = inner.reshape(is_current, (*inner.shape_of(is_current), *(1 for _ in inner.shape_of(slice_value))))
        return inner.emit("where", mask, slice_value, slices)

    def _bind(
        self, region: Region, params: Sequence[Var], first: Sequence[Value], results: Sequence[Value]
    ) -> Sequence[Var]:
        """Emit the loop; values from around the body are carried through the loop unchanged."""
        node = self.node
        body, captured = region.finish(results)
        captured_params = tuple(captured.values())
        body = replace(body, params=(*params, *captured_params), results=(*results, *captured_params))
        limit = read_scalar(node, node.to_value(self.limit, "the number of rounds"), "int64", "the number of rounds")
        condition = read_scalar(node, node.to_value(self.condition, "the condition"), "bool", "the condition")
        return node.emit_all("loop", (limit, condition, *first, *captured), {}, (body,))[: len(first)]


def read_scalar(node: NodeContext, value: Value, dtype: str, subject: str) -> Value:
    """Return a value of one element without axes, because models also use such values with an axis.

    Raises:
        FrontendError: the value has another dtype or more elements.
    """
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.dtype != dtype or type_.num_elements != 1:
        raise node.error(f"{subject} is not a scalar of the right dtype", got=type_, expected=TensorType((), dtype))
    return node.reshape(value, ())


def _count_nodes(graph: onnx.GraphProto) -> int:
    """Return the number of nodes, including nodes of nested graphs."""
    return sum(1 + sum(_count_nodes(inner) for _, inner in subgraphs(node)) for node in graph.node)
