"""Recurrent layers: plain, gated recurrent unit, long short-term memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from byoc_core.dims import Dim
from byoc_core.kernels.indices import check_array_shape, require_range
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray, working_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import OpCase, Shape, example, integers
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.families.elementwise_kernels import sigmoid
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.rounding import NORM
from byoc_core.opset.type_rules import FLOAT_KINDS, require_equal, require_kind, require_rank, require_same_dtype
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]

_Step = Callable[[NDArray, tuple[NDArray, ...]], tuple[NDArray, ...]]


def _lstm(
    x: NDArray,
    weight: NDArray,
    recurrence: NDArray,
    bias: NDArray,
    initial_h: NDArray,
    initial_c: NDArray,
    *lengths: NDArray,
    direction: str,
) -> tuple[NDArray, NDArray, NDArray]:
    """Return all hidden states, and the last hidden and cell states, of a long short-term memory.

    Shapes: ``x (T, N, I)``, ``weight (D, 4H, I)``, ``recurrence (D, 4H, H)``, ``bias (D, 8H)``, states ``(D, N, H)``;
    results ``(T, D, N, H)`` and twice ``(D, N, H)``. Gates stand in the order input, output, forget, cell.
    """

    def make_step(matrix: NDArray, shift: NDArray) -> _Step:
        def step(projected: NDArray, state: tuple[NDArray, ...]) -> tuple[NDArray, ...]:
            hidden, cell = state
            enter, leave, keep, new = np.split(projected + hidden @ matrix.T + shift, 4, axis=-1)
            cell = sigmoid(keep) * cell + sigmoid(enter) * np.tanh(new)
            return sigmoid(leave) * np.tanh(cell), cell

        return step

    every, (hidden, cell) = _run(
        "nn.lstm", 4, x, weight, recurrence, bias, (initial_h, initial_c), lengths, direction, make_step
    )
    return every, hidden, cell


def _gru(
    x: NDArray,
    weight: NDArray,
    recurrence: NDArray,
    bias: NDArray,
    initial_h: NDArray,
    *lengths: NDArray,
    direction: str,
    linear_before_reset: bool,
) -> tuple[NDArray, NDArray]:
    """Return all hidden states, and the last, of a gated recurrent unit.

    Shapes: as :func:`_lstm`, with ``3H`` and ``6H``. Gates stand in the order update, reset, hidden.
    """

    def make_step(matrix: NDArray, shift: NDArray) -> _Step:
        size = matrix.shape[1]
        gates, inner = matrix[: 2 * size], matrix[2 * size :]

        def step(projected: NDArray, state: tuple[NDArray, ...]) -> tuple[NDArray, ...]:
            (hidden,) = state
            opened = sigmoid(projected[:, : 2 * size] + hidden @ gates.T + shift[: 2 * size])
            update, reset = opened[:, :size], opened[:, size:]
            if linear_before_reset:
                reached = reset * (hidden @ inner.T + shift[2 * size :])
            else:
                reached = (reset * hidden) @ inner.T + shift[2 * size :]
            return ((1 - update) * np.tanh(projected[:, 2 * size :] + reached) + update * hidden,)

        return step

    every, (hidden,) = _run("nn.gru", 3, x, weight, recurrence, bias, (initial_h,), lengths, direction, make_step)
    return every, hidden


def _rnn(
    x: NDArray,
    weight: NDArray,
    recurrence: NDArray,
    bias: NDArray,
    initial_h: NDArray,
    *lengths: NDArray,
    direction: str,
    activation: str,
) -> tuple[NDArray, NDArray]:
    """Return all hidden states, and the last, of a plain recurrent layer.

    Shapes: as :func:`_lstm`, with ``H`` and ``2H``.
    """

    def make_step(matrix: NDArray, shift: NDArray) -> _Step:
        def step(projected: NDArray, state: tuple[NDArray, ...]) -> tuple[NDArray, ...]:
            total = projected + state[0] @ matrix.T + shift
            return (np.tanh(total) if activation == "tanh" else np.maximum(total, 0),)

        return step

    every, (hidden,) = _run("nn.rnn", 1, x, weight, recurrence, bias, (initial_h,), lengths, direction, make_step)
    return every, hidden


def _run(
    op: str,
    num_gates: int,
    x: NDArray,
    weight: NDArray,
    recurrence: NDArray,
    bias: NDArray,
    initial: tuple[NDArray, ...],
    lengths: tuple[NDArray, ...],
    direction: str,
    make_step: Callable[[NDArray, NDArray], _Step],
) -> tuple[NDArray, tuple[NDArray, ...]]:
    """Run each direction; return the hidden states of all steps, and each state's last value.

    Raises:
        ExecutionError: the shapes of the operands do not fit, or a length is negative or larger than the number of
            steps.
    """
    wide = working_dtype(x.dtype)
    steps, batch, num_inputs = x.shape
    directions, hidden_size = 2 if direction == "bidirectional" else 1, recurrence.shape[2]
    width = num_gates * hidden_size
    check_array_shape(op, "weight", weight.shape, (directions, width, num_inputs))
    check_array_shape(op, "recurrence", recurrence.shape, (directions, width, hidden_size))
    check_array_shape(op, "bias", bias.shape, (directions, 2 * width))
    for name, operand in zip(("initial_h", "initial_c"), initial, strict=False):
        check_array_shape(op, name, operand.shape, (directions, batch, hidden_size))
    for operand in lengths:
        check_array_shape(op, "lengths", operand.shape, (batch,))
        require_range(op, operand, 0, steps, "a length does not fit the steps")
    every = np.empty((steps, directions, batch, hidden_size), wide)
    last = tuple(np.empty((directions, batch, hidden_size), wide) for _ in initial)
    for index in range(directions):
        shift = bias[index].astype(wide, copy=False)
        projected = x.astype(wide, copy=False) @ weight[index].astype(wide, copy=False).T + shift[:width]
        step = make_step(recurrence[index].astype(wide, copy=False), shift[width:])
        state = tuple(value[index].astype(wide, copy=False) for value in initial)
        backwards = direction == "reverse" or index == 1
        for time in reversed(range(steps)) if backwards else range(steps):
            following = step(projected[time], state)
            if lengths:
                runs = (lengths[0] > time)[:, None]
                state = tuple(np.where(runs, new, old) for new, old in zip(following, state, strict=True))
                every[time, index] = np.where(runs, state[0], 0)
            else:
                state = following
                every[time, index] = state[0]
        for last_state, value in zip(last, state, strict=True):
            last_state[index] = value
    return every.astype(x.dtype, copy=False), tuple(value.astype(x.dtype, copy=False) for value in last)


_DIRECTION = AttrSpec(
    "direction",
    AttrKind.STR,
    "forward",
    ("forward", "reverse", "bidirectional"),
    doc="The order of the steps; ``bidirectional`` stands for both orders, with two layers of parameters and results.",
)


def _infer_recurrence(num_gates: int, num_states: int) -> Callable[[TypeContext], tuple[Type, ...]]:
    """Return the type rule of a layer with given numbers of gates and states."""

    def infer(context: TypeContext) -> tuple[Type, ...]:
        require_kind(context, 0, FLOAT_KINDS)
        num_operands = 4 + num_states
        dtype = require_same_dtype(context, 0, *range(1, num_operands))
        steps, batch, inputs = require_rank(context, 0, 3, "(T, N, I)")
        require_rank(context, 1, 3, f"(D, {_multiple(num_gates)}, I)")
        hidden = require_rank(context, 2, 3, f"(D, {_multiple(num_gates)}, H)")[2]
        require_rank(context, 3, 2, f"(D, {2 * num_gates}H)")
        for index in range(4, num_operands):
            require_rank(context, index, 3, "(D, N, H)")
        directions = 2 if context.attrs["direction"] == "bidirectional" else 1
        for index in range(1, num_operands):
            require_equal(context, index, 0, directions, "as the number of directions")
        width = hidden * num_gates
        require_equal(context, 1, 1, width, f"as {num_gates} times the last axis of operand `recurrence`")
        require_equal(context, 1, 2, inputs, "as axis 2 of operand `x`")
        require_equal(context, 2, 1, width, f"as {num_gates} times the last axis")
        require_equal(context, 3, 1, width * 2, f"as {2 * num_gates} times the last axis of operand `recurrence`")
        for index in range(4, num_operands):
            require_equal(context, index, 1, batch, "as axis 1 of operand `x`")
            require_equal(context, index, 2, hidden, "as the last axis of operand `recurrence`")
        _check_lengths(context, num_operands, batch)
        state = TensorType((directions, batch, hidden), dtype)
        return (TensorType((steps, directions, batch, hidden), dtype), *[state] * num_states)

    return infer


def _check_lengths(context: TypeContext, index: int, batch: Dim) -> None:
    """Check the optional last operand."""
    if len(context.operands) > index + 1:
        raise context.error(f"takes {index} operands, and optional lengths", got=len(context.operands))
    if len(context.operands) > index:
        require_kind(context, index, ("int",))
        require_rank(context, index, 1, "(N,)")
        require_equal(context, index, 0, batch, "as axis 1 of operand `x`")


def _multiple(count: int) -> str:
    return "H" if count == 1 else f"{count}H"


def _recurrence_flops(context: OpContext) -> Dim:
    """Return two operations for each step, image of the batch, and element of the two matrices."""
    x = context.operands[0]
    if not isinstance(x, TensorType) or x.shape is None:
        return 0
    return (context.operand_elements(1) + context.operand_elements(2)) * x.shape[0] * x.shape[1] * 2


def _num_steps(context: OpContext) -> int:
    return math.prod(size for size in context.operand_shape()[:1] if isinstance(size, int))


def _cases(num_gates: int, num_states: int) -> Iterator[OpCase]:
    steps, batch, inputs, hidden = 5, 2, 3, 4
    for direction, count in (("forward", 1), ("bidirectional", 2)):
        width = num_gates * hidden
        weights: list[Shape] = [(count, width, inputs), (count, width, hidden), (count, 2 * width)]
        operands = [(steps, batch, inputs), *weights, *[(count, batch, hidden)] * num_states]
        yield example(*operands, direction=direction)
        yield example(*operands, integers((batch,), 1, steps, "int32"), direction=direction)


def _recurrence_op(
    name: str,
    kernel: Callable[..., tuple[NDArray, ...]],
    num_gates: int,
    states: tuple[str, ...],
    network: str,
    gates: str,
    attrs: tuple[AttrSpec, ...] = (),
) -> OpDef:
    parameters = ("x", "weight", "recurrence", "bias", *(f"initial_{state}" for state in states))
    width = _multiple(num_gates)
    return OpDef(
        name,
        (*(OperandSpec(operand) for operand in parameters), OperandSpec("lengths", variadic=True)),
        _infer_recurrence(num_gates, len(states)),
        attrs=(_DIRECTION, *attrs),
        flops=_recurrence_flops,
        kernel=NumpyKernel(kernel),
        rounding=NORM,
        rounds=_num_steps,
        cases=lambda: _cases(num_gates, len(states)),
        doc=f"Return the hidden states of all steps, and every state after the last step, of {network}.{gates}\n\n"
        f"Shapes: ``x (T, N, I)``, ``weight (D, {width}, I)``, ``recurrence (D, {width}, H)``, "
        f"``bias (D, {2 * num_gates}H)`` (for the input, then for the state), states ``(D, N, H)``; results "
        "``(T, D, N, H)`` and ``(D, N, H)`` for each state. ``D`` is the number of directions. An additional operand, "
        "integers ``(N,)``, gives the number of steps of each sequence: hidden states beyond the end of a sequence "
        "are 0, the last states are the states at the end of the sequence, and the reverse direction begins at this "
        "end.",
    )


OPS: tuple[OpDef, ...] = (
    _recurrence_op(
        "nn.rnn",
        _rnn,
        1,
        ("h",),
        "a recurrent layer ``h = f(x @ weight.T + h @ recurrence.T + bias)``",
        "",
        (AttrSpec("activation", AttrKind.STR, "tanh", ("tanh", "relu"), doc="The function ``f``."),),
    ),
    _recurrence_op(
        "nn.gru",
        _gru,
        3,
        ("h",),
        "a gated recurrent unit",
        " The order of the gates is update, reset, hidden.",
        (
            AttrSpec(
                "linear_before_reset",
                AttrKind.BOOL,
                False,
                doc="Whether the reset gate multiplies the state after the matrix product, instead of before.",
            ),
        ),
    ),
    _recurrence_op(
        "nn.lstm",
        _lstm,
        4,
        ("h", "c"),
        "a long short-term memory",
        " The order of the gates is input, output, forget, cell.",
    ),
)
"""The family's ops."""
