"""Recurrent layers: the choice of panels at once, and the order of panels from step to step."""

from __future__ import annotations

import re

import pytest
from byoc_ccompiler.kernels.recurrent_schedule import RecurrentLayer, choose_schedule, offered_schedules
from byoc_ccompiler.vector_unit import NO_VECTORS, VectorUnit
from byoc_core.dims import symbol
from byoc_core.ir import tensor
from hypothesis import given
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import Bench
from plugins.ccompiler.tests.test_ccompiler_recurrence import GATES, draw_inputs, draw_weights

WIDE, NARROW = VectorUnit(64, 32), VectorUnit(32, 16)
OPS = st.sampled_from(sorted(GATES))


def layer_of(op: str, hidden: int) -> RecurrentLayer:
    return RecurrentLayer(op, "float32", 20, 1, 32, hidden, 1)


@given(op=OPS, hidden=st.integers(1, 600))
def test_a_far_matrix_takes_wide_panels_one_by_one(op: str, hidden: int) -> None:
    layer = layer_of(op, hidden)
    chosen = choose_schedule(layer, WIDE)
    is_far = GATES[op] * hidden * hidden * 4 > 48 * 1024
    assert chosen.panels_at_once == ((1,) if is_far and min(chosen.panel_vectors) == 4 else (4, 2, 1))


@given(op=OPS, hidden=st.integers(1, 600), unit=st.sampled_from((NARROW, NO_VECTORS)))
def test_narrow_panels_meet_a_row_together(op: str, hidden: int, unit: VectorUnit) -> None:
    """A single panel of two vectors has too few sums."""
    assert choose_schedule(layer_of(op, hidden), unit).panels_at_once == (4, 2, 1)


def test_a_matrix_of_unknown_size_counts_as_far() -> None:
    layer = RecurrentLayer("nn.lstm", "float32", 20, 1, 32, symbol("h"), 1)
    assert choose_schedule(layer, WIDE).panels_at_once == (1,)


@given(op=OPS, hidden=st.integers(1, 600))
def test_searches_are_offered_each_number_of_panels_at_once(op: str, hidden: int) -> None:
    layer = layer_of(op, hidden)
    chosen = choose_schedule(layer, WIDE)
    offered = {schedule.panels_at_once for schedule in offered_schedules(layer, WIDE, chosen)}
    assert offered >= {(4, 2, 1), (2, 1), (1,)}


@pytest.mark.parametrize("batch", [1, 3])
def test_odd_steps_take_the_panels_of_the_states_in_reverse(bench: Bench, batch: int) -> None:
    """Not so the product of the inputs."""
    hidden, builder = 128, bench.builder()
    arrays = draw_inputs("nn.lstm", 1, (20, batch, 32, hidden), "float32")
    params = [builder.param(f"x{k}", tensor(array.shape)) for k, array in enumerate(arrays)]
    weights = draw_weights("nn.lstm", 1, 32, hidden, "float32")
    bench.add(builder, *builder.emit("nn.lstm", params[0], *weights, *params[1:]))
    turned = re.findall(r"slot % 2 == 1 \?", bench.module.get_source())
    assert len(turned) == 1
