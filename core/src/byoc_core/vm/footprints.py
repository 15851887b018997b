"""Bytes named by each register of a function, as numbered atoms: disjoint parts of the registers owning memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from byoc_core.dims import product
from byoc_core.opset.layout import Layout, compact_layout
from byoc_core.vm.boxes import parts_of
from byoc_core.vm.instructions import Call
from byoc_core.vm.program import Program, Register, RegisterKind, VMFunction

__all__ = ["Footprints", "defines_all"]

_READ_ONLY = (RegisterKind.PARAM, RegisterKind.CONSTANT)


class Footprints:
    """The atoms of every register.

    A register with memory and without views is a single atom. A register with views is cut into the atoms needed by
    the views. If this cut is not proved, the register is cut only for the views written by calls, and the other views
    read all atoms. If this cut is not proved either, the register is a single atom: views read and may change the atom,
    but never define the atom.

    Attributes:
        owners: by register, the register owning the memory.
        owner_of: by atom, the register owning the atom.
        is_exact: whether every view is proved to be exactly the atoms read by the view.

    Cost: ``O(n log n)`` in the registers, plus the atoms of each view.
    """

    def __init__(self, program: Program, function: VMFunction) -> None:
        self._registers = program.registers(function)
        self._layouts: dict[int, Layout] = {}
        self.owners = list(range(len(self._registers)))
        views: dict[int, list[int]] = {}
        for number, view in enumerate(function.views, start=function.first_view):
            self._layouts[number] = view.layout
            self.owners[number] = view.base
            views.setdefault(view.base, []).append(number)
        self.owner_of: list[int] = []
        self._atoms: list[Sequence[int]] = [()] * len(self._registers)
        self.is_exact = True
        self._inexact: set[int] = set()
        self._written = (
            {n for call in function.code if isinstance(call, Call) for n in call.results} if views else set()
        )
        for number in range(function.first_view):
            self._number_atoms(number, views.get(number, ()))

    @property
    def num_atoms(self) -> int:
        """The number of atoms of the function."""
        return len(self.owner_of)

    def of(self, register: int) -> Sequence[int]:
        """Return the atoms read and changed by a register."""
        return self._atoms[register]

    def defined_by(self, register: int) -> Sequence[int]:
        """Return the atoms completely overwritten by a write of a register."""
        return () if register in self._inexact else self._atoms[register]

    def of_all(self, registers: Iterable[int]) -> set[int]:
        """Return the atoms read and changed by some registers."""
        return {atom for register in registers for atom in self._atoms[register]}

    def is_elementwise_alias(self, left: int, right: int) -> bool:
        """Return whether corresponding elements of two registers provably have the same address."""
        return left == right or (self.owners[left] == self.owners[right] and self.have_equal_places(left, right))

    def have_equal_places(self, left: int, right: int) -> bool:
        """Return whether corresponding elements provably have the same places, each in the owner of its register."""
        left_layout, right_layout = self.layout(left), self.layout(right)
        if left_layout.is_compact and right_layout.is_compact:
            # Compact elements correspond in row-major order, whatever the two shapes.
            return left_layout.offset == right_layout.offset and product(left_layout.shape) == product(
                right_layout.shape
            )
        return left_layout == right_layout

    def layout(self, register: int) -> Layout:
        """Return the layout of a register's elements in the owner."""
        return self._layouts.get(register) or compact_layout(self._registers[register].shape)

    def _number_atoms(self, owner: int, views: Sequence[int]) -> None:
        register = self._registers[owner]
        first, num_atoms = len(self.owner_of), 1
        is_empty = 0 in register.shape
        # An empty view mostly has no atoms. A view of an empty owner has the owner's atom: its writes define the owner.
        touching = [view for view in views if is_empty or not self._layouts[view].is_empty]
        exact: Sequence[int] = ()
        parts = None
        # Read-only memory is never written in parts and needs no cut.
        if touching and not is_empty and register.kind not in _READ_ONLY:
            written = [view for view in touching if view in self._written]
            exact, parts = touching, self._parts(register, touching)
            self.is_exact &= parts is not None
            # Reading too many atoms only makes the checks stricter; defining too many would make the checks wrong.
            if parts is None and len(written) < len(touching):
                exact, parts = written, self._parts(register, written)
            if parts is None:
                exact = ()
                # A write through a view may leave a part of the single atom unwritten.
                self._inexact.update(touching)
            else:
                num_atoms = len(parts[0])
        for view in touching:
            self._atoms[view] = range(first, first + num_atoms)
        for view, part in zip(exact, parts[1:] if parts else (), strict=True):
            self._atoms[view] = tuple(first + number for number in part)
        self._atoms[owner] = range(first, first + num_atoms)
        self.owner_of += [owner] * num_atoms

    def _parts(self, owner: Register, views: Sequence[int]) -> list[tuple[int, ...]] | None:
        return parts_of(owner.shape, [self._layouts[view] for view in views])


def defines_all(function: VMFunction, footprints: Footprints) -> bool:
    """Return whether, for every view written by a call, the overwritten bytes of the base are proved."""
    return all(
        len(footprints.defined_by(number)) == len(footprints.of(number))
        for call in function.code
        if isinstance(call, Call)
        for number in call.results
    )
