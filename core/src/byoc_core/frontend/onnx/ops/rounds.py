"""Rounds: the common part of ``Loop`` and ``Scan``, unrolled or as the IR's ``loop``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx

from byoc_core.dims import Dim, product
from byoc_core.frontend.onnx.differing_sizes import shapes_of_alike, types_of_all_rounds
from byoc_core.frontend.onnx.graph_order import subgraphs
from byoc_core.frontend.onnx.node_context import Imported, NodeContext
from byoc_core.frontend.onnx.ops.scan_outputs import SliceCollector, zeros
from byoc_core.frontend.onnx.ops.strings import stack, to_tensor
from byoc_core.frontend.onnx.ops.structured import alike, from_parts, part_names, to_parts
from byoc_core.frontend.onnx.regions import Region
from byoc_core.frontend.onnx.sequence_value import SequenceValue
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.ir.module import Value, Var
from byoc_core.ir.sizes import type_symbols
from byoc_core.opset.types import TensorType, Type

__all__ = ["MAX_UNROLLED_NODES", "Round", "Rounds", "count_nodes"]

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
class _Body:
    """An imported round, to be run repeatedly.

    Attributes:
        region: the function of the round.
        inner: the node from the perspective inside.
        number: the parameter for the round's number.
        params: the parameters for the tensors of the carried values.
        result: the results of the round.
        following: the tensors of the carried values for the next round.
    """

    region: Region
    inner: NodeContext
    number: Var
    params: Sequence[Var]
    result: Round
    following: Sequence[Value] = ()


@dataclass(frozen=True)
class Rounds:
    """The rounds of a node repeating a graph.

    Attributes:
        node: the node.
        num_nodes: the number of nodes of the graph, including nodes of nested graphs (:func:`count_nodes`).
        names: the names of the carried values in messages.
        run: imports a round: takes the node from the perspective inside, the round's number and the carried values.
        count: the number of rounds, or ``None`` if known only at run time.
        limit: the most rounds, as an IR value if no integer is known.
        condition: whether there is a first round.
        is_reversed: for each scan output, whether its first slice belongs to the last round.
    """

    node: NodeContext
    num_nodes: int
    names: Sequence[str]
    run: Callable[[NodeContext, Imported, Sequence[Imported]], Round]
    count: Dim | None
    limit: Imported
    condition: Imported
    is_reversed: Sequence[bool]

    def emit(self, carried: Sequence[Imported]) -> list[Imported]:
        """Emit the rounds; return the final carried values, then the scan outputs, stacked on axis 0.

        Few rounds are unrolled. In unrolled rounds, scan outputs are stacked once instead of written in each round, the
        round's number and dependent values are known, and types may change from round to round. In other rounds, only
        sizes of carried values may change.

        Raises:
            FrontendError: the rounds are not unrolled, and a carried value changes its dtype or rank; or there are no
                rounds, and a slice of a scan output has a size known only in a round.
        """
        count, repeats = self.count, self.node.repeats
        if isinstance(count, int) and count * repeats * self.num_nodes <= MAX_UNROLLED_NODES:
            return self._unroll(carried, count)
        return self._emit_loop(carried)

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
        return stack(self.node, [to_tensor(self.node, item, "a scan output") for item in items])

    def _empty_outputs(self, carried: Sequence[Imported]) -> list[Imported]:
        """Return the scan outputs of zero rounds, with types taken from a trial round."""
        if not self.is_reversed:
            return []
        region, inner = self.node.open_region("body")
        result = self.run(inner, region.param("i", _INDEX), [inner.bring_in(item) for item in carried])
        return [self._empty_output(region, to_tensor(inner, item, "a scan output")) for item in result.scanned]

    def _empty_output(self, region: Region, slice_value: Value | StringTensor) -> Value | StringTensor:
        """Return the scan output of no rounds.

        Raises:
            FrontendError: a size of the slice is only known inside a round, from an op.
        """
        example = slice_value.shaped if isinstance(slice_value, StringTensor) else slice_value
        if type_symbols((example,)) & region.own_symbols:
            raise self.node.error(
                "the slices of a scan output have a size computed at run time by the body",
                got=example.type,
                expected="sizes known outside the body",
            )
        no_slices = zeros(self.node, example, 0)
        if not isinstance(slice_value, StringTensor):
            return no_slices
        return StringTensor(self.node.constant(np.zeros(0, np.uint8)), no_slices)

    def _emit_loop(self, carried: Sequence[Imported]) -> list[Imported]:
        node = self.node
        forms, first, body = self._import_body(carried)
        region, inner = body.region, body.inner
        collector = SliceCollector(node, region, inner, body.number, self.count)
        scanned = [
            collector.collect(to_tensor(inner, item, "a scan output"), is_reversed=is_reversed)
            for item, is_reversed in zip(body.result.scanned, self.is_reversed, strict=True)
        ]
        params = [*body.params, *(param for slices in scanned for param in slices.params)]
        following = [*body.following, *(value for slices in scanned for value in slices.following)]
        first += [value for slices in scanned for value in slices.first]
        condition = read_scalar(inner, inner.to_value(body.result.condition, "the condition"), "bool", "the condition")
        results = iter(self._bind(region, (body.number, *params), first, (condition, *following)))
        carried_results = [from_parts(form, results) for form in forms]
        return [*carried_results, *(slices.stack([next(results) for _ in slices.params]) for slices in scanned)]

    def _import_body(self, carried: Sequence[Imported]) -> tuple[list[Imported], list[Value], _Body]:
        """Import the body on carried values whose kinds and types hold in every round.

        The kinds and types of the initial values are tried first. A value that the body makes optional is optional in
        each round. Each size changed by the body becomes a symbol, until no other size changes; sizes changed alike
        share a symbol.

        Returns:
            The initial values, their tensors, and the body.
        """
        forms = list(carried)
        while True:
            first = self._parts(self.node, forms)
            names = [part for form, name in zip(forms, self.names, strict=True) for part in part_names(form, name)]
            types = [value.type for value in first]
            while True:
                body = self._import_round(forms, names, types)
                pairs = [
                    alike((self.node, body.inner), (form, after), f"carried value `{name}`")
                    for form, after, name in zip(forms, body.result.carried, self.names, strict=True)
                ]
                new_forms, after_forms = [before for before, _ in pairs], [after for _, after in pairs]
                if any(map(_is_widened, forms, new_forms)):
                    forms = new_forms
                    break
                body = replace(body, following=self._parts(body.inner, after_forms))
                after_types = [value.type for value in body.following]
                self._check_types(names, types, after_types)
                wider = types_of_all_rounds(
                    [value.type for value in first],
                    types,
                    after_types,
                    partial(self._new_size, names),
                )
                if wider is None:
                    body.region.own_symbols |= type_symbols(body.params) - type_symbols(first)
                    return forms, first, body
                types = wider

    def _new_size(self, names: Sequence[str], index: int) -> Dim:
        return self.node.fresh_size(names[index])

    def _parts(self, node: NodeContext, forms: Sequence[Imported]) -> list[Value]:
        pairs = zip(forms, self.names, strict=True)
        return [part for form, name in pairs for part in to_parts(node, form, f"carried value `{name}`")]

    def _import_round(self, forms: Sequence[Imported], names: Sequence[str], types: Sequence[Type]) -> _Body:
        region, inner = self.node.open_region("body")
        number = region.param("i", _INDEX)
        params = [region.param(name, type_) for name, type_ in zip(names, types, strict=True)]
        parts = iter(params)
        result = self.run(inner, number, [from_parts(form, parts) for form in forms])
        return _Body(region, inner, number, params, result)

    def _check_types(self, names: Sequence[str], before: Sequence[Type], after: Sequence[Type]) -> None:
        for name, old, new in zip(names, before, after, strict=True):
            if old != new and shapes_of_alike(old, new) is None:
                raise self.node.error(
                    f"carried value `{name}` changes type from round to round",
                    got=new,
                    expected=old,
                    hint=f"Dtype and rank may change if the rounds are unrolled: at most {MAX_UNROLLED_NODES} nodes "
                    "in all, a constant number of rounds, and a constantly true condition.",
                )

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


def _is_widened(form: Imported, new_form: Imported) -> bool:
    """Return whether a carried value became optional, or a list without tensors got a rank."""
    is_empty = isinstance(form, SequenceValue) and not form.elements
    return is_empty or len(part_names(form, "")) != len(part_names(new_form, ""))


def read_scalar(node: NodeContext, value: Value, dtype: str, subject: str) -> Value:
    """Return a value of one element without axes; models also use values of any rank, and of sizes known at run time.

    Raises:
        FrontendError: the value has another dtype, or cannot have one element.
    """
    type_ = node.tensor_type(value)
    is_single = type_.shape is None or product(size for size in type_.shape if isinstance(size, int)) == 1
    if type_.dtype != dtype or not is_single:
        raise node.error(f"{subject} is not a scalar of the right dtype", got=type_, expected=TensorType((), dtype))
    return node.reshape(value, ())


def count_nodes(graph: onnx.GraphProto) -> int:
    """Return the number of nodes, including nodes of nested graphs."""
    return sum(1 + sum(count_nodes(inner) for _, inner in subgraphs(node)) for node in graph.node)
