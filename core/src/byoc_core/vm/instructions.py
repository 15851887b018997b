"""The table of the four instructions, and the table of the builtins.

Encoder and decoder need only a new entry of :data:`INSTRUCTIONS` or :data:`BUILTINS`. Verifier, disassembler, basic
blocks, dataflow and linked functions also have code for each instruction. Builtins are implemented in
:mod:`byoc_core.vm.linking`, and for native calls in :mod:`byoc_core.vm.call_list`,
:mod:`byoc_core.artifact.plain_c.function_text` and C. Opcodes and values of :class:`CallKind` and :class:`Builtin` are
part of the binary form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from types import MappingProxyType

__all__ = [
    "BUILTINS",
    "INSTRUCTIONS",
    "Builtin",
    "BuiltinSpec",
    "Call",
    "CallKind",
    "Effect",
    "Field",
    "FieldKind",
    "Goto",
    "If",
    "Instruction",
    "InstructionSpec",
    "Ret",
    "spec_of",
]


class CallKind(IntEnum):
    """The kind of callee of a call instruction. The value is the encoding."""

    EXTERN = 0
    """An external function in destination-passing style: ``f(*args, *results)`` fills the result buffers."""
    PACKED = 1
    """An external function returning its results; each result defines a dynamic register."""
    FUNCTION = 2
    """A function of the program; buffers are passed on, dynamic registers receive results allocated by the function."""
    BUILTIN = 3
    """A builtin of the machine."""

    @property
    def mnemonic(self) -> str:
        """The name in listings and errors."""
        return _MNEMONICS[self]


_MNEMONICS: Mapping[CallKind, str] = MappingProxyType(
    {
        CallKind.EXTERN: "call_dps_packed",
        CallKind.PACKED: "call_packed",
        CallKind.FUNCTION: "call",
        CallKind.BUILTIN: "call_builtin",
    }
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call on registers.

    Attributes:
        kind: the kind of callee.
        callee: index into the program's externs or functions, or a :class:`Builtin`.
        args: registers read by the call.
        results: registers written or defined by the call.
    """

    kind: CallKind
    callee: int
    args: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ret:
    """The end of the function; one register per result of the function."""

    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Goto:
    """A jump to instruction ``target``."""

    target: int


@dataclass(frozen=True, slots=True)
class If:
    """A branch to the next instruction if the bool scalar ``condition`` is true, else to ``otherwise``."""

    condition: int
    otherwise: int


Instruction = Call | Ret | Goto | If


class FieldKind(Enum):
    """The kind of a field of an instruction, for encoding, checks and listings."""

    CALL_KIND = "call kind"
    CALLEE = "callee"
    REGISTER = "register"
    REGISTERS = "registers"
    TARGET = "target"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an instruction, by the name of its attribute."""

    name: str
    kind: FieldKind


@dataclass(frozen=True, slots=True)
class InstructionSpec:
    """An instruction: opcode in the encoding, name in listings, and fields in order.

    Attributes:
        ends_block: whether the next instruction is never reached by falling through.
    """

    opcode: int
    mnemonic: str
    type: type[Instruction]
    fields: tuple[Field, ...]
    ends_block: bool = False


INSTRUCTIONS: tuple[InstructionSpec, ...] = (
    InstructionSpec(
        1,
        "call",
        Call,
        (
            Field("kind", FieldKind.CALL_KIND),
            Field("callee", FieldKind.CALLEE),
            Field("args", FieldKind.REGISTERS),
            Field("results", FieldKind.REGISTERS),
        ),
    ),
    InstructionSpec(2, "ret", Ret, (Field("values", FieldKind.REGISTERS),), ends_block=True),
    InstructionSpec(3, "goto", Goto, (Field("target", FieldKind.TARGET),), ends_block=True),
    InstructionSpec(4, "if", If, (Field("condition", FieldKind.REGISTER), Field("otherwise", FieldKind.TARGET))),
)
"""All instructions."""

_SPECS: Mapping[type[Instruction], InstructionSpec] = MappingProxyType({spec.type: spec for spec in INSTRUCTIONS})


def spec_of(instruction: Instruction) -> InstructionSpec:
    """Return the table entry of an instruction."""
    return _SPECS[type(instruction)]


class Effect(Enum):
    """The effect of a builtin on its result register."""

    FILLS = "fills"
    """Writes every byte of an existing buffer."""
    UPDATES = "updates"
    """Reads and rewrites an existing buffer."""
    ALLOCATES = "allocates"
    """Allocates a buffer with undefined content for a dynamic register."""
    DEFINES = "defines"
    """Defines dynamic registers, like a returned value: with the symbols bound by the registers."""


class Builtin(IntEnum):
    """The builtins. The value is the encoding."""

    COPY = 0
    ALLOCATE = 1
    ZERO = 2
    INCREMENT = 3
    LOOP_TEST = 4
    CLONE = 5


@dataclass(frozen=True, slots=True)
class BuiltinSpec:
    """A builtin's operands and effect; every builtin has a single result, except for builtins defining registers.

    Attributes:
        args: the dtype of each scalar argument; ``None`` for a tensor like the result. With the effect of defining
            registers, there are any number of such arguments, with a result for each.
        result: the dtype of the scalar result; ``None`` for any tensor.
        effect: the effect on the result register.
        doc: the computed value.
    """

    name: str
    args: tuple[str | None, ...]
    result: str | None
    effect: Effect
    doc: str


BUILTINS: Mapping[Builtin, BuiltinSpec] = MappingProxyType(
    {
        Builtin.COPY: BuiltinSpec("copy", (None,), None, Effect.FILLS, "result = argument; equal shapes."),
        Builtin.ALLOCATE: BuiltinSpec("allocate", (), None, Effect.ALLOCATES, "A buffer of the register's shape."),
        Builtin.ZERO: BuiltinSpec("zero", (), "int64", Effect.FILLS, "result = 0."),
        Builtin.INCREMENT: BuiltinSpec("increment", (), "int64", Effect.UPDATES, "result = result + 1."),
        Builtin.LOOP_TEST: BuiltinSpec(
            "loop_test",
            ("int64", "int64", "bool"),
            "bool",
            Effect.FILLS,
            "result = (iteration < max_trip) and condition.",
        ),
        Builtin.CLONE: BuiltinSpec(
            "clone", (None,), None, Effect.DEFINES, "Each result is a copy of its argument, made before any result."
        ),
    }
)
"""All builtins."""
