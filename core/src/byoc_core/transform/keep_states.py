"""States from pairs of an input and an output: the value of the output is the input of the next call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from byoc_core.dims import Dim, is_nonnegative
from byoc_core.errors import IRError, near_names
from byoc_core.ir import (
    Binding,
    Function,
    IRModule,
    StateVariable,
    TensorType,
    Value,
    Var,
    declare_states,
    state_values,
    states_of,
)
from byoc_core.transform.pass_ import Pass

__all__ = ["KeepStates", "detect_states"]

_PAST = ("past_key_values", "past_key_value", "past", "cache")
_PRESENT = ("present_key_values", "present_key_value", "present", "new_cache")


@dataclass(frozen=True)
class KeepStates(Pass):
    """Declaration of states for pairs of an input and an output (:mod:`byoc_core.ir.states`).

    Input and output of equal shape become a state of a fixed shape, with zeros before the first call. If the output is
    longer along one axis, the state has a moving length: the first call gets no rows. The state is stored with this
    axis outermost, so that the old rows stay in place, and every call writes the new rows only: a ``concat`` of the old
    value and new rows becomes a ``concat`` along the outermost axis, and other readers get a transposed view.

    Attributes:
        pairs: the name of an input and the name of an output for each state.
        function: the name of the function.
    """

    pairs: Sequence[tuple[str, str]]
    function: str = "main"

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with the states.

        Raises:
            IRError: a pair names no input or output, or an input or output of another state; dtypes or ranks differ;
                the output is longer along several axes, or is not provably as long as the input.
        """
        function = module[self.function]
        used = {(0, state.input) for state in states_of(function)} | {
            (1, state.output) for state in states_of(function)
        }
        for pair in self.pairs:
            for role, name, names in zip(
                ("input", "output"), pair, (function.input_names, function.output_names), strict=True
            ):
                if name not in names:
                    raise IRError(
                        f"function `{self.function}`",
                        f"has no {role} `{name}` for a state",
                        expected=", ".join(names) or "none",
                        hint=near_names(name, names) or None,
                    )
                key = (0 if role == "input" else 1, name)
                if key in used:
                    raise IRError(f"function `{self.function}`", f"{role} `{name}` is in two states")
                used.add(key)
            function = _keep(module, function, *pair)
        return module if function is module[self.function] else module.with_function(function)


def detect_states(function: Function) -> tuple[tuple[str, str], ...]:
    """Return the pairs of inputs and outputs named like a past and a present value, in the order of the inputs.

    ``past_key_values.0.key`` with ``present.0.key``, ``past_key_0`` with ``present_key_0``, ``past_0`` with
    ``present_0``, and so on: the names differ in the first word only. Other inputs stay inputs.

    Raises:
        IRError: there is no such pair.
    """
    pairs = []
    for name in function.input_names:
        ends = [name.removeprefix(word) for word in _PAST if name.startswith(word)]
        presents = [f"{word}{end}" for end in ends if not end or end[0] in "._" for word in _PRESENT]
        found = [present for present in presents if present in function.output_names]
        if found:
            pairs.append((name, found[0]))
    if not pairs:
        raise IRError(
            f"function `{function.name}`",
            "has no inputs and outputs named like past and present values",
            got=f"{', '.join(function.input_names)} -> {', '.join(function.output_names)}",
            expected="names such as `past_key_values.0.key` and `present.0.key`",
            hint="Name the pairs: states=[(input, output), ...].",
        )
    return tuple(pairs)


def _keep(module: IRModule, function: Function, source: str, target: str) -> Function:
    past, present = state_values(function, StateVariable(source, target))
    axis = _moving_axis(function, source, target, past, present)
    if axis is None:
        return declare_states(function, [StateVariable(source, target)])
    if any(dim != 1 for dim in _shape(past)[:axis]):
        function = _with_outermost(module, function, source, target, axis)
        axis = 0
    return declare_states(function, [StateVariable(source, target, axis=axis)])


def _moving_axis(function: Function, source: str, target: str, past: Var, present: Value) -> int | None:
    """Return the axis of a moving length; ``None`` for equal shapes."""
    where = f"function `{function.name}`, state `{source}` -> `{target}`"
    before, after = past.type, present.type
    if not isinstance(before, TensorType) or not isinstance(after, TensorType) or before.dtype != after.dtype:
        raise IRError(where, "has values of different dtypes", got=after, expected=before)
    if before.shape is None or after.shape is None or len(before.shape) != len(after.shape):
        raise IRError(where, "has values of different or unknown ranks", got=after, expected=before)
    pairs = enumerate(zip(before.shape, after.shape, strict=True))
    moving = [axis for axis, (old, new) in pairs if old != new]
    if not moving:
        return None
    if len(moving) > 1:
        axes = ", ".join(map(str, moving))
        raise IRError(where, f"changes its size along several axes: {axes}", got=after, expected=before)
    (axis,) = moving
    if not is_nonnegative(after.shape[axis] - before.shape[axis]):
        raise IRError(where, f"may become shorter along axis {axis}", got=after, expected=before)
    return axis


def _with_outermost(module: IRModule, function: Function, source: str, target: str, axis: int) -> Function:
    """Return the function with a parameter and a result with an axis moved to the front."""
    past, present = state_values(function, StateVariable(source, target))
    rank = len(_shape(past))
    order = (axis, *(other for other in range(rank) if other != axis))
    inverse = tuple(order.index(other) for other in range(rank))
    turns = _Turns(module)
    stored = Var(past.name, _turned(past, order))
    # The old var stays the value in the model's order of axes, so all readers stay as they are.
    bindings = [turns.binding(stored, inverse, past)]
    index = function.output_names.index(target)
    result: Var | None = None
    for binding in function.bindings:
        if result is None and binding.results == (present,) and turns.appends(binding, past, axis):
            rows = [Var(f"{stored.name}_rows", _turned(operand, order)) for operand in binding.operands[1:]]
            bindings += (turns.binding(*each) for each in zip(binding.operands[1:], repeat(order), rows, strict=False))
            result = Var(stored.name, _turned(present, order))
            attrs = {**binding.attrs, "axis": 0}
            bindings.append(replace(binding, results=(result,), operands=(stored, *rows), attrs=attrs))
            assert isinstance(present, Var)
            bindings.append(turns.binding(result, inverse, present))
        else:
            bindings.append(binding)
    if result is None:
        result = Var(stored.name, _turned(present, order))
        bindings.append(turns.binding(present, order, result))
    params = tuple(stored if param is past else param for param in function.params)
    results = tuple(result if number == index else value for number, value in enumerate(function.results))
    named = function.with_attrs(input_names=function.input_names, output_names=function.output_names)
    return replace(named, params=params, bindings=tuple(bindings), results=results)


class _Turns:
    """A maker of transpositions with the ops of a module."""

    def __init__(self, module: IRModule) -> None:
        self._op = module.ops.find("permute_dims")
        self._joint = module.ops.find("concat")

    def appends(self, binding: Binding, past: Var, axis: int) -> bool:
        """Return whether a binding appends rows to a value along an axis."""
        if binding.op is not self._joint or len(binding.operands) < 2 or binding.operands[0] is not past:
            return False
        position = binding.attrs["axis"]
        return isinstance(position, int) and position % len(_shape(past)) == axis

    def binding(self, operand: Value, axes: tuple[int, ...], result: Var) -> Binding:
        """Return the transposition of an operand."""
        attrs = self._op.attrs_for({"axes": axes}, [operand.type])
        return Binding((result,), self._op, (operand,), attrs)


def _turned(value: Value, order: tuple[int, ...]) -> TensorType:
    shape = _shape(value)
    type_ = value.type
    assert isinstance(type_, TensorType)
    return TensorType(tuple(shape[axis] for axis in order), type_.dtype)


def _shape(value: Value) -> tuple[Dim, ...]:
    type_ = value.type
    assert isinstance(type_, TensorType)
    return type_.shape or ()
