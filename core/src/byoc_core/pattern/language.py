"""The pattern language: a backend's description of the groups of ops taken as a unit.

::

    conv = is_op("nn.conv2d")(wildcard(), is_const())
    conv_bias = is_op("nn.bias_add")(conv, wildcard())
    pattern = conv_bias.optional(lambda x: is_op("nn.relu")(x))

A pattern is a frozen tree, matched from the last op backwards. One pattern object used in two places matches the same
value in both. ``str(pattern)`` shows the pattern: ``nn.relu(nn.conv2d(*, const))``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

from byoc_core.dims import Dim
from byoc_core.dtypes import all_dtypes
from byoc_core.errors import PatternError, near_names
from byoc_core.pattern.conditions import (
    Condition,
    HasDtype,
    HasRank,
    HasShape,
    Predicate,
    Where,
)
from byoc_core.pattern.readers import ReadBy

__all__ = ["Alternatives", "OpPattern", "Pattern", "Repeated", "ValuePattern", "is_size", "is_text", "require_bare"]

_SHOWN_DEPTH = 40  # deeper parts are printed as "..."


def _no_attrs() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Pattern:
    """The common base of all patterns. Patterns are compared by identity, because one object stands for one value.

    Attributes:
        name: the capture name of the value in a match, or ``None``.
        conditions: all must hold for the matched value.
    """

    name: str | None = field(default=None, kw_only=True)
    conditions: tuple[Condition, ...] = field(default=(), kw_only=True)

    def named(self, name: str) -> Self:
        """Return the pattern with a capture: ``match["name"]`` is the matched value.

        Raises:
            PatternError: the name is empty.
        """
        if not is_text(name):
            raise PatternError("named", "is not a name for a capture", got=repr(name), expected="text")
        return replace(self, name=name)

    def has_dtype(self, *dtypes: str) -> Self:
        """Return the pattern restricted to tensors of these dtypes.

        Raises:
            PatternError: no dtype is given, or a dtype is not known.
        """
        for dtype in dtypes:
            if dtype not in all_dtypes():
                hint = near_names(str(dtype), all_dtypes()) or None
                raise PatternError("has_dtype", "is not a dtype", got=repr(dtype), hint=hint)
        return self._restricted("has_dtype", "dtype", dtypes, HasDtype(dtypes))

    def has_rank(self, *ranks: int) -> Self:
        """Return the pattern restricted to tensors with these numbers of axes.

        Raises:
            PatternError: no rank is given, or a rank is not a number of axes.
        """
        for rank in ranks:
            if not is_size(rank):
                raise PatternError("has_rank", "is not a rank", got=repr(rank), expected="0 or more")
        return self._restricted("has_rank", "rank", ranks, HasRank(ranks))

    def has_shape(self, *shape: Dim | str | None) -> Self:
        """Return the pattern restricted to shapes of one form.

        Args:
            shape: for each axis the size, ``None`` for any size, or a name for any size, symbolic sizes included; equal
                names stand for equal sizes: ``has_shape("n", "n")`` is square.

        Raises:
            PatternError: a size is negative, or none of these.
        """
        for size in shape:
            if size is not None and not is_size(size) and (isinstance(size, bool | int | float) or not size):
                expected = "0 or more, None, or a name"
                raise PatternError("has_shape", "is not the size of an axis", got=repr(size), expected=expected)
        return self._with_condition(HasShape(shape))

    def only_used_by(self, reader: OpPattern) -> Self:
        """Return the pattern restricted to values read only by ops of this kind, once or more.

        Args:
            reader: an op pattern without operand patterns. Readers of an identity of the value count as readers of the
                value; a value returned by the function does not fit.

        Raises:
            PatternError: the reader is no such pattern.
        """
        return self._read_by("only_used_by", reader, every=True)

    def used_by(self, reader: OpPattern) -> Self:
        """Return the pattern restricted to values read by an op of this kind; see :meth:`only_used_by`."""
        return self._read_by("used_by", reader, every=False)

    def where(self, test: Callable[[Any], object], text: str = "") -> Self:
        """Return the pattern with one more condition on the value.

        Args:
            test: takes the value.
            text: the description of fitting values, for reports: "a weight of our own".

        Raises:
            PatternError: the test cannot be called.
        """
        if not callable(test):
            raise PatternError("where", "is not a test", got=repr(test), expected="a function of the value")
        return self._with_condition(Where(Predicate(test, text)))

    def optional(self, wrap: Callable[[Pattern], Pattern]) -> Alternatives:
        """Return the pattern with optional ops around it, given by ``wrap``; the longer form is tried first."""
        return Alternatives((wrap(self), self))

    def __or__(self, other: Pattern) -> Alternatives:
        """Return a pattern for either alternative; the left is tried first."""
        return Alternatives((self, other))

    def _with_condition(self, condition: Condition) -> Self:
        return replace(self, conditions=(*self.conditions, condition))

    def _restricted(self, method: str, noun: str, allowed: tuple[object, ...], condition: Condition) -> Self:
        if not allowed:
            raise PatternError(method, f"names no {noun}")
        return self._with_condition(condition)

    def _read_by(self, method: str, reader: OpPattern, *, every: bool) -> Self:
        require_bare(method, "reader", reader)
        return self._with_condition(ReadBy(reader, every))

    def __str__(self) -> str:
        return self._shown(_SHOWN_DEPTH)

    def __repr__(self) -> str:
        return f"<pattern {self}>"

    def _shown(self, depth: int) -> str:
        if depth == 0:
            return "..."
        name = "" if self.name is None else f"{self.name}="
        conditions = "".join(f"{{{condition}}}" for condition in self.conditions)
        return f"{name}{self._body(depth)}{conditions}"

    def _body(self, depth: int) -> str:
        return type(self).__name__


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ValuePattern(Pattern):
    """A pattern for a value, regardless of the producer.

    Attributes:
        kind: ``"any"``, ``"const"`` or ``"var"`` (a function parameter).
    """

    kind: str = "any"

    def _body(self, depth: int) -> str:
        return "*" if self.kind == "any" else self.kind


@dataclass(frozen=True, slots=True)
class Repeated:
    """Any number of operands, the last operands of an op.

    Attributes:
        pattern: the pattern to be matched by each operand independently.
        at_least: the minimum number of operands.
    """

    pattern: Pattern
    at_least: int = 0


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class OpPattern(Pattern):
    """A pattern for a result of an op.

    Attributes:
        ops: names of the accepted ops.
        operands: patterns of the operands, in order; ``None`` for any operands.
        attrs: the required attributes of the binding: a value each, or a :class:`Predicate`.
        result_index: the index of the value among the op's results.
        rest: the operands after ``operands``, if their number is open.
        reads: the pattern of an operand at any position; the others are inputs. Only without ``operands``.
        origin: the original pattern, if this is the pattern of a further result of the same op; see :meth:`result`.
    """

    ops: frozenset[str]
    operands: tuple[Pattern, ...] | None = None
    attrs: Mapping[str, Any] = field(default_factory=_no_attrs)
    result_index: int = 0
    rest: Repeated | None = None
    reads: Pattern | None = None
    origin: OpPattern | None = None

    def __post_init__(self) -> None:
        if not self.ops:
            raise PatternError("is_op", "names no op")

    def __call__(self, *operands: Pattern | Repeated) -> Self:
        """Return the pattern with operand patterns; the last may be :func:`any_number` of one pattern.

        Raises:
            PatternError: an operand is no pattern, ``any_number`` is not the last, or the op has operands already.
        """
        where = f"is_op({', '.join(map(repr, sorted(self.ops)))})"
        if not self.is_bare:
            raise PatternError(where, "has operand patterns already", got=str(self))
        rest = operands[-1] if operands and isinstance(operands[-1], Repeated) else None
        fixed = []
        for operand in operands[: len(operands) - (rest is not None)]:
            if isinstance(operand, Repeated):
                raise PatternError(where, "any_number is not the last operand")
            if not isinstance(operand, Pattern):
                raise PatternError(where, "an operand is not a pattern", got=repr(operand))
            fixed.append(operand)
        return replace(self, operands=tuple(fixed), rest=rest, origin=None)

    @property
    def is_bare(self) -> bool:
        """Whether the operands are unrestricted."""
        return self.operands is None and self.reads is None

    def has_attr(self, **attrs: Any) -> Self:
        """Return the pattern restricted by attributes of the op.

        Args:
            attrs: for each attribute the value (lists count as tuples, types must agree), or a test of the value: a
                function, or a :class:`Predicate` with words for reports.
        """
        required = {key: _stored(value) for key, value in attrs.items()}
        return replace(self, attrs={**self.attrs, **required}, origin=None)

    def result(self, index: int) -> Self:
        """Return the pattern for another result of an op with several results.

        Patterns for results of one pattern object match results of one op: with ``s = is_op("split")(wildcard())``,
        ``is_op("add")(s.result(0), s.result(1))`` adds the two halves of one split.

        Raises:
            PatternError: the index is negative.
        """
        if not is_size(index):
            raise PatternError("result", "is not the index of a result", got=repr(index), expected="0 or more")
        return replace(self, result_index=index, origin=self.origin or self)

    def reading(self, operand: Pattern) -> Self:
        """Return the pattern restricted to ops reading a value at any position; the other operands are inputs.

        Raises:
            PatternError: the operand is no pattern, or the op has operand patterns already.
        """
        where = f"is_op({', '.join(map(repr, sorted(self.ops)))})"
        if not isinstance(operand, Pattern):
            raise PatternError(where, "an operand is not a pattern", got=repr(operand))
        if not self.is_bare:
            raise PatternError(where, "has operand patterns already", got=str(self))
        return replace(self, reads=operand, origin=None)

    def _body(self, depth: int) -> str:
        ops = "|".join(sorted(self.ops))
        attrs = ", ".join(f"{key}={value}" for key, value in self.attrs.items())
        parts = ["..."] if self.is_bare else [operand._shown(depth - 1) for operand in self.operands or ()]
        if self.reads is not None:
            parts = ["...", self.reads._shown(depth - 1), "..."]
        if self.rest is not None:
            parts.append(f"{self.rest.pattern._shown(depth - 1)}...")
        result = f".{self.result_index}" if self.result_index else ""
        return f"{ops}{f'[{attrs}]' if attrs else ''}({', '.join(parts)}){result}"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Alternatives(Pattern):
    """A pattern for anything matched by any of several patterns; earlier patterns are tried first."""

    choices: tuple[Pattern, ...] = ()

    def __post_init__(self) -> None:
        if not self.choices:
            raise PatternError("alternatives", "the pattern has no choices")
        for choice in self.choices:
            if not isinstance(choice, Pattern):
                raise PatternError("alternatives", "a choice is not a pattern", got=repr(choice))

    def _body(self, depth: int) -> str:
        return f"({' | '.join(choice._shown(depth - 1) for choice in self.choices)})"


def is_size(value: object) -> bool:
    """Return whether an object is a size: an int, 0 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_text(value: object) -> bool:
    """Return whether an object is text and not empty."""
    return isinstance(value, str) and value != ""


def require_bare(where: str, role: str, pattern: object) -> None:
    """Raise :class:`PatternError` unless an object is an op pattern without operand patterns."""
    if not (isinstance(pattern, OpPattern) and pattern.is_bare):
        expected = "an op pattern without operand patterns"
        raise PatternError(where, f"the {role} has the wrong kind", got=repr(pattern), expected=expected)


def _stored(value: Any) -> Any:
    if callable(value) and not isinstance(value, Predicate):
        return Predicate(value)
    return tuple(value) if isinstance(value, list) else value
