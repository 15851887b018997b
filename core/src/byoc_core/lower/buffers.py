"""The buffers of a function while its code is emitted: where values lie, and where those not made yet will."""

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

__all__ = ["HOW_SIZES_ARE_KNOWN", "Buffers", "shape_of"]

HOW_SIZES_ARE_KNOWN = "A shape tells a size by an axis where it is the only unknown one, such as `n` or `2*n+1`."


class Buffers:
    """Registers, code and places of one function.

    Attributes:
        registers: by virtual number.
        code: instructions over virtual numbers.
        places: the register of each value.
        constants: the register of each constant.
        targets: where a value that is not made yet has to go.
        hints: where a value that is not made yet goes best.
        known: symbols whose sizes are known at this point of the code.
        input_symbols: those that are known when the function is called.
    """

    def __init__(self, where: str, tables: ProgramTables) -> None:
        self.registers = VirtualRegisters()
        self.code: list[Instruction] = []
        self.places: dict[Var, int] = {}
        self.constants: dict[Constant, int] = {}
        self.targets: dict[Var, int] = {}
        self.hints: dict[Var, PlacementHint] = {}
        self.known: frozenset[str] = frozenset()
        self.input_symbols: frozenset[str] = frozenset()
        self._where = where
        self._tables = tables
        # Buffers of values that are made later, because part of them is made already.
        self._reserved: dict[Var, int] = {}
        self._operand_layouts: dict[tuple[Var, int], list[Layout | None]] = {}

    def tensor_type(self, type_: Type, what: str) -> TensorType:
        """Gives a type that has storage.

        Raises:
            CodegenError: it has none.
        """
        if not isinstance(type_, TensorType) or type_.shape is None:
            raise CodegenError(self._where, f"{what} has no storage", got=type_, expected="a tensor of known rank")
        return type_

    def type_of(self, var: Var) -> TensorType:
        """Gives the type of a value that needs storage."""
        return self.tensor_type(var.type, f"`{var.name}`")

    def new(self, kind: RegisterKind, type_: TensorType, binds: tuple[str, ...] = ()) -> int:
        """Gives a new register."""
        return self.registers.new(kind, type_.dtype, shape_of(type_), binds)

    def place(self, value: Value) -> int:
        """Gives the register of a value that is made already."""
        if isinstance(value, Var):
            return self.places[value]
        if value not in self.constants:
            self._tables.constant(value)
            self.constants[value] = self.new(RegisterKind.CONSTANT, value.type)
        return self.constants[value]

    def builtin(self, builtin: Builtin, args: Sequence[int], result: int) -> None:
        """Emits a call of a builtin."""
        self.code.append(Call(CallKind.BUILTIN, builtin, tuple(args), (result,)))

    def copy(self, source: int, target: int) -> None:
        """Emits a copy, unless there is nothing to do."""
        if source != target:
            self.builtin(Builtin.COPY, (source,), target)

    def temporary(self, type_: TensorType) -> int:
        """Gives a buffer at a planned place."""
        return self.new(RegisterKind.TENSOR, type_)

    def allocated(self, type_: TensorType, what: str) -> int:
        """Gives a buffer: a planned one, or one that is allocated here where only a running call knows its size."""
        symbols = type_.symbols
        if symbols <= self.input_symbols:
            return self.temporary(type_)
        if not symbols <= self.known:
            unknown = ", ".join(sorted(symbols - self.known))
            raise CodegenError(
                self._where,
                f"the size of {what} is not known when it is made: nothing gives {unknown}",
                got=type_,
                hint=HOW_SIZES_ARE_KNOWN,
            )
        register = self.new(RegisterKind.DYNAMIC, type_)
        self.builtin(Builtin.ALLOCATE, (), register)
        return register

    def has_place(self, var: Var) -> bool:
        """Tells whether there is a place for a value that is not made yet, and reserves it.

        Cost: linear in the buffers around it that nobody has needed before.
        """
        path = [var]
        while not self._is_placed(path[-1]) and path[-1] in self.hints:
            path.append(self.hints[path[-1]].owner.results[0])
        for value in reversed(path):
            if self._is_placed(value):
                continue
            register = self._inside(self.hints[value]) if value in self.hints else None
            if register is None and value is not var:
                register = self.allocated(self.type_of(value), f"`{value.name}`")
            if register is not None:
                self._reserved[value] = register
        return self._is_placed(var)

    def buffer(self, var: Var) -> int:
        """Gives the buffer into which a value has to be written, and makes it the value's place."""
        if not self.has_place(var):
            self._reserved[var] = self.allocated(self.type_of(var), f"`{var.name}`")
        self.places[var] = self._reserved.pop(var) if var in self._reserved else self.targets.pop(var)
        return self.places[var]

    def returned(self, var: Var, binds: Sequence[str]) -> int:
        """Gives the dynamic register that a returned value defines, and makes it the value's place."""
        type_ = self.type_of(var)
        self.targets.pop(var, None)
        self.places[var] = self.new(RegisterKind.DYNAMIC, type_, tuple(binds))
        return self.places[var]

    def operand_layouts(self, owner: Binding, register: int) -> list[Layout | None]:
        """Gives where the operands of a view op have to lie that makes its result in a register."""
        key = (owner.results[0], register)
        if key not in self._operand_layouts:
            self._operand_layouts[key] = _operand_layouts(owner, self.registers.layout(register))
        return self._operand_layouts[key]

    def _is_placed(self, var: Var) -> bool:
        return var in self._reserved or var in self.targets

    def _inside(self, hint: PlacementHint) -> int | None:
        """Gives the place of an operand inside its owner's, if the operand can be made there."""
        result = hint.owner.results[0]
        owner = self._reserved[result] if result in self._reserved else self.targets[result]
        layout = self.operand_layouts(hint.owner, owner)[hint.index]
        # All that is empty lies in one place, so nobody could tell the operand from the others.
        if layout is None or layout.is_empty or not (layout.is_compact or hint.may_stride):
            return None
        return self.registers.view(self.registers.owner(owner), layout, is_written=True)


def shape_of(type_: TensorType) -> tuple[int | DimExpr, ...]:
    """Gives the sizes of a tensor of known rank."""
    return type_.shape or ()


def _operand_layouts(owner: Binding, layout: Layout) -> list[Layout | None]:
    rule = owner.op.view
    return [None] * len(owner.operands) if rule is None else rule.operand_layouts(owner.context(), layout)
