"""States of a function: parameters keeping the value of a result for the next call.

A function with states is still a function from parameters to results: passes and backends see ordinary values. The
attribute ``states`` of the function names pairs of a parameter and a result. Between two calls, the machine stores the
result, and passes the stored value as the parameter of the next call. Parameter and result share one buffer.

A state has a fixed shape, or a moving length: the result has more rows along one axis than the parameter, such as the
cache of a decoder with a row for each earlier token. The first call gets zeros, a constant, or no rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byoc_core.dtypes import dtype_name
from byoc_core.errors import IRError
from byoc_core.ir.constants import Constant, ConstantStore
from byoc_core.ir.module import Function, Value, Var
from byoc_core.opset.attributes import AttrValue
from byoc_core.opset.types import TensorType

__all__ = ["STATES", "StateVariable", "declare_states", "initial_constants", "state_values", "states_of"]

STATES = "states"
"""The attribute of a function for its states: a tuple with ``(input, output)`` for each state, followed by the digest
of the initial constant, or by the axis of the moving length."""

_FORM = "(input, output), (input, output, digest) or (input, output, axis)"


@dataclass(frozen=True, slots=True)
class StateVariable:
    """A state of a function.

    Attributes:
        input: the name of the parameter with the value before a call, one of :attr:`Function.input_names`.
        output: the name of the result with the value after the call, one of :attr:`Function.output_names`.
        initial: the digest of the constant before the first call; ``None`` for zeros.
        axis: the axis of the moving length; ``None`` for a state of a fixed shape.
    """

    input: str
    output: str
    initial: str | None = None
    axis: int | None = None

    def to_attr(self) -> AttrValue:
        """Return the state as an item of the attribute :data:`STATES`."""
        last = self.axis if self.initial is None else self.initial
        return (self.input, self.output) if last is None else (self.input, self.output, last)


def states_of(function: Function) -> tuple[StateVariable, ...]:
    """Return the states of a function, in the order of the declaration.

    Raises:
        IRError: the attribute is malformed.
    """
    items = function.attrs.get(STATES, ())
    if not isinstance(items, tuple):
        raise IRError(f"function `{function.name}`", "`states` is malformed", got=items, expected=f"({_FORM}, ...)")
    return tuple(_read(function, item) for item in items)


def declare_states(function: Function, states: Iterable[StateVariable]) -> Function:
    """Return the function with states in addition to its other states, and with explicit names of inputs and outputs.

    :func:`byoc_core.ir.verify` checks the states.
    """
    items = tuple(state.to_attr() for state in (*states_of(function), *states))
    return function.with_attrs(
        input_names=function.input_names, output_names=function.output_names, **({STATES: items} if items else {})
    )


def initial_constants(function: Function, store: ConstantStore | None) -> tuple[Constant, ...]:
    """Return the initial constants of a function's states that are in a store; malformed states have none."""
    items = function.attrs.get(STATES)
    if store is None or not isinstance(items, tuple):
        return ()
    lasts = [item[2] for item in items if isinstance(item, tuple) and len(item) == 3]
    digests = dict.fromkeys(last for last in lasts if isinstance(last, str) and last in store)
    return tuple(_constant(digest, store[digest]) for digest in digests)


def state_values(function: Function, state: StateVariable) -> tuple[Var, Value]:
    """Return the parameter of a state, and the value of its result.

    Raises:
        IRError: the function has no such input or output.
    """
    for role, name, names in (
        ("input", state.input, function.input_names),
        ("output", state.output, function.output_names),
    ):
        if name not in names:
            raise IRError(f"function `{function.name}`", f"has no {role} `{name}`", expected=", ".join(names) or "none")
    param = function.params[function.input_names.index(state.input)]
    return param, function.results[function.output_names.index(state.output)]


def _constant(digest: str, array: npt.NDArray[np.generic]) -> Constant:
    return Constant(digest, TensorType(tuple(array.shape), dtype_name(array.dtype)))


def _read(function: Function, item: AttrValue) -> StateVariable:
    match item:
        case (str(source), str(target)):
            return StateVariable(source, target)
        case (str(source), str(target), bool()):
            pass
        case (str(source), str(target), int(axis)):
            return StateVariable(source, target, axis=axis)
        case (str(source), str(target), str(digest)):
            return StateVariable(source, target, initial=digest)
    raise IRError(f"function `{function.name}`", "a state is malformed", got=item, expected=_FORM)
