"""The shared tables of a program's functions: external symbols, constants, and permissions of external functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from byoc_core.dims import Dim, match_symbols
from byoc_core.errors import CodegenError
from byoc_core.ir.constants import Constant
from byoc_core.ir.module import IRModule
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.ir.structural import CALL_DPS_PACKED
from byoc_core.opset.device_numbers import MAX_DEVICE_NUMBER
from byoc_core.runtime.memory import MemoryDomain, Pool
from byoc_core.runtime.module import CallSteps, CallTraits, RuntimeModule
from byoc_core.runtime.workspaces import caller_nbytes
from byoc_core.vm.program import ALIGNMENT, HOST, ConstantRef, copies_directly

__all__ = ["ProgramTables"]


class ProgramTables:
    """The program's external symbols and constants, numbered in order of first use, and the program's functions.

    The instructions and functions of the program hold these numbers as indexes.
    """

    def __init__(self, module: IRModule) -> None:
        self._functions = {name: index for index, name in enumerate(module.functions)}
        self._externs: dict[str, int] = {}
        self._constants: dict[Constant, int] = {}
        self._owners: dict[str, RuntimeModule] = {
            name: external for external in module.attrs.get(EXTERNAL_MODULES, ()) for name in external.function_names
        }
        self._traits: dict[str, CallTraits] = {}
        self._traits_by_number: list[CallTraits] = []
        self._memories: dict[str, MemoryDomain] = {}
        self._domains: dict[tuple[str, int], MemoryDomain] = {}
        self._device_numbers = _device_numbers(module)

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

    @property
    def domains(self) -> tuple[MemoryDomain, ...]:
        """The domains of the external symbols besides the host's memory, in order of first use."""
        return tuple(self._domains.values())

    @property
    def device_numbers(self) -> tuple[int, ...]:
        """The number of the device of each domain; empty if all are 0."""
        numbers = tuple(number for _, number in self._domains)
        return numbers if any(numbers) else ()

    @property
    def extern_domains(self) -> tuple[int, ...]:
        """The domain of each external symbol; empty if all are the host's."""
        found = tuple(map(self.domain, self._externs))
        return found if any(found) else ()

    def domain(self, symbol: str) -> int:
        """Return the number of the domain of a symbol's tensors.

        Raises:
            CodegenError: two functions state different domains of the same name.
        """
        domain = self.traits(symbol).domain
        if domain is None:
            return HOST
        declared = self._memories.setdefault(domain.name, domain)
        if declared != domain:
            raise CodegenError(f"domain `{domain.name}`", "is stated in two ways", got=domain, expected=declared)
        key = domain.name, self._device_numbers.get(symbol, 0)
        self._domains.setdefault(key, domain)
        return list(self._domains).index(key) + 1

    def is_visible(self, domain: int) -> bool:
        """Return whether the host reads and writes the memory of a domain in place."""
        return domain == HOST or self.domains[domain - 1].host_accessible

    def copies_directly(self, source: int, target: int) -> bool:
        """Return whether values are copied between two domains without a way over the host's memory."""
        domains = (None, *self.domains)
        return source == target or copies_directly(domains[source], domains[target])

    def alignment(self, domain: int) -> int:
        """Return the alignment of tensors in a domain; 1 for the host's, whose machine aligns all tensors."""
        return 1 if domain == HOST else self.domains[domain - 1].alignment

    def pools(self, domain: int) -> tuple[Pool, ...]:
        """Return the pools of a domain, aligned for all tensors; empty for a single memory without limit."""
        pools = () if domain == HOST else self.domains[domain - 1].pools
        return tuple(replace(pool, alignment=max(ALIGNMENT, pool.alignment)) for pool in pools)

    def extern(self, symbol: str) -> int:
        """Return the number of an external symbol."""
        if symbol not in self._externs:
            self._externs[symbol] = len(self._externs)
            self._traits_by_number.append(self.traits(symbol))
        return self._externs[symbol]

    def extern_traits(self, number: int) -> CallTraits:
        """Return the permissions of an external function, by the number of the symbol."""
        return self._traits_by_number[number]

    def constant(self, constant: Constant) -> int:
        """Return the number of a constant."""
        return self._constants.setdefault(constant, len(self._constants))

    def function(self, name: str) -> int | None:
        """Return the number of a function; ``None`` if the module has no function of this name."""
        return self._functions.get(name)

    def traits(self, symbol: str) -> CallTraits:
        """Return the permissions of a symbol's function; a function in no module permits nothing."""
        if symbol not in self._traits:
            owner = self._owners.get(symbol)
            self._traits[symbol] = CallTraits() if owner is None else owner.call_traits(symbol)
        return self._traits[symbol]

    def steps(self, symbol: str, shapes: Sequence[Sequence[Dim]]) -> tuple[CallSteps, dict[str, Dim]] | None:
        """Return the calls that may replace a call of a symbol, and the values of the symbols of the signature.

        Args:
            symbol: the function; ``None`` is returned if no module of the program states its steps, or the function
                runs on another device than the first of its memory.
            shapes: shapes of the operands and results of the call.
        """
        if self._device_numbers.get(symbol):  # calls of steps carry no number
            return None
        owner = self._owners.get(symbol)
        steps = None if owner is None else owner.call_steps(symbol)
        signature = None if owner is None or steps is None else owner.find_signature(symbol)
        if steps is None or signature is None:
            return None
        declared = [dim for spec in (*signature.inputs, *signature.outputs) for dim in spec.shape]
        return steps, match_symbols(declared, [dim for shape in shapes for dim in shape])

    def workspace_nbytes(self, symbol: str, shapes: Sequence[Sequence[Dim]]) -> Dim:
        """Return the bytes of scratch memory wanted by a function from the caller.

        Args:
            symbol: the function; the result is 0 if no module of the program defines the function, or if the function
                has no signature, because linking needs the signature for the scratch memory.
            shapes: shapes of the operands and results of the call; the size is given in symbols of the shapes.
        """
        nbytes = self.traits(symbol).workspace_nbytes
        signature = None if nbytes == 0 else self._owners[symbol].find_signature(symbol)
        return 0 if signature is None else caller_nbytes(nbytes, signature, shapes) or 0


def _device_numbers(module: IRModule) -> dict[str, int]:
    """Return the number of the device of each called symbol; symbols on devices of number 0 are left out.

    Raises:
        CodegenError: a number is out of range, or the calls of a symbol name several devices.
    """
    found: dict[str, int] = {}
    for function in module.functions.values():
        for binding in function.walk():
            if binding.op is not CALL_DPS_PACKED:
                continue
            symbol, number = str(binding.attrs["symbol"]), binding.attrs.get("device", 0)
            assert isinstance(number, int)
            where = f"function `{function.name}`, call of `{symbol}`"
            if not 0 <= number <= MAX_DEVICE_NUMBER:
                raise CodegenError(where, "names no device", got=number, expected=f"0 to {MAX_DEVICE_NUMBER}")
            if found.setdefault(symbol, number) != number:
                raise CodegenError(
                    where, "names another device than an earlier call", got=number, expected=found[symbol]
                )
    return {symbol: number for symbol, number in found.items() if number}
