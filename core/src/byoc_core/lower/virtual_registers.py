"""Registers before numbering within the groups, and the place of each register in the memory of another."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.dims import Dim
from byoc_core.opset.layout import Layout, compact_layout, unproved_sizes
from byoc_core.vm.program import HOST, RegisterKind

__all__ = ["VirtualRegister", "VirtualRegisters"]


@dataclass(frozen=True, slots=True)
class VirtualRegister:
    """A register without a number in the group yet; see :mod:`byoc_core.vm.program` for the groups.

    Attributes:
        base: for a view, the number of the register owning the memory.
        layout: for a view, the layout of the elements in the base.
        domain: the domain of the memory.
    """

    kind: RegisterKind
    dtype: str
    shape: tuple[Dim, ...]
    binds: tuple[str, ...] = ()
    base: int = -1
    layout: Layout | None = None
    domain: int = HOST


class VirtualRegisters(list[VirtualRegister]):
    """The registers of a function, by virtual number."""

    def __init__(self) -> None:
        self._views: dict[tuple[int, Layout], int] = {}
        # Sizes of zero or more only because the machine refuses calls with negative sizes.
        self._sizes: dict[Dim, None] = {}

    def new(
        self, kind: RegisterKind, dtype: str, shape: tuple[Dim, ...], binds: tuple[str, ...] = (), domain: int = HOST
    ) -> int:
        """Add a register other than a view and return its number."""
        self.append(VirtualRegister(kind, dtype, shape, binds, domain=domain))
        if kind in (RegisterKind.PARAM, RegisterKind.TENSOR):
            self._sizes.update(dict.fromkeys(unproved_sizes(shape)))
        return len(self) - 1

    def owner(self, number: int) -> int:
        """Return the register owning the memory of a register."""
        return self[number].base if self[number].kind is RegisterKind.VIEW else number

    def layout(self, number: int) -> Layout:
        """Return the layout of a register's elements in the memory of its owner."""
        return self[number].layout or compact_layout(self[number].shape)

    def view(self, base: int, layout: Layout, *, is_written: bool) -> int | None:
        """Return the register for a layout in the memory of a register with its own memory.

        ``None`` if the machine has no such view: a dynamic register, no proof that the view lies inside, or no proof
        that the elements are distinct (repeats by broadcasting are permitted, but not with ``is_written``).
        """
        owner = self[base]
        layout = layout.canonical
        if layout == compact_layout(owner.shape):
            return base
        if (base, layout) not in self._views:
            if owner.kind is RegisterKind.DYNAMIC or not layout.fits(owner.shape, self._sizes):
                return None
            if not layout.without_repeats.is_injective(self._sizes):
                return None
            self.append(VirtualRegister(RegisterKind.VIEW, owner.dtype, layout.shape, (), base, layout, owner.domain))
            self._views[base, layout] = len(self) - 1
        return None if is_written and not layout.is_injective(self._sizes) else self._views[base, layout]
