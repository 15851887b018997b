"""The four instructions and the builtins, as one table each.

Encoder, decoder, verifier and disassembler read :data:`INSTRUCTIONS` and :data:`BUILTINS`; a new instruction or
builtin is one entry here.
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
    """What a call instruction calls. The value is the encoding."""

    EXTERN = 0
    """An external function in destination-passing style: ``f(*args, *results)`` fills the result buffers."""
    PACKED = 1
    """An external function that returns its results; each defines a dynamic register."""
    FUNCTION = 2
    """A function of the program; buffers are passed on, dynamic registers take what it allocates itself."""
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
    """Calls something on registers.

    Attributes:
        kind: what is called.
        callee: index into the program's externs or functions, or a :class:`Builtin`.
        args: registers that are read.
        results: registers that are written or defined.
    """

    kind: CallKind
    callee: int
    args: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ret:
    """Ends the function; one register per result of the function."""

    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Goto:
    """Continues at instruction ``target``."""

    target: int


@dataclass(frozen=True, slots=True)
class If:
    """Continues with the next instruction where the bool scalar ``condition`` is true, else at ``otherwise``."""

    condition: int
    otherwise: int


Instruction = Call | Ret | Goto | If


class FieldKind(Enum):
    """How a field of an instruction is encoded, checked and printed."""

    CALL_KIND = "call kind"
    CALLEE = "callee"
    REGISTER = "register"
    REGISTERS = "registers"
    TARGET = "target"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an instruction, by the name of its attribute."""

    name: str
    kind: FieldKind


@dataclass(frozen=True, slots=True)
class InstructionSpec:
    """One instruction: its code in the encoding, its name in listings, and its fields in order.

    Attributes:
        ends_block: no instruction after it is reached by falling through.
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
    """Gives the table entry of an instruction."""
    return _SPECS[type(instruction)]


class Effect(Enum):
    """What a builtin does to its result register."""

    FILLS = "fills"
    """Writes every byte of an existing buffer."""
    UPDATES = "updates"
    """Reads and rewrites an existing buffer."""
    ALLOCATES = "allocates"
    """Gives a dynamic register a buffer whose content is undefined."""


class Builtin(IntEnum):
    """The builtins. The value is the encoding."""

    COPY = 0
    ALLOCATE = 1
    ZERO = 2
    INCREMENT = 3
    LOOP_TEST = 4


@dataclass(frozen=True, slots=True)
class BuiltinSpec:
    """A builtin's operands and effect; every builtin has one result.

    Attributes:
        args: the dtype of each scalar argument; ``None`` for a tensor like the result.
        result: the dtype of the scalar result; ``None`` for any tensor.
        effect: what happens to the result register.
        doc: what it computes.
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
    }
)
"""All builtins."""
