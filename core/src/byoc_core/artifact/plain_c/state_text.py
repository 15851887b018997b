"""The C of the values kept from call to call: a structure of the caller, and the functions setting and changing values.

A state of known size is an array of the structure. Any other state is a buffer of the caller with its capacity; rows of
a moving length lie at the start of the buffer, so the caller may copy the rows into a larger buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from byoc_core.artifact.plain_c.constants import ConstantFiles
from byoc_core.artifact.plain_c.names import FunctionNames
from byoc_core.dims import Dim, product, shape_symbols, upper_bound
from byoc_core.dtypes import dtype_info
from byoc_core.native.c_text import HALF_DTYPES, c_comment, c_storage_type
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.program import Program, VMFunction

__all__ = ["StateText", "public_type"]


def public_type(dtype: str) -> str:
    """Return the C type of elements in public structures."""
    return "uint16_t" if dtype in HALF_DTYPES else c_storage_type(dtype)


@dataclass(frozen=True)
class StateText:
    """The C of the states of a function.

    Attributes:
        prefix: the model's name.
        program: the program.
        function: the function.
        names: the C names of the function.
        constants: the constants.
        max_sizes: the largest size of each symbol, or ``None``.
    """

    prefix: str
    program: Program
    function: VMFunction
    names: FunctionNames
    constants: ConstantFiles
    max_sizes: Mapping[str, int] | None = None

    @property
    def _specs(self) -> list[TensorSpec]:
        return [self.function.params[state.param] for state in self.function.states]

    @property
    def buffers(self) -> tuple[str, ...]:
        """The members with a pointer to a buffer of the caller, as C expressions."""
        pairs = zip(self.names.states, self.names.capacities, strict=True)
        return tuple(f"state->{member}" for member, capacity in pairs if capacity is not None)

    def _elements_after(self) -> Iterator[tuple[str, str, TensorSpec, Dim]]:
        """Yield for each buffer the member, the capacity's member, the old value and the elements after a run."""
        rows = zip(self.function.states, self._specs, self.names.states, self.names.capacities, strict=True)
        for state, spec, member, capacity in rows:
            if capacity is not None:
                yield member, capacity, spec, product(self.function.results[state.result].shape)

    def buffer_sizes(self) -> list[tuple[str, str, str, Dim]]:
        """Return for each buffer the member, the member with the capacity, the dtype, and the elements after a run."""
        return [(member, capacity, spec.dtype, count) for member, capacity, spec, count in self._elements_after()]

    def declarations(self) -> Iterator[str]:
        """Yield the structure, and the head of the function setting the first values."""
        names, label = self.names, c_comment(self.function.name)
        if self.max_sizes is not None:
            for member, _, _, count in self._elements_after():
                yield f"/* Elements of the buffer `{member}` at the largest sizes. */"
                yield f"#define {names.capacity_macro(member)} {max(upper_bound(count, self.max_sizes), 1)}"
        yield f"/* Function `{label}`: values kept from call to call, read and changed by each run."
        if self.buffers:
            full = f"{self.prefix.upper()}_STATE_FULL"
            yield " * Pointers are buffers of the caller, set with their capacities before the first run, apart from"
            yield f" * all other memory. A run in need of more elements returns {full}: copy the elements in use"
            yield " * to the start of a larger buffer, set pointer and capacity, and run again."
        yield " * One run at a time uses a structure; several structures are several sequences. A failed run may leave"
        yield " * half of the new values. */"
        yield f"struct {names.state_structure} {{"
        for spec, member, capacity in zip(self._specs, names.states, names.capacities, strict=True):
            shape = c_comment(", ".join(map(str, spec.shape)))
            if capacity is None:
                count = product(spec.shape) or 1  # C has no arrays without elements
                yield f"  {public_type(spec.dtype)} {member}[{count}]; /* {spec.dtype}[{shape}] */"
            else:
                yield f"  {public_type(spec.dtype)} *{member}; /* {spec.dtype}[{shape}], a buffer of the caller */"
                yield f"  int64_t {capacity}; /* elements of the buffer */"
        for symbol, member in names.lengths.items():
            yield f"  int64_t {member}; /* size {c_comment(symbol)}: rows in use */"
        for symbol, member in names.decided.items():
            yield f"  int64_t {member}; /* size {c_comment(symbol)}, decided by the first run; -1 before */"
        yield "};"
        yield "/* Set the values before the first run; return a status. Buffers and capacities stay. */"
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
        rows = zip(self.function.states, self._specs, self.names.states, self.names.capacities, strict=True)
        for state, spec, member, capacity in rows:
            if capacity is not None:
                continue
            if state.initial is None or not product(spec.shape):
                yield f"  memset(state->{member}, 0, sizeof state->{member});"
                continue
            source = expressions[self.program.constants[state.initial].digest]
            yield f"  memcpy(state->{member}, (const void *)(uintptr_t)({source}), sizeof state->{member});"
        yield from (f"  state->{member} = 0;" for member in self.names.lengths.values())
        yield from (f"  state->{member} = -1;" for member in self.names.decided.values())
        yield f"  return {upper}_OK;"
        yield "}"
        yield ""

    def checks(self) -> Iterator[str]:
        """Yield the checks of a run for sizes with a meaning: sizes of earlier runs, and capacities."""
        upper = self.prefix.upper()
        for symbol, member in self.names.decided.items():
            variable = self.names.size_variable(symbol)
            yield f"  if (state->{member} >= 0 && state->{member} != {variable}) return {upper}_BAD_SIZE;"
        for _, capacity, _, count in self._elements_after():
            yield f"  if ({self.names.size_text(count)} > state->{capacity}) return {upper}_STATE_FULL;"

    def first_values(self) -> Iterator[str]:
        """Yield the C setting buffers without a moving length before the first run: their sizes are known now."""
        rows = zip(self.function.states, self._specs, self.names.states, self.names.capacities, strict=True)
        for state, spec, member, capacity in rows:
            if capacity is None or state.axis is not None:
                continue
            unknown = " || ".join(f"state->{name} < 0" for name in self._decided_of(spec))
            nbytes = f"(size_t){self.names.size_text(product(spec.shape))} * {dtype_info(spec.dtype).itemsize}"
            yield f"  if ({unknown}) memset(state->{member}, 0, {nbytes});"

    def _decided_of(self, spec: TensorSpec) -> list[str]:
        symbols = shape_symbols(spec.shape)
        return [member for symbol, member in self.names.decided.items() if symbol in symbols]

    def changes(self) -> Iterator[str]:
        """Yield the C changing lengths and sizes after a run without failure."""
        for state, spec in zip(self.function.states, self._specs, strict=True):
            if state.axis is not None:
                member = self.names.lengths[str(spec.shape[state.axis])]
                rows = self.function.results[state.result].shape[state.axis]
                yield f"  state->{member} = {self.names.size_text(rows)};"
        for symbol, member in self.names.decided.items():
            yield f"  state->{member} = {self.names.size_variable(symbol)};"

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
