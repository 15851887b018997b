"""The buffers of a function during code emission: the places of values made already, and of values made later."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import DimExpr
from byoc_core.errors import CodegenError
from byoc_core.ir.constants import Constant
from byoc_core.ir.module import Binding, Value, Var
from byoc_core.lower.placement_hints import PlacementHint
from byoc_core.lower.tables import ProgramTables
from byoc_core.lower.virtual_registers import VirtualRegisters
from byoc_core.opset.layout import Layout
from byoc_core.opset.types import TensorType, Type
from byoc_core.vm.instructions import Builtin, Call, CallKind, Instruction
from byoc_core.vm.program import RegisterKind

__all__ = ["KNOWN_SIZES_HINT", "Buffers", "shape_of"]

KNOWN_SIZES_HINT = "A shape determines a size by an axis with a single unknown symbol, such as `n` or `2*n+1`."
"""The hint of errors about a size unknown when needed."""


class Buffers:
    """Registers, code and places of one function.

    Attributes:
        registers: the registers by virtual number.
        code: instructions over virtual numbers.
        register_of: the register of each value.
        constants: the register of each constant.
        targets: the required register of a value not made yet.
        hints: the best place of a value not made yet.
        known_symbols: symbols with known sizes at this point of the code.
        input_symbols: symbols with sizes known at the call of the function.
    """

    def __init__(self, where: str, tables: ProgramTables) -> None:
        self.registers = VirtualRegisters()
        self.code: list[Instruction] = []
        self.register_of: dict[Var, int] = {}
        self.constants: dict[Constant, int] = {}
        self.targets: dict[Var, int] = {}
        self.hints: dict[Var, PlacementHint] = {}
        self.known_symbols: frozenset[str] = frozenset()
        self.input_symbols: frozenset[str] = frozenset()
        self._where = where
        self._tables = tables
        # Buffers of values made later, reserved because a part is made already.
        self._reserved: dict[Var, int] = {}
        self._operand_layouts: dict[tuple[Var, int], list[Layout | None]] = {}

    def tensor_type(self, type_: Type, subject: str) -> TensorType:
        """Return a type if tensors of the type have storage.

        Raises:
            CodegenError: the type has no storage.
        """
        if not isinstance(type_, TensorType) or type_.shape is None:
            raise CodegenError(self._where, f"{subject} has no storage", got=type_, expected="a tensor of known rank")
        return type_

    def type_of(self, var: Var) -> TensorType:
        """Return the type of a value in need of storage."""
        return self.tensor_type(var.type, f"`{var.name}`")

    def type_of_register(self, number: int) -> TensorType:
        """Return the type of the tensor in a register."""
        return TensorType(self.registers[number].shape, self.registers[number].dtype)

    def new(self, kind: RegisterKind, type_: TensorType, binds: tuple[str, ...] = ()) -> int:
        """Add a register and return its number."""
        return self.registers.new(kind, type_.dtype, shape_of(type_), binds)

    def register(self, value: Value) -> int:
        """Return the register of a value made already."""
        if isinstance(value, Var):
            return self.register_of[value]
        if value not in self.constants:
            self._tables.constant(value)
            self.constants[value] = self.new(RegisterKind.CONSTANT, value.type)
        return self.constants[value]

    def builtin(self, builtin: Builtin, args: Sequence[int], result: int) -> None:
        """Emit a call of a builtin."""
        self.code.append(Call(CallKind.BUILTIN, builtin, tuple(args), (result,)))

    def copy(self, source: int, target: int) -> None:
        """Emit a copy, unless source and target are the same register."""
        if source != target:
            self.builtin(Builtin.COPY, (source,), target)

    def temporary(self, type_: TensorType) -> int:
        """Return a buffer at a planned place."""
        return self.new(RegisterKind.TENSOR, type_)

    def allocate(self, type_: TensorType, subject: str) -> int:
        """Return a planned buffer, or a buffer allocated here if only a running call knows the size."""
        symbols = type_.symbols
        if symbols <= self.input_symbols:
            return self.temporary(type_)
        if not symbols <= self.known_symbols:
            unknown = ", ".join(sorted(symbols - self.known_symbols))
            raise CodegenError(
                self._where,
                f"the size of {subject} is unknown at the allocation: no shape determines {unknown}",
                got=type_,
                hint=KNOWN_SIZES_HINT,
            )
        register = self.new(RegisterKind.DYNAMIC, type_)
        self.builtin(Builtin.ALLOCATE, (), register)
        return register

    def reserve(self, var: Var) -> bool:
        """Reserve a buffer for a value not made yet if possible; return whether the value has a buffer.

        Cost: linear in the surrounding buffers not needed before.
        """
        path = [var]
        while not self._has_buffer(path[-1]) and path[-1] in self.hints:
            path.append(self.hints[path[-1]].owner.results[0])
        for value in reversed(path):
            if self._has_buffer(value):
                continue
            register = self._operand_view(self.hints[value]) if value in self.hints else None
            if register is None and value is not var:
                register = self.allocate(self.type_of(value), f"`{value.name}`")
            if register is not None:
                self._reserved[value] = register
        return self._has_buffer(var)

    def buffer(self, var: Var) -> int:
        """Return the buffer for writing a value; the buffer becomes the value's place."""
        if not self.reserve(var):
            self._reserved[var] = self.allocate(self.type_of(var), f"`{var.name}`")
        self.register_of[var] = self._reserved.pop(var) if var in self._reserved else self.targets.pop(var)
        return self.register_of[var]

    def define_returned(self, var: Var, binds: Sequence[str]) -> int:
        """Return the dynamic register defined by a returned value; the register becomes the value's place."""
        type_ = self.type_of(var)
        self.targets.pop(var, None)
        self.register_of[var] = self.new(RegisterKind.DYNAMIC, type_, tuple(binds))
        return self.register_of[var]

    def operand_layouts(self, owner: Binding, register: int) -> list[Layout | None]:
        """Return the layouts required of the operands of a view op if a register is the op's result."""
        key = (owner.results[0], register)
        if key not in self._operand_layouts:
            self._operand_layouts[key] = _operand_layouts(owner, self.registers.layout(register))
        return self._operand_layouts[key]

    def _has_buffer(self, var: Var) -> bool:
        return var in self._reserved or var in self.targets

    def _operand_view(self, hint: PlacementHint) -> int | None:
        """Return the place of an operand inside the owner's place, if the operand can be made there."""
        result = hint.owner.results[0]
        owner = self._reserved[result] if result in self._reserved else self.targets[result]
        layout = self.operand_layouts(hint.owner, owner)[hint.index]
        # Empty layouts coincide: the operand could not be told from the others.
        if layout is None or layout.is_empty or not (layout.is_compact or hint.may_stride):
            return None
        return self.registers.view(self.registers.owner(owner), layout, is_written=True)


def shape_of(type_: TensorType) -> tuple[int | DimExpr, ...]:
    """Return the sizes of a tensor of known rank."""
    return type_.shape or ()


def _operand_layouts(owner: Binding, layout: Layout) -> list[Layout | None]:
    rule = owner.op.view
    return [None] * len(owner.operands) if rule is None else rule.operand_layouts(owner.context(), layout)
