"""Recurrent layers: a primitive for all steps; packing brings weights into oneDNN's order once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Algorithm, Argument, Direction, Isa, Query
from byoc_dnnl.derived_constants import BlockSums
from byoc_dnnl.handles import MemoryDesc
from byoc_dnnl.lowerings.attributes import choice, flag
from byoc_dnnl.primitives import RecurrentLayer

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import PrimitiveDesc
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = ["NUM_STATES", "declines_lengths", "lower_recurrence"]

NUM_STATES: Mapping[str, int] = {"nn.gru": 1, "nn.lstm": 2, "nn.rnn": 1}
"""The ops, with the number of states passed from step to step."""

_GATES: Mapping[str, tuple[int, ...]] = {"nn.gru": (0, 1, 2), "nn.lstm": (0, 2, 3, 1), "nn.rnn": (0,)}
"""oneDNN's gates, as indices of the op's gates: the order for an LSTM is input, forget, cell, output."""

_DIRECTIONS: Mapping[str, Direction] = {
    "forward": Direction.LEFT_TO_RIGHT,
    "reverse": Direction.RIGHT_TO_LEFT,
    "bidirectional": Direction.BOTH_CONCATENATED,
}

_LARGE = 2**16
"""The least number of elements of ``recurrence`` per direction for two threads to pay in a step of one sequence."""

_LINE = 16
"""The elements of a cache line."""

_SOURCES = (Argument.SRC_1, Argument.SRC_2)
_TARGETS = (Argument.DST_1, Argument.DST_2)


def declines_lengths(call: Call) -> str | None:
    """Return the reason for a refusal if a recurrent layer has the length of each sequence as operand."""
    if len(call.operands) == 5 + NUM_STATES.get(call.op, len(call.operands)):
        return "oneDNN runs all sequences of a batch to full length"
    return None


def lower_recurrence(call: Call, planner: Planner) -> str | None:
    """Add a recurrent layer.

    Not taken: weights or biases other than constants; ``nn.rnn`` with ReLU; a length for each sequence.
    """
    x, weight, recurrence, bias, *states = call.inputs
    all_states, *last_states = call.outputs
    steps, batch, _ = sizes_of(call.operands[0])
    directions, _, hidden = sizes_of(call.operands[2])
    constants = [planner.location(id_) for id_ in (weight, recurrence, bias) if planner.is_constant(id_)]
    if len(constants) != 3 or not all(location.desc.is_row_major() for location in constants):
        return "weights other than constants are not reordered for oneDNN"
    input_weights, state_weights = _matrix(call, planner, weight), _matrix(call, planner, recurrence)
    shift = _shift(call, planner, bias)
    layout = planner.any_layout if _goes_by_blocks(call, planner) else partial(_product_layout, planner)
    layer = RecurrentLayer(
        _DIRECTIONS[choice(call, "direction", tuple(_DIRECTIONS))],
        source=planner.row_major(sizes_of(call.operands[0])),
        state=planner.row_major((1, directions, batch, hidden)),
        weights=layout(input_weights.desc.sizes),
        recurrence=layout(state_weights.desc.sizes),
        bias=shift.desc,
        target=planner.row_major((steps, batch, directions * hidden)),
        writes_states=any(map(planner.graph.is_read, last_states)),
    )
    primitive = _make(call, planner, layer)
    if isinstance(primitive, str):
        return primitive
    arguments: dict[int, Location] = {
        Argument.SRC: planner.row_major_location(x),
        Argument.WEIGHTS: planner.reordered(weight, input_weights, primitive.memory_desc(Query.WEIGHTS_MD)),
        Argument.WEIGHTS_1: planner.reordered(recurrence, state_weights, primitive.memory_desc(Query.WEIGHTS_MD, 1)),
        Argument.BIAS: shift,
    }
    for argument, state in zip(_SOURCES, states, strict=False):
        arguments[argument] = planner.row_major_location(state).view_as(layer.state)
    result_desc = planner.row_major((steps, batch, directions, hidden)).permuted((0, 2, 1, 3))
    arguments[Argument.DST] = planner.allocate_result(all_states, result_desc).view_as(layer.target)
    if layer.writes_states:
        for argument, state in zip(_TARGETS, last_states, strict=False):
            written = planner.allocate_result(state, planner.row_major((directions, batch, hidden)))
            arguments[argument] = written.view_as(layer.state)
    planner.add_step(f"{call.op} by products of matrices" if primitive.is_reference else call.op, primitive, arguments)
    return None


def _matrix(call: Call, planner: Planner, id_: int) -> Location:
    """Return weights ``(D, G * H, width)`` as ``(1, D, width, G, H)``, with oneDNN's order of gates."""
    gates = _GATES[call.op]
    directions, rows, width = planner.location(id_).desc.sizes
    hidden = rows // len(gates)
    location = planner.derived_constant(
        id_, BlockSums((directions, len(gates), hidden * width), tuple((gate,) for gate in gates))
    )
    sizes = (1, directions, len(gates), hidden, width)
    return location.view_as(planner.row_major(sizes).permuted((0, 1, 4, 2, 3)))


def _shift(call: Call, planner: Planner, id_: int) -> Location:
    """Return the summed biases ``(1, D, G, H)``, with an additional gate if the reset gate multiplies a bias."""
    gates = _GATES[call.op]
    count = len(gates)
    sums: tuple[tuple[int, ...], ...] = tuple((gate, count + gate) for gate in gates)
    if call.op == "nn.gru" and flag(call, "linear_before_reset"):
        sums = (*sums[:2], (2,), (5,))
    directions, total = planner.location(id_).desc.sizes
    hidden = total // (2 * count)
    location = planner.derived_constant(id_, BlockSums((directions, 2 * count, hidden), sums))
    return location.view_as(planner.row_major((1, directions, len(sums), hidden)))


def _goes_by_blocks(call: Call, planner: Planner) -> bool:
    """Return whether oneDNN's kernels on blocks of weights are faster than a product of matrices for each step.

    The kernels are faster with several threads for an LSTM of one sequence with large weights; for GRU no kernels
    exist.
    """
    (_, batch, _), (_, rows, width) = (sizes_of(call.operands[index]) for index in (0, 2))
    return call.op == "nn.lstm" and batch == 1 and planner.engine.num_threads > 1 and rows * width >= _LARGE


def _product_layout(planner: Planner, sizes: tuple[int, ...]) -> MemoryDesc:
    """Return the layout of weights ``(1, D, width, G, H)`` as matrices with gaps.

    Each row takes an odd number of cache lines.
    """
    _, directions, width, gates, hidden = sizes
    row = (-(-gates * hidden // _LINE) | 1) * _LINE
    strides = (directions * width * row, width * row, row, hidden, 1)
    return MemoryDesc.strided(planner.engine, sizes, strides)


def _make(call: Call, planner: Planner, layer: RecurrentLayer) -> PrimitiveDesc | str:
    """Return the primitive, or the reason why none exists."""
    if call.op == "nn.lstm":
        primitive = planner.factory.lstm(layer)
    elif call.op == "nn.gru":
        primitive = planner.factory.gru(layer, linear_before_reset=flag(call, "linear_before_reset"))
    else:
        if choice(call, "activation", ("relu", "tanh")) == "relu":
            return "oneDNN 3.2 gives 0 for NaN"
        primitive = planner.factory.rnn(layer, Algorithm.ELTWISE_TANH)
    if primitive is None:
        return "oneDNN has no implementation"
    # oneDNN's `ref` here is a product of matrices for each step, with generated code for product and gates.
    if not planner.accepts(primitive) and planner.engine.isa & Isa.AVX2 != Isa.AVX2:
        return "oneDNN has only a reference implementation"
    return primitive
