"""What the functions of a program share: external symbols, constants, and what the functions of modules permit."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim
from byoc_core.ir.constants import Constant
from byoc_core.ir.module import IRModule
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.runtime.module import CallTraits, RuntimeModule
from byoc_core.runtime.workspaces import caller_nbytes
from byoc_core.vm.program import ConstantRef

__all__ = ["ProgramTables"]


class ProgramTables:
    """The program's external symbols and constants, numbered in order of first use, and its functions."""

    def __init__(self, module: IRModule) -> None:
        self._functions = {name: index for index, name in enumerate(module.functions)}
        self._externs: dict[str, int] = {}
        self._constants: dict[Constant, int] = {}
        self._owners: dict[str, RuntimeModule] = {
            name: external for external in module.attrs.get(EXTERNAL_MODULES, ()) for name in external.function_names
        }
        self._traits: dict[str, CallTraits] = {}
        self._traits_by_number: list[CallTraits] = []

    @property
    def externs(self) -> tuple[str, ...]:
        """The external symbols."""
        return tuple(self._externs)

    @property
    def constants(self) -> tuple[ConstantRef, ...]:
        """The constants."""
        return tuple(
            ConstantRef(
                constant.digest, constant.type.dtype, tuple(d for d in constant.type.shape or () if isinstance(d, int))
            )
            for constant in self._constants
        )

    def extern(self, symbol: str) -> int:
        """Gives the number of an external symbol."""
        if symbol not in self._externs:
            self._externs[symbol] = len(self._externs)
            self._traits_by_number.append(self.traits(symbol))
        return self._externs[symbol]

    def extern_traits(self, number: int) -> CallTraits:
        """Gives what the function of an external symbol's number permits."""
        return self._traits_by_number[number]

    def constant(self, constant: Constant) -> int:
        """Gives the number of a constant."""
        return self._constants.setdefault(constant, len(self._constants))

    def function(self, name: str) -> int | None:
        """Gives the number of a function; ``None`` where the module has none of that name."""
        return self._functions.get(name)

    def traits(self, symbol: str) -> CallTraits:
        """Gives what the function of a symbol permits; one that no module has permits nothing."""
        if symbol not in self._traits:
            owner = self._owners.get(symbol)
            self._traits[symbol] = CallTraits() if owner is None else owner.call_traits(symbol)
        return self._traits[symbol]

    def workspace_nbytes(self, symbol: str, shapes: Sequence[Sequence[Dim]]) -> Dim:
        """Gives the bytes of scratch memory that a function wants from its caller.

        Args:
            symbol: the function; 0 for one that no module of the program defines, or that has no signature, by which
                linking would know the scratch memory.
            shapes: of the operands and results of the call, whose symbols the size is given in.
        """
        nbytes = self.traits(symbol).workspace_nbytes
        signature = None if nbytes == 0 else self._owners[symbol].find_signature(symbol)
        return 0 if signature is None else caller_nbytes(nbytes, signature, shapes) or 0
