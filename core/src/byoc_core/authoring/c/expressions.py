"""Expressions of generated C: frozen trees over literals, sizes, variables and buffers.

Python's operators build index arithmetic and arithmetic of floats: ``row * 4 + column``, ``x[i] * scale``. Constant
parts are folded: ``i * 1`` is ``i``, ``Size(n) * 0`` is ``Size(0)``. Floats are never folded: each operation rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from byoc_core.authoring.c.callee import Callee
from byoc_core.authoring.c.types import BOOL, INDEX, CType
from byoc_core.dims import Dim
from byoc_core.errors import InternalError

__all__ = [
    "Address",
    "Binary",
    "Buffer",
    "Call",
    "Cast",
    "Element",
    "Expression",
    "Literal",
    "Load",
    "MemoryAccess",
    "PointerArray",
    "Raw",
    "Select",
    "Size",
    "Unary",
    "Variable",
    "variables",
]

ARITHMETIC = ("+", "-", "*", "/", "%")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
LOGIC = ("&&", "||")
BITWISE = ("&", "|", "^", "<<", ">>")


class Expression:
    """A value computed by generated C. Equal trees over the same variables and buffers are equal."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def type(self) -> CType:
            """The type of the value."""

    def __add__(self, other: Expression | Dim | float) -> Expression:
        return _arithmetic("+", self, other)

    def __radd__(self, other: Dim | float) -> Expression:
        return _arithmetic("+", _lifted(other, self.type), self)

    def __sub__(self, other: Expression | Dim | float) -> Expression:
        return _arithmetic("-", self, other)

    def __rsub__(self, other: Dim | float) -> Expression:
        return _arithmetic("-", _lifted(other, self.type), self)

    def __mul__(self, other: Expression | Dim | float) -> Expression:
        return _arithmetic("*", self, other)

    def __rmul__(self, other: Dim | float) -> Expression:
        return _arithmetic("*", _lifted(other, self.type), self)

    def __truediv__(self, other: Expression | Dim | float) -> Expression:
        return _arithmetic("/", self, other)

    def __floordiv__(self, other: Expression | Dim | float) -> Expression:
        return _arithmetic("/", self, other)

    def __mod__(self, other: Expression | Dim | float) -> Expression:
        return _arithmetic("%", self, other)

    def compare(self, operator: str, other: Expression | Dim | float) -> Expression:
        """Return a comparison: ``<``, ``<=``, ``>``, ``>=``, ``==`` or ``!=``."""
        return Binary(operator, self, _lifted(other, self.type))


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """A constant element.

    Attributes:
        value: a Python or numpy scalar for all lanes, or a tuple with a scalar for each lane; converted to the dtype.
        type: the type of the value.
    """

    value: Any
    type: CType


@dataclass(frozen=True, slots=True)
class Size(Expression):
    """A size: a number, or an expression over the symbolic sizes among the function's parameters."""

    dim: Dim

    @property
    def type(self) -> CType:
        """:data:`INDEX`."""
        return INDEX


@dataclass(frozen=True, eq=False, slots=True)
class Variable(Expression):
    """The value of a variable: a loop index, a local value or a parameter. Two variables are never equal.

    Attributes:
        name: the name first tried by the printer; another variable in scope may have taken it.
        type: the type of the value.
    """

    name: str
    type: CType = INDEX

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, {self.type})"


def variables(names: str) -> tuple[Variable, ...]:
    """Return new variables for indices, one for each of the blank-separated names."""
    return tuple(map(Variable, names.split()))


class MemoryAccess(Enum):
    """The access of a function to the memory behind a buffer.

    Attributes:
        READ: only load; the memory is an input or a constant.
        WRITE: load and store; no other buffer of the function reaches the memory.
        SHARED: load and store; other buffers of the function may reach the same memory.
    """

    READ = "read"
    WRITE = "write"
    SHARED = "shared"


@dataclass(frozen=True, eq=False, slots=True)
class Buffer:
    """Contiguous elements in memory, behind a pointer or in a local array. Two buffers are never equal.

    ``buffer[index]`` loads one element.

    Attributes:
        name: the name first tried by the printer.
        dtype: the dtype of the elements.
        access: the function's access to the memory.
        size: the number of elements, if known; the verifier checks constant offsets against this number.
    """

    name: str
    dtype: str
    access: MemoryAccess = MemoryAccess.READ
    size: Dim | None = None

    @property
    def is_writable(self) -> bool:
        """Whether a function may store to the buffer."""
        return self.access is not MemoryAccess.READ

    def __getitem__(self, index: Expression | Dim) -> Load:
        return Load(self, _lifted(index, INDEX))

    def __repr__(self) -> str:
        return f"Buffer({self.name!r}, {self.dtype}, {self.access.value})"


@dataclass(frozen=True, eq=False, slots=True)
class PointerArray(Buffer):
    """Contiguous pointers, each to read-only elements of the dtype: rows of a matrix, pixels of a window.

    A store of an :class:`Address`, or of a choice of two, sets a pointer. If the source of an alias is an array of
    pointers, the alias points to the target of one pointer. An alias that is itself an array of pointers points to a
    part of the source array.
    """


@dataclass(frozen=True, slots=True)
class Load(Expression):
    """Elements of a buffer.

    Attributes:
        buffer: the buffer.
        index: the offset of the first element, in elements.
        lanes: the number of contiguous elements; any alignment is permitted.
    """

    buffer: Buffer
    index: Expression
    lanes: int = 1

    @property
    def type(self) -> CType:
        """The type of the buffer's elements, with as many lanes."""
        return CType(self.buffer.dtype, self.lanes)


@dataclass(frozen=True, slots=True)
class Address(Expression):
    """A pointer into a buffer, as an argument of a call or as an element of a :class:`PointerArray`.

    Attributes:
        buffer: the buffer.
        index: the offset of the element pointed to.
    """

    buffer: Buffer
    index: Expression

    @property
    def type(self) -> CType:
        """The type of the element pointed to."""
        return CType(self.buffer.dtype)


@dataclass(frozen=True, slots=True)
class Unary(Expression):
    """``-x``, ``!x`` or ``~x``."""

    operator: str
    operand: Expression

    @property
    def type(self) -> CType:
        """The operand's type; a bool for ``!``."""
        return BOOL if self.operator == "!" else self.operand.type


@dataclass(frozen=True, slots=True)
class Binary(Expression):
    """An operator of C between two values of one type.

    Floats follow IEEE 754 in their own dtype, each operation rounded. Integers are indices, or narrow enough not to
    overflow: for elements with wrap-around, :class:`Element` has the op. Division of integers truncates.
    """

    operator: str
    left: Expression
    right: Expression

    @property
    def type(self) -> CType:
        """The type of the operands; a bool in as many lanes for comparisons and logic."""
        is_bool = self.operator in COMPARISONS or self.operator in LOGIC
        return BOOL.with_lanes(self.left.type.lanes) if is_bool else self.left.type


@dataclass(frozen=True, slots=True)
class Select(Expression):
    """A choice between two values; only the chosen value is computed.

    Of two vectors both are computed. Each lane is chosen by the same lane of the condition, a comparison of vectors
    with as many bytes.
    """

    condition: Expression
    then: Expression
    otherwise: Expression

    @property
    def type(self) -> CType:
        """The type of both values."""
        return self.then.type


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    """A value converted by the rules of C: towards zero, wrapping around, or rounded to nearest."""

    operand: Expression
    type: CType


@dataclass(frozen=True, slots=True)
class Element(Expression):
    """An elementwise op of the op set on one element of each operand, with the meaning of the op's reference kernel.

    Attributes:
        op: the op's name, a key of :data:`byoc_core.authoring.csource.SCALAR_OPS`.
        operands: literals or variables, because the text may read an operand more than once.
        type: the type of the result.
        attributes: the op's attributes.
    """

    op: str
    operands: tuple[Expression, ...]
    type: CType
    attributes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), hash=False)


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """The result of a C function.

    Attributes:
        callee: the function.
        arguments: values, and addresses of buffers.
        type: the type of the result; ``None`` for a function without a result.
    """

    callee: Callee
    arguments: tuple[Expression, ...]
    result: CType | None = None

    @property
    def type(self) -> CType:
        """The type of the result.

        Raises:
            InternalError: the function has no result.
        """
        if self.result is None:
            raise InternalError(f"C function `{self.callee.name}`", "has no result, but is used as a value")
        return self.result


@dataclass(frozen=True, slots=True)
class Raw(Expression):
    """C text without an equivalent expression: the escape.

    Attributes:
        text: the text; ``{0}``, ``{1}``, ... stand for the printed reads. The text is used as an operand unchanged, and
            therefore includes any needed parentheses.
        type: the type of the value.
        reads: the expressions read by the text.
        evaluate: returns the value for the values of the reads; without this function the interpreter cannot run the
            text.
    """

    text: str
    type: CType
    reads: tuple[Expression, ...] = ()
    evaluate: Callable[..., Any] | None = None


def _lifted(value: Expression | Dim | float, type_: CType) -> Expression:
    """Return a number as an expression of a type: a size for the index type, else a literal."""
    if isinstance(value, Expression):
        return value
    if type_ == INDEX and not isinstance(value, float):
        return Size(value)
    return Literal(value, type_)


def _arithmetic(operator: str, left: Expression, right: Expression | Dim | float) -> Expression:
    """Return an operation, folded if both operands are sizes or one operand has no effect."""
    right = _lifted(right, left.type)
    if left.type != INDEX or right.type != INDEX:
        return Binary(operator, left, right)
    a, b = (item.dim if isinstance(item, Size) else None for item in (left, right))
    if a is not None and b is not None and operator in ("+", "-", "*"):
        return Size(a + b if operator == "+" else a - b if operator == "-" else a * b)
    if isinstance(a, int) and isinstance(b, int) and b > 0 and a >= 0:
        return Size(a // b if operator == "/" else a % b)
    match operator, a, b:
        case ("+", 0, _):
            return right
        case (("+" | "-"), _, 0) | (("*" | "/"), _, 1):
            return left
        case ("*", 1, _):
            return right
        case ("*", 0, _) | ("*", _, 0) | ("%", _, 1) | (("/" | "%"), 0, _):
            return Size(0)
    return Binary(operator, left, right)
