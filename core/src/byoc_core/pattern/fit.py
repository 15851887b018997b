"""The comparison of a value or op with a single node of a pattern, with a description of any misfit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from byoc_core.ir import Binding, Constant, Value
from byoc_core.pattern.conditions import Predicate, listed
from byoc_core.pattern.index import FunctionIndex

if TYPE_CHECKING:
    from byoc_core.pattern.language import OpPattern, Pattern, ValuePattern

__all__ = ["Misfit", "condition_misfit", "kind_misfit", "op_misfit", "op_names", "origin_text", "reader_misfit"]


class Misfit(NamedTuple):
    """A fault, and the extent of the fit before the fault.

    Attributes:
        clause: the found and the expected property: "is of rank 2, expected 4".
        part: the part of the op at fault; "" for the value itself.
        ops: the ops at fault, by the names of their first results.
        num_matched: the number of ops fitting before the fault.
    """

    clause: str
    part: str = ""
    ops: tuple[str, ...] = ()
    num_matched: int = 0


def op_names(pattern: OpPattern) -> str:
    """Return the ops accepted by a pattern, as a list in words."""
    return listed([f"`{name}`" for name in sorted(pattern.ops)])


def origin_text(value: Value, index: FunctionIndex) -> str:
    """Return the origin of a value (op, constant or parameter), as a clause."""
    found = index.producer(value)
    if found is None:
        return "is a constant" if isinstance(value, Constant) else "is a parameter"
    return f"is made by `{found[0].op.name}`"


def kind_misfit(pattern: ValuePattern, value: Value, index: FunctionIndex) -> Misfit | None:
    """Return the fault in the kind of a value, if any."""
    if (
        pattern.kind == "any"
        or (pattern.kind == "const" and isinstance(value, Constant))
        or (pattern.kind == "var" and index.is_param(value))
    ):
        return None
    expected = "a constant" if pattern.kind == "const" else "a parameter"
    return Misfit(f"{origin_text(value, index)}, expected {expected}")


def condition_misfit(pattern: Pattern, value: Value, index: FunctionIndex) -> Misfit | None:
    """Return the misfit of the first failing condition on the value, if any."""
    for condition in pattern.conditions:
        if not condition.holds(value, index):
            return Misfit(condition.misfit(value, index))
    return None


def op_misfit(pattern: OpPattern, binding: Binding, result_index: int) -> Misfit | None:
    """Return the fault of an op with a right name, if any.

    The fit of each operand and the type of the result are not checked here.
    """
    name = f"`{binding.op.name}`"
    if binding.codegen is not None:
        return Misfit(f"is made by {name}, claimed by backend `{binding.codegen}`")
    if result_index != pattern.result_index:
        return Misfit(f"is result {result_index} of {name}, expected result {pattern.result_index}")
    count = len(binding.operands)
    if pattern.operands is not None:
        minimum = len(pattern.operands) + (pattern.rest.at_least if pattern.rest is not None else 0)
        if count < minimum or (pattern.rest is None and count > minimum):
            return Misfit(f"reads {count} operands, expected {minimum}{' or more' if pattern.rest else ''}", name)
    if pattern.reads is not None and count == 0:
        return Misfit("reads no operand, expected 1 or more", name)
    return _attribute_misfit(pattern, binding) if pattern.attrs else None


def reader_misfit(pattern: OpPattern, reader: Binding, index: FunctionIndex) -> Misfit | None:
    """Return the fault of an op reading a value, if any."""
    if reader.op.name not in pattern.ops:
        return Misfit(f"is read by `{reader.op.name}`, expected {op_names(pattern)}")
    return _attribute_misfit(pattern, reader) or condition_misfit(pattern, reader.results[0], index)


_MISSING = object()


def _attribute_misfit(pattern: OpPattern, binding: Binding) -> Misfit | None:
    for key, expected in pattern.attrs.items():
        actual: Any = binding.attrs.get(key, _MISSING)
        if actual is _MISSING:
            return Misfit(f"has no attribute `{key}`", f"`{binding.op.name}`")
        if not (
            expected(actual)
            if isinstance(expected, Predicate)
            else type(actual) is type(expected) and actual == expected
        ):
            expected_text = expected if isinstance(expected, Predicate) else repr(expected)
            return Misfit(f"is {actual!r}, expected {expected_text}", f"attribute `{key}` of `{binding.op.name}`")
    return None
