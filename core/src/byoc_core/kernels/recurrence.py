"""Kernels of recurrent layers: one matrix product for all steps of the input, then one for each step of the state.

An optional last operand ``lengths (N,)`` says how many steps each sequence of the batch has. Behind the end of a
sequence its hidden states are 0, and its last state is that of its own last step; backwards it starts there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.kernels.elementwise import sigmoid
from byoc_core.kernels.indices import require_range, require_shape
from byoc_core.kernels.precision import NDArray, working_dtype

__all__ = ["KERNELS", "gru", "lstm", "rnn"]

_Step = Callable[[NDArray, tuple[NDArray, ...]], tuple[NDArray, ...]]


def lstm(
    x: NDArray,
    weight: NDArray,
    recurrence: NDArray,
    bias: NDArray,
    initial_h: NDArray,
    initial_c: NDArray,
    *lengths: NDArray,
    direction: str,
) -> tuple[NDArray, NDArray, NDArray]:
    """Gives all hidden states, and the last hidden and cell states, of a long short-term memory.

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


def gru(
    x: NDArray,
    weight: NDArray,
    recurrence: NDArray,
    bias: NDArray,
    initial_h: NDArray,
    *lengths: NDArray,
    direction: str,
    linear_before_reset: bool,
) -> tuple[NDArray, NDArray]:
    """Gives all hidden states, and the last, of a gated recurrent unit.

    Shapes: as :func:`lstm`, with ``3H`` and ``6H``. Gates stand in the order update, reset, hidden.
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


def rnn(
    x: NDArray,
    weight: NDArray,
    recurrence: NDArray,
    bias: NDArray,
    initial_h: NDArray,
    *lengths: NDArray,
    direction: str,
    activation: str,
) -> tuple[NDArray, NDArray]:
    """Gives all hidden states, and the last, of a plain recurrent layer.

    Shapes: as :func:`lstm`, with ``H`` and ``2H``.
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
    """Runs each direction: gives the hidden states of all steps, and each state's last value.

    Raises:
        ExecutionError: the shapes of the operands do not fit, or a length is negative or larger than the number of
            steps.
    """
    wide = working_dtype(x.dtype)
    steps, batch, num_inputs = x.shape
    directions, hidden_size = 2 if direction == "bidirectional" else 1, recurrence.shape[2]
    width = num_gates * hidden_size
    require_shape(op, "weight", weight.shape, (directions, width, num_inputs))
    require_shape(op, "recurrence", recurrence.shape, (directions, width, hidden_size))
    require_shape(op, "bias", bias.shape, (directions, 2 * width))
    for name, given in zip(("initial_h", "initial_c"), initial, strict=False):
        require_shape(op, name, given.shape, (directions, batch, hidden_size))
    for given in lengths:
        require_shape(op, "lengths", given.shape, (batch,))
        require_range(op, given, 0, steps, "a length does not fit the steps")
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
        for kept, value in zip(last, state, strict=True):
            kept[index] = value
    return every.astype(x.dtype, copy=False), tuple(value.astype(x.dtype, copy=False) for value in last)


KERNELS: dict[str, Callable[..., NDArray | tuple[NDArray, ...]]] = {"nn.gru": gru, "nn.lstm": lstm, "nn.rnn": rnn}
