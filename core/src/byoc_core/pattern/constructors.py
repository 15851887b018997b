"""Functions for writing patterns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byoc_core.errors import PatternError
from byoc_core.ir import CALL_DPS_PACKED
from byoc_core.pattern.conditions import HoldsArray
from byoc_core.pattern.language import OpPattern, Pattern, Repeated, ValuePattern, is_size, is_text, require_bare

__all__ = ["any_number", "is_const", "is_extern", "is_op", "is_var", "sequence", "wildcard"]


def wildcard() -> ValuePattern:
    """Return a pattern for any value; the value becomes an input of the composite."""
    return ValuePattern(kind="any")


def is_const(value: npt.ArrayLike | None = None) -> ValuePattern:
    """Return a pattern for a constant.

    Args:
        value: a number (every element must equal the number), or an array (the constant must equal the array); ``None``
            for any constant. Floats are compared after rounding to the constant's dtype.

    Raises:
        PatternError: the value is no array of numbers, or has no element.
    """
    if value is None:
        return ValuePattern(kind="const")
    array = np.array(value)
    if array.dtype.kind not in "biufV" or array.size == 0:
        raise PatternError("is_const", "is not a number or an array of numbers", got=repr(value))
    array.flags.writeable = False
    return ValuePattern(kind="const", conditions=(HoldsArray(array),))


def is_var() -> ValuePattern:
    """Return a pattern for a parameter of the function."""
    return ValuePattern(kind="var")


def is_op(*names: str) -> OpPattern:
    """Return a pattern for an op (any of several); call the pattern with the operands' patterns.

    Raises:
        PatternError: no name is given, or something else than a name.
    """
    for name in names:
        if not is_text(name):
            raise PatternError("is_op", "is not the name of an op", got=repr(name))
    return OpPattern(frozenset(names))


def is_extern(symbol: str) -> OpPattern:
    """Return a pattern for the call of an external function (``call_dps_packed``) by symbol."""
    if not is_text(symbol):
        raise PatternError("is_extern", "is not a symbol", got=repr(symbol), expected="text")
    return is_op(CALL_DPS_PACKED.name).has_attr(symbol=symbol)


def any_number(pattern: Pattern, at_least: int = 0) -> Repeated:
    """Return a placeholder for any number of operands, each matching the pattern; the last argument of an op.

    Captures in the pattern are tuples: ``match.values("name")``. Pattern objects used only inside this pattern may
    match another value in each operand.

    Raises:
        PatternError: the argument is no pattern, or the number is negative.
    """
    if not isinstance(pattern, Pattern):
        raise PatternError("any_number", "an operand is not a pattern", got=repr(pattern))
    if not is_size(at_least):
        raise PatternError("any_number", "`at_least` is not a count", got=repr(at_least), expected="0 or more")
    return Repeated(pattern, at_least)


def sequence(first: Pattern, *then: OpPattern) -> Pattern:
    """Return a pattern for a sequence of ops, each reading the previous op at any operand position.

    Args:
        first: any pattern.
        then: op patterns without operand patterns; their other operands are inputs.

    Raises:
        PatternError: an element of ``then`` is no such pattern.
    """
    chain = first
    for link in then:
        require_bare("sequence", "link", link)
        chain = link.reading(chain)
    return chain
