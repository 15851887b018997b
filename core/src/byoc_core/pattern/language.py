"""The pattern language: what a backend writes to say which groups of ops it takes as one.

::

    conv = is_op("nn.conv2d")(wildcard(), is_const())
    conv_bias = is_op("nn.bias_add")(conv, wildcard())
    pattern = conv_bias.optional(lambda x: is_op("nn.relu")(x))

A pattern is a frozen tree, matched from the last op backwards. One pattern object used in two places matches the same
value in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from byoc_core.errors import PatternError
from byoc_core.ir import TensorType, Value

__all__ = ["Alternatives", "OpPattern", "Pattern", "ValuePattern", "is_const", "is_op", "is_var", "wildcard"]

Condition = Callable[[Value], bool]


def _no_attrs() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, eq=False, slots=True)
class Pattern:
    """What every pattern can do.

    Attributes:
        name: the capture under which a match holds the value, or ``None``.
        conditions: all must hold for the matched value.
    """

    name: str | None = field(default=None, kw_only=True)
    conditions: tuple[Condition, ...] = field(default=(), kw_only=True)

    def named(self, name: str) -> Pattern:
        """Gives the pattern with a capture: ``match["name"]`` is the value it matched."""
        return replace(self, name=name)

    def has_dtype(self, *dtypes: str) -> Pattern:
        """Gives the pattern restricted to tensors of these dtypes."""
        return self.where(lambda value: isinstance(value.type, TensorType) and value.type.dtype in dtypes)

    def has_rank(self, *ranks: int) -> Pattern:
        """Gives the pattern restricted to tensors with these numbers of axes."""
        return self.where(lambda value: isinstance(value.type, TensorType) and value.type.rank in ranks)

    def has_shape(self, *shape: int | None) -> Pattern:
        """Gives the pattern restricted to one shape; ``None`` stands for any size of an axis."""

        def fits(value: Value) -> bool:
            actual = value.type.shape if isinstance(value.type, TensorType) else None
            return (
                actual is not None
                and len(actual) == len(shape)
                and all(want is None or want == have for want, have in zip(shape, actual, strict=True))
            )

        return self.where(fits)

    def where(self, condition: Condition) -> Pattern:
        """Gives the pattern with one more condition on the value."""
        return replace(self, conditions=(*self.conditions, condition))

    def optional(self, wrap: Callable[[Pattern], Pattern]) -> Alternatives:
        """Gives the pattern followed, where present, by what ``wrap`` puts around it; longer first."""
        return Alternatives((wrap(self), self))

    def __or__(self, other: Pattern) -> Alternatives:
        """Gives a pattern that matches either; the left is tried first."""
        return Alternatives((self, other))


@dataclass(frozen=True, eq=False, slots=True)
class ValuePattern(Pattern):
    """Matches a value without looking at what made it.

    Attributes:
        kind: ``"any"``, ``"const"`` or ``"var"`` (a function parameter).
    """

    kind: str = "any"


@dataclass(frozen=True, eq=False, slots=True)
class OpPattern(Pattern):
    """Matches a result of an op.

    Attributes:
        ops: names of the ops that fit.
        operands: patterns of the operands, in order; ``None`` for any operands.
        attrs: attribute values that the binding must have.
        result_index: which of the op's results the value must be.
    """

    ops: frozenset[str]
    operands: tuple[Pattern, ...] | None = None
    attrs: Mapping[str, Any] = field(default_factory=_no_attrs)
    result_index: int = 0

    def __post_init__(self) -> None:
        if not self.ops:
            raise PatternError("is_op", "names no op")
        for operand in self.operands or ():
            if not isinstance(operand, Pattern):
                raise PatternError("is_op", "an operand is not a pattern", got=repr(operand))

    def __call__(self, *operands: Pattern) -> OpPattern:
        """Gives the pattern with operand patterns."""
        return replace(self, operands=operands)

    def has_attr(self, **attrs: Any) -> OpPattern:
        """Gives the pattern restricted to these attribute values (lists count as tuples)."""
        stored = {key: tuple(value) if isinstance(value, list) else value for key, value in attrs.items()}
        return replace(self, attrs={**self.attrs, **stored})

    def result(self, index: int) -> OpPattern:
        """Gives the pattern for another result of an op that has several."""
        return replace(self, result_index=index)


@dataclass(frozen=True, eq=False, slots=True)
class Alternatives(Pattern):
    """Matches what any of several patterns matches; earlier ones are tried first."""

    choices: tuple[Pattern, ...] = ()


def wildcard() -> ValuePattern:
    """Gives a pattern that matches any value; it becomes an input of the composite."""
    return ValuePattern(kind="any")


def is_const() -> ValuePattern:
    """Gives a pattern that matches a constant."""
    return ValuePattern(kind="const")


def is_var() -> ValuePattern:
    """Gives a pattern that matches a parameter of the function."""
    return ValuePattern(kind="var")


def is_op(*names: str) -> OpPattern:
    """Gives a pattern that matches an op (any of several); call it with the operands' patterns.

    Raises:
        PatternError: no name is given.
    """
    return OpPattern(frozenset(names))
