"""Facts about the states of a program's function, for users: names, types, and the bytes copied by every call."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.dims import Dim
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.program import Program, VMFunction
from byoc_core.vm.state_laws import state_copies

__all__ = ["StateSummary", "summarise_states"]


@dataclass(frozen=True, slots=True)
class StateSummary:
    """A state of a function.

    Attributes:
        before: name, dtype and shape of the value before a call.
        after: name, dtype and shape of the value after a call.
        axis: the axis of a moving length; ``None`` for a fixed shape.
        copied_nbytes: the bytes copied by every call because the new value, or a part of it, is made outside of the
            buffer of the state, by instruction of the program. Empty: the state is updated in place.
        domain: the name of the memory domain with the buffer, ``host`` for the host's memory.
    """

    before: TensorSpec
    after: TensorSpec
    axis: int | None
    copied_nbytes: dict[int, Dim]
    domain: str = "host"

    def __str__(self) -> str:
        shapes = [f"[{', '.join(map(str, spec.shape))}]" for spec in (self.before, self.after)]
        change = shapes[0] if self.axis is None else f"{shapes[0]} to {shapes[1]}"
        copies = ", ".join(f"copies {nbytes} bytes at {index}" for index, nbytes in self.copied_nbytes.items())
        memory = "" if self.domain == "host" else f", in {self.domain}"
        return f"{self.before.name} -> {self.after.name}: {self.before.dtype}{change}, {copies or 'in place'}{memory}"


def summarise_states(program: Program, function: VMFunction) -> tuple[StateSummary, ...]:
    """Return the facts about the states of a function of a verified program, in order."""
    copies = state_copies(program, function)
    return tuple(
        StateSummary(
            function.params[slot.param],
            function.results[slot.result],
            slot.axis,
            {copy.instruction: copy.nbytes for copy in copies if copy.state == number},
            program.domain_name(function.domain_of(slot.param)),
        )
        for number, slot in enumerate(function.states)
    )
