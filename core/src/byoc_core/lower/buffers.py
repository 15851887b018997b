"""The buffers of a function during code emission: the places of values made already, and of values made later."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import DimExpr
from byoc_core.errors import CodegenError
from byoc_core.ir.constants import Constant
from byoc_core.ir.module import Binding, Value, Var
from byoc_core.lower.domains import ValueDomains
from byoc_core.lower.placement_hints import PlacementHint
from byoc_core.lower.tables import ProgramTables
from byoc_core.lower.virtual_registers import VirtualRegisters
from byoc_core.opset.layout import Layout
from byoc_core.opset.types import TensorType, Type
from byoc_core.vm.instructions import Builtin, Call, CallKind, Instruction
from byoc_core.vm.program import HOST, RegisterKind

__all__ = ["KNOWN_SIZES_HINT", "Buffers", "shape_of"]

KNOWN_SIZES_HINT = "A shape determines a size by an axis with a single unknown symbol, such as `n` or `2*n+1`."
"""The hint of errors about a size unknown when needed."""


class Buffers:
    """Registers, code and places of one function.

    Attributes:
        registers: the registers by virtual number.
        code: instructions over virtual numbers.
        domains: the domains of the values.
        register_of: the register of each value in its own domain.
        aliases: parameters of regions, and the values of the same name outside.
        copies: the copies of values in other domains, by value and domain.
        constants: the register of each constant in each domain.
        targets: the required register of a value not made yet.
        copy_targets: the required register of a copy of a value not made yet, by value and domain.
        hints: the best place of a value not made yet.
        known_symbols: symbols with known sizes at this point of the code.
        input_symbols: symbols with sizes known at the call of the function.
    """

    def __init__(self, where: str, tables: ProgramTables, domains: ValueDomains) -> None:
        self.registers = VirtualRegisters()
        self.code: list[Instruction] = []
        self.domains = domains
        self.register_of: dict[Var, int] = {}
        self.aliases: dict[Var, Value] = {}
        self.copies: dict[tuple[Var, int], int] = {}
        self.constants: dict[tuple[Constant, int], int] = {}
        self.targets: dict[Var, int] = {}
        self.copy_targets: dict[tuple[Var, int], int] = {}
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

    def new(self, kind: RegisterKind, type_: TensorType, binds: tuple[str, ...] = (), domain: int = HOST) -> int:
        """Add a register and return its number."""
        return self.registers.new(kind, type_.dtype, shape_of(type_), binds, domain)

    def resolve(self, value: Value) -> Value:
        """Return the value named by a parameter of a region; any other value is returned unchanged."""
        while isinstance(value, Var) and value in self.aliases:
            value = self.aliases[value]
        return value

    def register(self, value: Value, domain: int = HOST) -> int:
        """Return the register of a value made already, in a domain; emit a copy if the domain has none."""
        value = self.resolve(value)
        if isinstance(value, Var):
            home = self.domains.home(value)
            is_in_place = home == domain or (domain == HOST and self._tables.is_visible(home))
            return self.register_of[value] if is_in_place else self._copied(value, domain)
        if (value, domain) not in self.constants:
            self._tables.constant(value)
            self.constants[value, domain] = self.new(RegisterKind.CONSTANT, value.type, (), domain)
        return self.constants[value, domain]

    def source(self, value: Value, domain: int) -> int:
        """Return the best register of a value made already for a copy into a buffer of a domain."""
        value = self.resolve(value)
        if not isinstance(value, Var) or (value, domain) in self.copies:
            return self.register(value, domain)
        home = self.domains.home(value)
        return self.register(value, home if self._tables.copies_directly(home, domain) else HOST)

    def _copied(self, value: Var, domain: int) -> int:
        """Return the register of a value's copy in a domain, made directly or by way of the host's memory."""
        found = self.copies.get((value, domain))
        if found is None:
            home = self.domains.home(value)
            source = self.register(value, home if self._tables.copies_directly(home, domain) else HOST)
            found = self.copy_targets.pop((value, domain), None)
            if found is None:
                found = self.allocate(self.type_of(value), f"`{value.name}`", domain)
            self.copies[value, domain] = found
            self.copy(source, found)
        return found

    def make_copies(self, value: Var) -> None:
        """Emit the copies of a value for the readers in other domains."""
        for domain in self.domains.copies.get(value, ()):
            self.register(value, domain)

    def builtin(self, builtin: Builtin, args: Sequence[int], result: int) -> None:
        """Emit a call of a builtin."""
        self.code.append(Call(CallKind.BUILTIN, builtin, tuple(args), (result,)))

    def copy(self, source: int, target: int) -> None:
        """Emit a copy, unless source and target are the same register."""
        if source != target:
            self.builtin(Builtin.COPY, (source,), target)

    def temporary(self, type_: TensorType, domain: int = HOST) -> int:
        """Return a buffer at a planned place."""
        return self.new(RegisterKind.TENSOR, type_, (), domain)

    def allocate(self, type_: TensorType, subject: str, domain: int = HOST) -> int:
        """Return a planned buffer, or a buffer allocated here if only a running call knows the size."""
        symbols = type_.symbols
        if symbols <= self.input_symbols:
            return self.temporary(type_, domain)
        if not symbols <= self.known_symbols:
            unknown = ", ".join(sorted(symbols - self.known_symbols))
            raise CodegenError(
                self._where,
                f"the size of {subject} is unknown at the allocation: no shape determines {unknown}",
                got=type_,
                hint=KNOWN_SIZES_HINT,
            )
        register = self.new(RegisterKind.DYNAMIC, type_, (), domain)
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
                register = self._allocate_home(value)
            if register is not None:
                self._reserved[value] = register
        return self._has_buffer(var)

    def buffer(self, var: Var) -> int:
        """Return the buffer for writing a value; the buffer becomes the value's place."""
        if not self.reserve(var):
            self._reserved[var] = self._allocate_home(var)
        self.register_of[var] = self._reserved.pop(var) if var in self._reserved else self.targets.pop(var)
        return self.register_of[var]

    def _allocate_home(self, var: Var) -> int:
        return self.allocate(self.type_of(var), f"`{var.name}`", self.domains.home(var))

    def define_returned(self, var: Var, binds: Sequence[str]) -> int:
        """Return the dynamic register defined by a returned value; the register becomes the value's place."""
        type_ = self.type_of(var)
        self.targets.pop(var, None)
        self.register_of[var] = self.new(RegisterKind.DYNAMIC, type_, tuple(binds), self.domains.home(var))
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
        if layout is None or layout.is_empty:
            return None
        may_stride = hint.may_stride and self.registers[owner].domain == HOST
        if not (layout.is_compact or may_stride):
            return None
        return self.registers.view(self.registers.owner(owner), layout, is_written=True)


def shape_of(type_: TensorType) -> tuple[int | DimExpr, ...]:
    """Return the sizes of a tensor of known rank."""
    return type_.shape or ()


def _operand_layouts(owner: Binding, layout: Layout) -> list[Layout | None]:
    rule = owner.op.view
    return [None] * len(owner.operands) if rule is None else rule.operand_layouts(owner.context(), layout)
