"""Shared parts of the tests of programs: an executable without a file, and signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from byoc_core.dims import Dim, parse_dim
from byoc_core.runtime.module import NDArray, RuntimeModule, TensorSpec
from byoc_core.vm import Builtin, Call, CallKind, Program


@dataclass
class Executable:
    """The parts of an executable read by a virtual machine."""

    program: Program
    modules: Sequence[RuntimeModule] = ()
    constants: Mapping[str, NDArray] = field(default_factory=dict)


def num_copies(program: Program) -> int:
    """Return the number of copies in all functions of a program."""
    calls = (step for function in program.functions for step in function.code if isinstance(step, Call))
    return sum(step.kind is CallKind.BUILTIN and step.callee == Builtin.COPY for step in calls)


def spec(name: str, *shape: Dim | str, dtype: str = "float32") -> TensorSpec:
    """Return the spec of a tensor; sizes may be texts such as ``"2*n"``."""
    return TensorSpec(name, dtype, tuple(parse_dim(size) if isinstance(size, str) else size for size in shape))
