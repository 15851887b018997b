"""Sums of records: the times and the work of regions and parts in a call of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from byoc_core.opset.contexts import no_flops
from byoc_core.opset.families import find_op
from byoc_core.profiling.program_work import InstructionWork, OpWork, ProgramWork
from byoc_core.profiling.recording import CallRecord, instruction_records
from byoc_core.profiling.results import PartProfile, RegionProfile

__all__ = ["computed_ops", "sum_regions"]


@dataclass(slots=True)
class _Sum:
    """Runs and nanoseconds."""

    calls: int = 0
    nanoseconds: int = 0

    def add(self, nanoseconds: int) -> None:
        self.calls += 1
        self.nanoseconds += nanoseconds


@dataclass(slots=True)
class _RegionSum:
    """The sum of a region.

    Attributes:
        symbols: runs of the called symbols: more than one for a lowered region.
        parts: by symbol, position in the call, name and ops.
    """

    work: InstructionWork
    total: _Sum = field(default_factory=_Sum)
    nbytes: int = 0
    symbols: dict[str, int] = field(default_factory=dict)
    parts: dict[tuple[str, int, str, str], _Sum] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """Calls of the region: its steps run equally often."""
        return max(self.symbols.values(), default=0)


def sum_regions(
    records: Sequence[CallRecord], work: ProgramWork
) -> tuple[tuple[RegionProfile, ...], dict[tuple[str, int], InstructionWork]]:
    """Return the mean times of regions and parts over calls, in the order of the first run, and the instructions' work.

    Args:
        records: calls on inputs of the same sizes.
        work: the work of the program for these sizes.
    """
    instructions: dict[tuple[str, int], InstructionWork | None] = {}
    regions: dict[str, _RegionSum] = {}
    for record in records:
        for run in instruction_records(record):
            key = run.function, run.instruction
            if key not in instructions:
                instructions[key] = work.instruction(*key)
            instruction = instructions[key]
            if instruction is None:
                continue
            region = regions.setdefault(instruction.region, _RegionSum(instruction))
            region.total.add(run.stop - run.start)
            region.nbytes += instruction.nbytes
            symbol = instruction.symbol
            region.symbols[symbol] = region.symbols.get(symbol, 0) + 1
            if symbol and not run.parts:
                region.parts.setdefault((symbol, 0, symbol, ""), _Sum()).add(run.stop - run.start)
            for position, (_, name, ops, start, stop) in enumerate(run.parts):
                region.parts.setdefault((symbol, position, name or "", ops or ""), _Sum()).add(stop - start)
    found = {key: instruction for key, instruction in instructions.items() if instruction is not None}
    return tuple(_region(region, len(records), work) for region in regions.values()), found


def _region(region: _RegionSum, num_calls: int, work: ProgramWork) -> RegionProfile:
    ops, outputs = work.ops_of(region.work.region), work.outputs_of(region.work.region)
    num_readers = Counter(name for op in ops for name in op.inputs)
    parts = []
    computed_by_part = computed_ops([ops_lines for _, _, _, ops_lines in region.parts], ops, num_readers, outputs)
    for ((_, _, name, _), total), computed in zip(region.parts.items(), computed_by_part, strict=True):
        calls = total.calls / num_calls
        parts.append(
            PartProfile(
                name,
                tuple(op.name for op in computed),
                calls,
                total.nanoseconds / num_calls / 1e9,
                sum(op.flops for op in computed) * calls,
                _traffic(computed, num_readers, outputs) * calls,
            )
        )
    calls = region.runs / num_calls
    return RegionProfile(
        region.work.region,
        region.work.backend,
        calls,
        region.total.nanoseconds / num_calls / 1e9,
        sum(op.flops for op in ops) * calls,
        region.nbytes / num_calls,
        tuple(parts),
    )


def computed_ops(
    parts: Sequence[str], ops: Sequence[OpWork], num_readers: Mapping[str, int], outputs: frozenset[str]
) -> list[list[OpWork]]:
    """Return the ops of the model computed by each part, in the order of the region.

    A backend may replace an op together with the ops before by another op, with the result of the last. A part with
    such an op computes the op with this result, and the ops named by no part whose results are read there only. A part
    moving elements of a value computed by another part, to change the layout, computes no op.

    Args:
        parts: the text of the ops of each part; see :func:`byoc_core.runtime.parts.ops_text`.
        ops: the ops of the region.
        num_readers: the number of ops of the region with a value as operand, by name.
        outputs: the values returned by the region.

    Cost: linear in ops and operands.
    """
    positions = {output: position for position, op in enumerate(ops) for output in op.outputs}
    pairs_by_part: list[list[tuple[str, int]]] = []
    for text in parts:
        lines = [line.split(" ", 1) for line in text.splitlines() if " " in line]
        pairs_by_part.append([(name, positions[value]) for name, value in lines if value in positions])
    pairs_by_part = _without_moves(pairs_by_part, ops)
    assigned = {position for pairs in pairs_by_part for _, position in pairs}
    found = []
    for pairs in pairs_by_part:
        computed = {position for _, position in pairs}
        waiting = [position for name, position in pairs if ops[position].name.op != name]
        while waiting:
            inputs = ops[waiting.pop()].inputs - outputs
            makers = {positions[value] for value in inputs if value in positions and num_readers[value] == 1} - assigned
            assigned |= makers
            computed |= makers
            waiting += makers
        found.append([ops[position] for position in sorted(computed)])
    return found


def _without_moves(
    pairs_by_part: Sequence[Sequence[tuple[str, int]]], ops: Sequence[OpWork]
) -> list[list[tuple[str, int]]]:
    """Return the named ops of each part, without moves of values computed elsewhere.

    Args:
        pairs_by_part: for each part the names of ops, and the positions of the ops with the same results.
        ops: the ops of the region.
    """

    def is_move(name: str, position: int) -> bool:
        op = find_op(name)
        return op is not None and name != ops[position].name.op and op.flops is no_flops

    computed = {position for pairs in pairs_by_part for name, position in pairs if not is_move(name, position)}
    return [
        [(name, position) for name, position in pairs if position not in computed or not is_move(name, position)]
        for pairs in pairs_by_part
    ]


def _traffic(computed: Sequence[OpWork], num_readers: Mapping[str, int], outputs: frozenset[str]) -> int:
    """Return the bytes read and written by a part; values passed on inside the part and read nowhere else are left out.

    A value from outside counts for each op of the part with the value as operand.

    Args:
        computed: the ops of the part.
        num_readers: the number of ops of the region with a value as operand, by name.
        outputs: the values returned by the region.

    Cost: linear in the operands of the part.
    """
    written = {output: op.written for op in computed for output in op.outputs}
    passed = Counter(name for op in computed for name in op.inputs & written.keys())
    total = sum(op.read + op.written for op in computed)
    total -= sum(written[name] * count for name, count in passed.items())
    inner = (name for name, count in passed.items() if count == num_readers[name] and name not in outputs)
    return max(0, total - sum(written[name] for name in inner))
