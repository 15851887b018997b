"""The work of a program's instructions: region, backend, bytes and operations, for known sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from byoc_core.dims import Dim, evaluate, read_dim
from byoc_core.errors import IRTypeError
from byoc_core.profiling.results import OpName
from byoc_core.reporting.shares import items_of
from byoc_core.vm.disassemble import callee_name
from byoc_core.vm.instructions import Builtin, Call, CallKind
from byoc_core.vm.program import Register, nbytes_of

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable

__all__ = ["MACHINE", "InstructionWork", "OpWork", "ProgramWork"]

MACHINE = "vm"
"""The backend of copies."""

_STEP = re.compile(r"(.+)_step\d+")
"""The symbol of a statement of a lowered function (:mod:`byoc_core.authoring.lowered_source`)."""


class InstructionWork(NamedTuple):
    """The work of an instruction.

    Attributes:
        region: the region called by the instruction, or the function's copies.
        backend: of the region.
        symbol: the called symbol, if the region has several; else empty.
        nbytes: bytes read and written; 0 if unknown.
    """

    region: str
    backend: str
    symbol: str = ""
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class OpWork:
    """An op of a region in the offload report.

    Attributes:
        name: op, value and location.
        inputs: the names of read values.
        outputs: the names of the computed values.
        flops: operations.
        read: bytes of the operands.
        written: bytes of the results.
    """

    name: OpName
    inputs: frozenset[str]
    outputs: frozenset[str]
    flops: int
    read: int
    written: int


class ProgramWork:
    """The work of instructions and ops of an executable.

    Args:
        executable: program, modules and offload report; an empty report leaves operations unknown.
        sizes: the sizes of the inputs' symbols.
    """

    def __init__(self, executable: Executable, sizes: Mapping[str, int]) -> None:
        self._program = executable.program
        self._sizes = sizes
        self._functions = {function.name: function for function in self._program.functions}
        self._registers = {name: self._program.registers(f) for name, f in self._functions.items()}
        self._owners = {name: module for module in reversed(executable.modules) for name in module.function_names}
        report = executable.report_data
        self._backends = {str(row.get("name")): str(row.get("backend")) for row in items_of(report.get("regions"))}
        self._outputs = {str(row.get("name")): row.get("outputs") for row in items_of(report.get("regions"))}
        self._ops: dict[str, list[OpWork]] = {}
        for row in items_of(report.get("ops")):
            if row.get("region"):
                self._ops.setdefault(str(row["region"]), []).append(self._op(row))

    def ops_of(self, region: str) -> list[OpWork]:
        """Return the ops of a region; empty if unknown."""
        return self._ops.get(region, [])

    def outputs_of(self, region: str) -> frozenset[str]:
        """Return the names of the values returned by a region."""
        outputs = self._outputs.get(region)
        return frozenset(map(str, outputs)) if isinstance(outputs, list) else frozenset()

    def instruction(self, function: str, index: int) -> InstructionWork | None:
        """Return the work of an instruction; ``None`` for jumps, counters, and calls of functions of the program."""
        call = self._functions[function].code[index]
        if not isinstance(call, Call) or call.kind is CallKind.FUNCTION:
            return None
        registers = self._registers[function]
        if call.kind is CallKind.BUILTIN:
            if call.callee != Builtin.COPY:
                return None
            return InstructionWork(
                f"copies of {function}",
                MACHINE,
                nbytes=self._nbytes([registers[n] for n in (*call.args, *call.results)]),
            )
        symbol = callee_name(self._program, call)
        step = _STEP.fullmatch(symbol)
        region = step[1] if step is not None and symbol not in self._backends and step[1] in self._backends else symbol
        owner = self._owners.get(symbol)
        signature = None if owner is None else owner.find_signature(symbol)
        results = call.results if signature is None else call.results[: len(signature.outputs)]  # without a workspace
        backend = self._backends.get(region) or ("extern" if owner is None else owner.type_key)
        nbytes = self._nbytes([registers[n] for n in (*call.args, *results)])
        return InstructionWork(region, backend, "" if region == symbol else symbol, nbytes)

    def _nbytes(self, registers: Iterable[Register]) -> int:
        return sum(self._value(nbytes_of(register.shape, register.dtype)) for register in registers)

    def _op(self, row: Mapping[str, Any]) -> OpWork:
        name = str(row.get("name"))
        outputs = row.get("outputs")
        return OpWork(
            OpName(str(row.get("op")), name, str(row.get("location") or "")),
            frozenset(map(str, row.get("inputs") or ())),
            frozenset(map(str, outputs)) if isinstance(outputs, list) else frozenset([name]),
            *(self._count(row.get(key)) for key in ("flops", "nbytes_read", "nbytes_written")),
        )

    def _count(self, value: object) -> int:
        if isinstance(value, str):
            try:
                return self._value(read_dim(value))
            except IRTypeError:
                return 0
        return value if isinstance(value, int) else 0

    def _value(self, dim: Dim) -> int:
        """Return the value of a size; 0 if a symbol is known only inside the call."""
        try:
            return evaluate(dim, self._sizes)
        except IRTypeError:
            return 0
