"""The least memory needed by a call, in parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from byoc_core.dims import Dim, substitute
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.program import VMFunction, nbytes_of

__all__ = ["MemoryNeed"]


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The memory held for a call of a function, in bytes; symbolic sizes stay symbols.

    All calls share the first two parts; each running call has the others. Called functions have arenas of their own.

    Attributes:
        constants_nbytes: the artifact's constants, mapped from the file.
        payload_nbytes: the payloads of the artifact's modules: code, and other data kept by backends.
        arena_nbytes: planned intermediates, and the scratch memory taken by regions from the caller.
        input_nbytes: the inputs, without states.
        output_nbytes: the results, and the states as they are after the call.
    """

    constants_nbytes: int
    payload_nbytes: int
    arena_nbytes: Dim
    input_nbytes: Dim
    output_nbytes: Dim

    @classmethod
    def of(cls, function: VMFunction, constants_nbytes: int, payload_nbytes: int) -> MemoryNeed:
        """Return the need of a function's call in an artifact with these bytes of constants and payloads."""
        return cls(
            constants_nbytes,
            payload_nbytes,
            function.arena_nbytes,
            _nbytes(function.inputs),
            _nbytes(function.results),
        )

    @property
    def needed_nbytes(self) -> Dim:
        """The sum of all parts."""
        shared = self.constants_nbytes + self.payload_nbytes
        return shared + self.arena_nbytes + self.input_nbytes + self.output_nbytes

    def at(self, sizes: Mapping[str, int]) -> MemoryNeed:
        """Return the need for sizes of symbols; symbols without a size stay.

        Raises:
            IRTypeError: a size cannot be computed for these.
        """
        arena, inputs, outputs = (
            substitute(nbytes, sizes) for nbytes in (self.arena_nbytes, self.input_nbytes, self.output_nbytes)
        )
        return MemoryNeed(self.constants_nbytes, self.payload_nbytes, arena, inputs, outputs)


def _nbytes(specs: Iterable[TensorSpec]) -> Dim:
    return sum((nbytes_of(spec.shape, spec.dtype) for spec in specs), 0)
