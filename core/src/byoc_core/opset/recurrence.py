"""Recurrent layers: plain, gated recurrent unit, long short-term memory."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.dims import Dim
from byoc_core.kernels import KERNELS
from byoc_core.opset.opdef import AttrKind, AttrSpec, CostContext, OpDef, OperandSpec, TypeContext
from byoc_core.opset.type_rules import FLOAT_KINDS, require_equal, require_kind, require_rank, require_same_dtype
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]

_DIRECTION = AttrSpec(
    "direction",
    AttrKind.STR,
    "forward",
    ("forward", "reverse", "bidirectional"),
    doc="The order of the steps; with ``bidirectional`` both, as two layers of parameters and results.",
)


def _infer_recurrence(num_gates: int, num_states: int) -> Callable[[TypeContext], tuple[Type, ...]]:
    """Gives the rule of a layer with so many gates and states."""

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
        require_equal(context, 2, 1, width, f"as {num_gates} times its last axis")
        require_equal(context, 3, 1, width * 2, f"as {2 * num_gates} times the last axis of operand `recurrence`")
        for index in range(4, num_operands):
            require_equal(context, index, 1, batch, "as axis 1 of operand `x`")
            require_equal(context, index, 2, hidden, "as the last axis of operand `recurrence`")
        _check_lengths(context, num_operands, batch)
        state = TensorType((directions, batch, hidden), dtype)
        return (TensorType((steps, directions, batch, hidden), dtype), *[state] * num_states)

    return infer


def _check_lengths(context: TypeContext, index: int, batch: Dim) -> None:
    """Checks the optional last operand."""
    if len(context.operands) > index + 1:
        raise context.error(f"takes {index} operands and one of lengths", got=len(context.operands))
    if len(context.operands) > index:
        require_kind(context, index, ("int",))
        require_rank(context, index, 1, "(N,)")
        require_equal(context, index, 0, batch, "as axis 1 of operand `x`")


def _multiple(count: int) -> str:
    return "H" if count == 1 else f"{count}H"


def _recurrence_flops(context: CostContext) -> Dim:
    """Two operations for each step, image of the batch, and element of the two matrices."""
    x = context.operands[0]
    if not isinstance(x, TensorType) or x.shape is None:
        return 0
    return (context.operand_elements(1) + context.operand_elements(2)) * x.shape[0] * x.shape[1] * 2


def _recurrence_op(
    name: str, num_gates: int, states: tuple[str, ...], what: str, gates: str, attrs: tuple[AttrSpec, ...] = ()
) -> OpDef:
    parameters = ("x", "weight", "recurrence", "bias", *(f"initial_{state}" for state in states))
    width = _multiple(num_gates)
    return OpDef(
        name,
        (*(OperandSpec(operand) for operand in parameters), OperandSpec("lengths", variadic=True)),
        _infer_recurrence(num_gates, len(states)),
        attrs=(_DIRECTION, *attrs),
        flops=_recurrence_flops,
        kernel=KERNELS[name],
        doc=f"Gives the hidden states of all steps, and every state after the last, of {what}.{gates}\n\n"
        f"Shapes: ``x (T, N, I)``, ``weight (D, {width}, I)``, ``recurrence (D, {width}, H)``, "
        f"``bias (D, {2 * num_gates}H)`` (that of the input, then that of the state), states ``(D, N, H)``; results "
        "``(T, D, N, H)`` and ``(D, N, H)`` for each state. ``D`` is the number of directions. One more operand, "
        "integers ``(N,)``, gives the steps of each sequence: behind its end hidden states are 0, and its last states "
        "are those of its own end, where the reverse direction begins.",
    )


OPS: tuple[OpDef, ...] = (
    _recurrence_op(
        "nn.rnn",
        1,
        ("h",),
        "a recurrent layer ``h = f(x @ weight.T + h @ recurrence.T + bias)``",
        "",
        (AttrSpec("activation", AttrKind.STR, "tanh", ("tanh", "relu"), doc="The function ``f``."),),
    ),
    _recurrence_op(
        "nn.gru",
        3,
        ("h",),
        "a gated recurrent unit",
        " Gates stand in the order update, reset, hidden.",
        (
            AttrSpec(
                "linear_before_reset",
                AttrKind.BOOL,
                False,
                doc="Whether the reset gate multiplies the state after the matrix, in place of before it.",
            ),
        ),
    ),
    _recurrence_op(
        "nn.lstm",
        4,
        ("h", "c"),
        "a long short-term memory",
        " Gates stand in the order input, output, forget, cell.",
    ),
)
"""The family's ops."""
