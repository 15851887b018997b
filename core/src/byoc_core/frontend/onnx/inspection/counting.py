"""The work and the memory of an imported model, before any pass of the compiler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from byoc_core.dims import Dim, evaluate, symbols_of
from byoc_core.errors import IRTypeError, OptionsError, near_names
from byoc_core.frontend.onnx.graph_order import subgraphs
from byoc_core.frontend.onnx.inspection.rows import MemoryEstimate, NodeWork, OpWork, plain
from byoc_core.frontend.onnx.loading import LoadedModel, function_key, onnx_name
from byoc_core.frontend.onnx_names import dotted_name
from byoc_core.ir.constants import Constant
from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.lower.estimate_arena import count_nbytes, estimate_arena
from byoc_core.opset.opdef import Trait
from byoc_core.transform.trace_sizes import SizeKind, SizeOrigin, SizeTrace

__all__ = ["ModelWork", "count_work"]


@dataclass(frozen=True)
class ModelWork:
    """The work and memory of an imported model, for counted sizes.

    Attributes:
        total_flops: all FLOPs, with symbolic sizes. Branches and loop bodies count once.
        counted_flops: all FLOPs for the counted sizes.
        counted_sizes: the counted size of each symbol.
        ops: the ops, most FLOPs first.
        nodes: the nodes with FLOPs, most FLOPs first; as many as requested.
        num_constant_ops: the number of ops on constants alone, left out.
        memory: the memory of a call.
        sizes: the origins of dynamic sizes.
    """

    total_flops: Dim
    counted_flops: int
    counted_sizes: Mapping[str, int]
    ops: tuple[OpWork, ...]
    nodes: tuple[NodeWork, ...]
    num_constant_ops: int
    memory: MemoryEstimate
    sizes: tuple[SizeOrigin, ...]

    def to_data(self) -> dict[str, Any]:
        """Return the work as JSON values."""
        return {
            "total_flops": plain(self.total_flops),
            "counted_flops": self.counted_flops,
            "counted_sizes": dict(self.counted_sizes),
            "ops": [row.to_data(self.counted_flops) for row in self.ops],
            "heaviest_nodes": [row.to_data(self.counted_flops) for row in self.nodes],
            "num_constant_ops": self.num_constant_ops,
            "memory": self.memory.to_data(),
            "sizes": [origin.to_data() for origin in self.sizes],
        }


def count_work(
    model: LoadedModel, main: Function, trace: SizeTrace, sizes: Mapping[str, int], num_heaviest: int
) -> ModelWork:
    """Return the work and memory of an imported model.

    Args:
        model: the model.
        main: the imported function.
        trace: the dynamic sizes of the function.
        sizes: the counted values of symbolic sizes; others count as 1.
        num_heaviest: the number of nodes to list.

    Raises:
        OptionsError: a name of ``sizes`` is no symbolic size of the function.
    """
    names = _symbols(trace.origins)
    for name in sizes:
        if name not in names:
            raise OptionsError(
                f"size `{name}`",
                "is no symbolic size of the model",
                expected=", ".join(names) or "no size: all sizes are static",
                hint=near_names(name, names) or None,
            )
    return _Counting(model, main, trace, {name: sizes.get(name, 1) for name in names}).count(num_heaviest)


class _Counting:
    """The counting of work and memory of an imported model."""

    def __init__(self, model: LoadedModel, main: Function, trace: SizeTrace, sizes: Mapping[str, int]) -> None:
        self._model = model
        self._main = main
        self._origins = trace.origins
        self._sizes = sizes
        self._counted: dict[Dim, int] = {}

    def count(self, num_heaviest: int) -> ModelWork:
        """Return work and memory, with as many of the heaviest nodes as requested."""
        constant_results = _find_constant_results(self._main)
        counts: Counter[str] = Counter()
        flops: dict[str, Dim] = {}
        counted: Counter[str] = Counter()
        by_node: Counter[str] = Counter()
        for binding in _walk(self._main, constant_results):
            name, amount = binding.op.name, binding.op.flops(binding.context())
            count = self._evaluate(amount)
            counts[name] += 1
            flops[name] = flops.get(name, 0) + amount
            counted[name] += count
            if binding.location is not None and count:
                by_node[binding.location.name] += count
        ops = [OpWork(name, counts[name], flops[name], counted[name]) for name in counts]
        heaviest = sorted(by_node.items(), key=lambda item: -item[1])[:num_heaviest]
        return ModelWork(
            total_flops=sum((row.flops for row in ops), 0),
            counted_flops=counted.total(),
            counted_sizes=self._sizes,
            ops=tuple(sorted(ops, key=lambda row: (-row.counted_flops, -row.count, row.op))),
            nodes=tuple(NodeWork(node, _find_operator(self._model, node), count) for node, count in heaviest),
            num_constant_ops=len(list(self._main.walk())) - counts.total(),
            memory=self._estimate_memory(constant_results),
            sizes=self._origins,
        )

    def _evaluate(self, amount: Dim) -> int:
        if isinstance(amount, int):
            return amount
        if amount not in self._counted:
            try:
                found = evaluate(amount, {name: self._sizes.get(name, 1) for name in symbols_of(amount)})
            except IRTypeError:  # the counted sizes do not fit
                found = 0
            self._counted[amount] = max(found, 0)
        return self._counted[amount]

    def _estimate_memory(self, constant_results: set[Var]) -> MemoryEstimate:
        main = self._main
        arena = estimate_arena(main, self._sizes, constant_results)
        read: dict[object, Value] = {}
        for value in (*(o for b in _walk(main, constant_results) for o in b.operands), *main.results):
            if isinstance(value, Constant) or value in constant_results:
                read.setdefault(value, value)
        constants, inputs, outputs = (
            count_nbytes([value.type for value in values], self._sizes)
            for values in (list(read.values()), main.params, main.results)
        )
        peak = arena.peak_binding
        return MemoryEstimate(
            constants_nbytes=constants[0],
            arena_nbytes=arena.arena_nbytes,
            peak_nbytes=arena.peak_nbytes,
            unshared_nbytes=arena.total_nbytes,
            input_nbytes=inputs[0],
            output_nbytes=outputs[0],
            peak_node="" if peak is None or peak.location is None else peak.location.name,
            num_uncounted=arena.num_uncounted + inputs[1] + outputs[1],
        )


def _symbols(origins: Sequence[SizeOrigin]) -> list[str]:
    kinds = (SizeKind.INPUT, SizeKind.UNKNOWN)
    return list(dict.fromkeys(origin.size for origin in origins if origin.kind in kinds and origin.size != "?"))


def _find_constant_results(function: Function) -> set[Var]:
    """Return the results of the function's ops on constants alone, computed by the compiler."""
    constant_results: set[Var] = set()
    for binding in function.bindings:
        is_pure = binding.op.has_trait(Trait.PURE) and not binding.op.has_trait(Trait.DATA_DEPENDENT)
        if not is_pure or binding.regions or not binding.operands:
            continue
        if all(isinstance(operand, Constant) or operand in constant_results for operand in binding.operands):
            constant_results.update(binding.results)
    return constant_results


def _walk(function: Function, constant_results: set[Var]) -> Iterator[Binding]:
    return (binding for binding in function.walk() if binding.results[0] not in constant_results)


def _find_operator(model: LoadedModel, path: str) -> str:
    """Return the operator of the node at a path: names of calling nodes and of the node, joined by slashes."""
    return _search_nodes(model, model.graph.node, path)


def _search_nodes(model: LoadedModel, nodes: Sequence[onnx.NodeProto], path: str) -> str:
    found = ""
    for node in nodes:
        name = node.name or next(filter(None, node.output), "")
        if path == name:
            return dotted_name(onnx_name(node))
        if name and path.startswith(f"{name}/"):
            function = model.functions.get(function_key(node))
            inner = [graph.node for _, graph in subgraphs(node)] if function is None else [function.node]
            rest = path.removeprefix(f"{name}/")
            found = next(filter(None, (_search_nodes(model, part, rest) for part in inner)), "")
            found = found or dotted_name(onnx_name(node))
    return found
