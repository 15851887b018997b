"""The C of the values kept from call to call: a structure of the caller, and the function setting the first values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from byoc_core.artifact.plain_c.constants import ConstantFiles
from byoc_core.artifact.plain_c.names import FunctionNames
from byoc_core.dims import product
from byoc_core.native.c_text import HALF_DTYPES, c_comment, c_storage_type
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.program import Program, VMFunction

__all__ = ["StateText", "public_type"]


def public_type(dtype: str) -> str:
    """Return the C type of elements in public structures."""
    return "uint16_t" if dtype in HALF_DTYPES else c_storage_type(dtype)


@dataclass(frozen=True)
class StateText:
    """The C of the states of a function; all sizes are numbers.

    Attributes:
        prefix: the model's name.
        program: the program.
        function: the function.
        names: the C names of the function.
        constants: the constants.
    """

    prefix: str
    program: Program
    function: VMFunction
    names: FunctionNames
    constants: ConstantFiles

    @property
    def _specs(self) -> list[TensorSpec]:
        return [self.function.params[state.param] for state in self.function.states]

    def declarations(self) -> Iterator[str]:
        """Yield the structure, and the head of the function setting the first values."""
        names, label = self.names, c_comment(self.function.name)
        yield f"/* Function `{label}`: values kept from call to call, read and changed by each run."
        yield " * One run at a time uses a structure; several structures are several sequences. A failed run may leave"
        yield " * half of the new values. */"
        yield f"struct {names.state_structure} {{"
        for spec, member in zip(self._specs, names.states, strict=True):
            shape = c_comment(", ".join(map(str, spec.shape)))
            count = product(spec.shape) or 1  # C has no arrays without elements
            yield f"  {public_type(spec.dtype)} {member}[{count}]; /* {spec.dtype}[{shape}] */"
        yield "};"
        yield "/* Set the values before the first run; return a status. */"
        yield f"{self._head()};"

    def _head(self) -> str:
        constants = ", const void *constants" if self.constants.is_file else ""
        return f"int32_t {self.names.init_state}(struct {self.names.state_structure} *state{constants})"

    def definition(self) -> Iterator[str]:
        """Yield the function setting the first values."""
        upper = self.prefix.upper()
        expressions = self.constants.expressions()
        yield f"{self._head()} {{"
        yield f"  if (!state) return {upper}_BAD_ARGUMENT;"
        if self.constants.is_file:
            yield f"  const int32_t status = {self.prefix}_check_constants(constants, {upper}_CONSTANTS_SIZE);"
            yield "  if (status) return status;"
        for state, spec, member in zip(self.function.states, self._specs, self.names.states, strict=True):
            if state.initial is None or not product(spec.shape):
                yield f"  memset(state->{member}, 0, sizeof state->{member});"
                continue
            source = expressions[self.program.constants[state.initial].digest]
            yield f"  memcpy(state->{member}, (const void *)(uintptr_t)({source}), sizeof state->{member});"
        yield f"  return {upper}_OK;"
        yield "}"
        yield ""

    def with_states(self, arguments: Sequence[str]) -> list[str]:
        """Return the arguments of all params and results: a state is its member, before and after the call.

        Args:
            arguments: the inputs, then the outputs, without states.
        """
        count = len(self.function.params)
        members: dict[int, str] = {}
        for state, member in zip(self.function.states, self.names.states, strict=True):
            members |= dict.fromkeys((state.param, count + state.result), f"state->{member}")
        remaining = iter(arguments)
        total = count + len(self.function.results)
        return [members[number] if number in members else next(remaining) for number in range(total)]
