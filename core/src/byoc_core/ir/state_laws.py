"""The laws of a function's states; see :mod:`byoc_core.ir.states`.

Names: inputs and outputs of a function with states have explicit names, each used once; a state names an input and an
output, and no other state names either. Types: input and output are tensors of known rank and equal dtype; their shapes
are equal, except along the axis of a moving length. There, the size of the input is a symbol, the output is provably
not shorter, and states with the same symbol grow alike; a moving length is in no size of another axis of a state. All
axes before a moving axis have size 1: earlier rows stay at
the beginning of a buffer with room for more rows. The inputs determine the sizes of the output. The inputs without
states determine all sizes of a state but a moving length: the first call knows no other sizes. The initial constant is
in the store, and has the type of the input; a moving length has none: it begins with 0 rows. Calls: no function of the
module calls a function with states, because only the machine keeps states.
"""

from __future__ import annotations

from byoc_core.dims import Dim, bound_symbols, is_nonnegative, shape_symbols
from byoc_core.errors import IRError, VerifyError
from byoc_core.ir.module import Function, IRModule
from byoc_core.ir.printer import binding_window
from byoc_core.ir.states import STATES, StateVariable, initial_constants, state_values, states_of
from byoc_core.ir.structural import CALL
from byoc_core.opset.types import TensorType, Type

__all__ = ["check_states"]


def check_states(module: IRModule) -> None:
    """Check the states of every function of a module.

    Raises:
        VerifyError: a law is broken; names function and state.

    Cost: linear in the states; for a module with states, also linear in the bindings.
    """
    stateful = {name: function for name, function in module.functions.items() if STATES in function.attrs}
    if not stateful:
        return
    for function in stateful.values():
        try:
            _check_function(module, function)
        except VerifyError:
            raise
        except IRError as error:
            raise _failure(module, function, error.where, error.problem, error.got, error.expected) from error
    for name, function in module.functions.items():
        for binding in function.walk():
            if binding.op is CALL and binding.attrs["callee"] in stateful:
                raise VerifyError(
                    f"function `{name}`, binding `{', '.join(result.name for result in binding.results)}`",
                    f"calls `{binding.attrs['callee']}`, a function with states",
                    hint="Declare the states of the calling function, or inline the callee.",
                    detail=binding_window(function, binding, module.constants),
                )


def _check_function(module: IRModule, function: Function) -> None:
    where = f"function `{function.name}`"
    for role, names in (("input", function.input_names), ("output", function.output_names)):
        if f"{role}_names" not in function.attrs:
            raise IRError(where, f"has states, but no explicit names of {role}s", expected=f"`{role}_names`")
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise IRError(where, f"has states and repeated names of {role}s: {', '.join(repeated)}")
    used: set[tuple[str, str]] = set()
    for state in states_of(function):
        for role, name in (("input", state.input), ("output", state.output)):
            if (role, name) in used:
                raise IRError(where, f"two states have the {role} `{name}`")
            used.add((role, name))
        _check_state(module, function, state)
    _check_lengths(module, function)
    _check_fixed_axes(module, function)
    _check_first_sizes(module, function)


def _check_lengths(module: IRModule, function: Function) -> None:
    """Check that states with a common symbol of their lengths grow alike."""
    lengths: dict[object, object] = {}
    for state in states_of(function):
        param, result = state_values(function, state)
        if state.axis is not None and isinstance(param.type, TensorType) and isinstance(result.type, TensorType):
            old, new = (param.type.shape or ())[state.axis], (result.type.shape or ())[state.axis]
            if lengths.setdefault(old, new) != new:
                where = f"function `{function.name}`, state `{state.input}`"
                problem = f"grows to another length than other states of {old} rows"
                raise _failure(module, function, where, problem, new, lengths[old])


def _check_fixed_axes(module: IRModule, function: Function) -> None:
    """Check that no moving length is in the size of an axis that does not move: no value could have this size later."""
    states = [(state, state_values(function, state)[0]) for state in states_of(function)]
    moving = {str(_shape(param.type)[state.axis]) for state, param in states if state.axis is not None}
    for state, param in states:
        fixed = [dim for axis, dim in enumerate(_shape(param.type)) if axis != state.axis]
        misplaced = ", ".join(sorted(moving & shape_symbols(fixed)))
        if misplaced:
            where = f"function `{function.name}`, state `{state.input}`"
            problem = f"has the moving length {misplaced} on an axis that does not move"
            hint = "Use another symbol, or declare the axis as a moving length."
            raise _failure(module, function, where, problem, param.type, hint=hint)


def _check_first_sizes(module: IRModule, function: Function) -> None:
    """Check that the first call knows the sizes of all states."""
    states = [(state, state_values(function, state)[0]) for state in states_of(function)]
    state_params = {param for _, param in states}
    inputs = [_shape(param.type) for param in function.params if param not in state_params]
    moving = [str(_shape(param.type)[state.axis]) for state, param in states if state.axis is not None]
    first_sizes = bound_symbols(inputs, moving)
    for state, param in states:
        unknown = sorted(shape_symbols(_shape(param.type)) - first_sizes)
        if unknown:
            where, names = f"function `{function.name}`, state `{state.input}`", ", ".join(unknown)
            hint = f"Add an input with the size {names}, or give the size a number."
            problem = f"no input but the state determines the size {names}; a first call could not begin"
            raise _failure(module, function, where, problem, param.type, hint=hint)


def _shape(type_: Type) -> tuple[Dim, ...]:
    """Return the shape of a tensor; no sizes for other types."""
    return (type_.shape or ()) if isinstance(type_, TensorType) else ()


def _check_state(module: IRModule, function: Function, state: StateVariable) -> None:
    param, result = state_values(function, state)
    before, after = param.type, result.type
    where = f"function `{function.name}`, state `{state.input}`"
    if not isinstance(before, TensorType) or not isinstance(after, TensorType):
        raise _unlike(module, function, where, before, after)
    if before.shape is None or after.shape is None or before.dtype != after.dtype:
        raise _unlike(module, function, where, before, after)
    old, new = before.shape, after.shape
    axis = state.axis
    if axis is None and old != new:
        raise _unlike(module, function, where, before, after)
    if axis is not None:
        if not 0 <= axis < len(old):
            raise _failure(module, function, where, f"has no axis {axis}", before)
        if len(old) != len(new) or old[:axis] != new[:axis] or old[axis + 1 :] != new[axis + 1 :]:
            raise _unlike(module, function, where, before, after)
        if any(dim != 1 for dim in old[:axis]):
            raise _failure(module, function, where, f"has sizes other than 1 before the moving axis {axis}", before)
        if str(old[axis]) not in before.symbols:
            raise _failure(module, function, where, f"has no symbol as the size of the moving axis {axis}", before)
        if not is_nonnegative(new[axis] - old[axis]):
            raise _failure(module, function, where, "may become shorter", after, before)
        if state.initial is not None:
            raise _failure(module, function, where, "has a moving length and an initial constant", state.initial[:16])
    unknown = sorted(after.symbols - bound_symbols(_shape(param.type) for param in function.params))
    if unknown:
        problem = f"the inputs do not determine the size {', '.join(unknown)} of output `{state.output}`"
        raise _failure(module, function, where, problem, after)
    if state.initial is not None:
        found = [c.type for c in initial_constants(function, module.constants) if c.digest == state.initial]
        if found != [before]:
            problem = "the initial constant has another type" if found else "the initial constant is not in the store"
            raise _failure(module, function, where, problem, found[0] if found else state.initial[:16], before)


def _unlike(module: IRModule, function: Function, where: str, before: Type, after: Type) -> VerifyError:
    return _failure(module, function, where, "the output does not have the type of the input", after, before)


def _failure(
    module: IRModule,
    function: Function,
    where: str,
    problem: str,
    got: object,
    expected: object = None,
    hint: str | None = None,
) -> VerifyError:
    detail = binding_window(function, None, module.constants)
    return VerifyError(where, problem, got=got, expected=expected, hint=hint, detail=detail)
