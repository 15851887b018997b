"""The sizes and schedules of recurrent layers, by parts of the gates, each part multiplied at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from byoc_core.dims import Dim, ceildiv, dim_max, total
from byoc_core.dtypes import dtype_info
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernels.blocks import packed_panels
from byoc_ccompiler.kernels.product_schedules import panel_vectors
from byoc_ccompiler.steps import Step, dtype_of, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = [
    "GATES",
    "RecurrenceSchedule",
    "RecurrentLayer",
    "RecurrentPart",
    "choose_schedule",
    "offered_schedules",
    "parts_of",
]

GATES = {"nn.rnn": 1, "nn.gru": 3, "nn.lstm": 4}
"""The gates of a hidden unit, by op."""

_STEP_TILES, _LINE_TILES = 8, 2
"""Register tiles of steps with inputs multiplied at once; register tiles of lines taking steps together."""

_PANELS_AT_ONCE = (4, 2, 1)
"""Panels multiplied by a single row at a time: a single panel has too few sums to keep the multipliers busy."""

_NEAR_NBYTES, _ENOUGH_VECTORS = 3 << 14, 4
"""A larger matrix is read from the second-level cache. A panel of this many vectors has enough sums for that rate, and
panels in order are a single stream of memory."""


@dataclass(frozen=True, slots=True)
class RecurrentLayer:
    """The computation: an op, and the sizes.

    The matrices of a direction have ``width`` rows: the gates of all hidden units.
    """

    op: str
    dtype: str
    num_steps: Dim
    batch: Dim
    inputs: Dim
    hidden: Dim
    num_directions: int

    @classmethod
    def of(cls, step: Step) -> RecurrentLayer:
        """Return the layer computed by a step."""
        num_steps, batch, inputs = shape_of(step.operands[0])
        hidden, num_directions = shape_of(step.operands[2])[2], int(str(shape_of(step.binding.results[1])[0]))
        return cls(step.op, dtype_of(step.operands[0]), num_steps, batch, inputs, hidden, num_directions)

    @property
    def width(self) -> Dim:
        """Rows of a matrix."""
        return self.hidden * GATES[self.op]

    @property
    def parts(self) -> tuple[Dim, ...]:
        """Rows of a matrix computable at once: the last gate of a gated recurrent unit follows the rest."""
        return (self.hidden * 2, self.hidden) if self.op == "nn.gru" else (self.width,)


@dataclass(frozen=True, slots=True)
class RecurrenceSchedule:
    """The schedule of a recurrent layer.

    Attributes:
        panel_vectors: vectors in a row of a panel, for each part of the gates computed at once.
        panels_at_once: panels multiplied by a single row at a time, the most first; the last is 1.
        steps_at_once: steps of a line with inputs multiplied at once.
        lines_at_once: lines of a direction taking steps together.
    """

    panel_vectors: tuple[int, ...]
    panels_at_once: tuple[int, ...]
    steps_at_once: Dim
    lines_at_once: int


def choose_schedule(layer: RecurrentLayer, unit: VectorUnit) -> RecurrenceSchedule:
    """Return the schedule of a layer: few lines take many steps at a time, and a single row meets many panels."""
    rows = unit.panel_rows(unit.panel_vectors)
    # A call may have no lines.
    steps = dim_max(1, _STEP_TILES // dim_max(layer.batch, 1)) * rows
    if isinstance(steps, int) and isinstance(layer.num_steps, int):
        steps = max(1, min(steps, layer.num_steps))
    vectors = tuple(panel_vectors(unit, layer.dtype, size)[0] for size in layer.parts)
    size = layer.width * layer.hidden
    is_far = not isinstance(size, int) or size * dtype_info(layer.dtype).itemsize > _NEAR_NBYTES
    panels = (1,) if is_far and unit.has_vectors and min(vectors) >= _ENOUGH_VECTORS else _PANELS_AT_ONCE
    return RecurrenceSchedule(vectors, panels, steps, rows * _LINE_TILES)


def offered_schedules(
    layer: RecurrentLayer, unit: VectorUnit, near: RecurrenceSchedule
) -> Iterator[RecurrenceSchedule]:
    """Yield schedules near a schedule: other panels, panels at once, and steps or lines at once."""
    for vectors in (1, 2, unit.panel_vectors):
        yield replace(near, panel_vectors=(vectors,) * len(layer.parts))
    yield from (replace(near, panels_at_once=_PANELS_AT_ONCE[first:]) for first in range(len(_PANELS_AT_ONCE)))
    if isinstance(near.steps_at_once, int):
        sizes = (near.steps_at_once * 2, near.steps_at_once // 2)
        most = layer.num_steps if isinstance(layer.num_steps, int) else max(sizes)
        yield from (replace(near, steps_at_once=steps) for steps in sizes if 0 < steps <= most)
    if layer.batch != 1:
        yield replace(near, lines_at_once=near.lines_at_once // 2)


class RecurrentPart(NamedTuple):
    """Gates computed at once, in panels: rows of the matrices from ``first`` on.

    The earlier parts take ``first_column`` columns, padding included. The last panel has ``tail`` columns if narrower;
    else ``tail`` is 0.
    """

    first: Dim
    size: Dim
    first_column: Dim
    lanes: int
    width: int
    tail: int

    @property
    def num_full_panels(self) -> Dim:
        """The number of panels of the whole width."""
        return ceildiv(self.size - self.tail, self.width)

    @property
    def padded(self) -> Dim:
        """The number of columns of all panels."""
        return self.num_full_panels * self.width + self.tail

    @property
    def panels(self) -> list[tuple[int, Dim, Dim]]:
        """The width of panels, the number of the first, and the number behind the last: whole panels, then the tail."""
        runs = [(self.width, 0, self.num_full_panels), (self.tail, self.num_full_panels, self.num_full_panels + 1)]
        return [run for run in runs if run[0] and run[1] != run[2]]

    def packed(self, matrix: NDArray) -> NDArray:
        """Return the panels of a matrix ``(columns, depth)`` of known sizes, in a row."""
        return packed_panels(matrix[int(str(self.first)) :][: int(str(self.size))].T, self.width, self.lanes)


def parts_of(layer: RecurrentLayer, schedule: RecurrenceSchedule, lanes: int) -> list[RecurrentPart]:
    """Return the parts of the gates; for known sizes, the last panel has no more vectors than needed."""
    parts: list[RecurrentPart] = []
    for size, vectors in zip(layer.parts, schedule.panel_vectors, strict=True):
        tail = -(-size // lanes) % vectors * lanes if isinstance(size, int) else 0
        first, first_column = total(part.size for part in parts), total(part.padded for part in parts)
        parts.append(RecurrentPart(first, size, first_column, lanes, vectors * lanes, tail))
    return parts
