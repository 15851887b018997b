"""Attention and recurrent layers of random sizes: each legal schedule computes the same layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from byoc_ccompiler.kernels import attention, recurrence
from byoc_ccompiler.kernels.attention_layer import AttentionLayer, AttentionSchedule
from byoc_ccompiler.kernels.recurrent_schedule import RecurrenceSchedule, RecurrentLayer
from byoc_ccompiler.vector_unit import VectorUnit
from byoc_core.dims import Dim, symbol
from byoc_core.ir import Function, TensorType, tensor

from plugins.ccompiler.tests import test_ccompiler_attention as attentions
from plugins.ccompiler.tests import test_ccompiler_recurrence as recurrences
from plugins.ccompiler.tests.bench import MEANING, Bench

MARCHES = ("native", "generic")
LAYERS, SCHEDULES = 8, 4
"""Layers of each kind; schedules of each: the chosen schedule, and random schedules."""


def compiled(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, module: Any, drawn: Callable[[Any, VectorUnit, Any], Any]
) -> Iterator[list[Function]]:
    """Compile layers, each as several functions of a bench, under a schedule for each; yield the functions.

    Equal kernels of a source are shared, so the number of kernels of a layer equals the number of obeyed schedules.
    """
    choose, schedules = module.choose_schedule, list[Any]()

    def next_schedule(layer: Any, unit: VectorUnit) -> Any:
        schedule = choose(layer, unit)
        schedules.append(drawn(layer, unit, schedule) if len(schedules) % SCHEDULES else schedule)
        return schedules[-1]

    monkeypatch.setattr(module, "choose_schedule", next_schedule)
    assert bench.module.get_source()
    assert len(schedules) == len(bench.functions)
    for first in range(0, len(schedules), SCHEDULES):
        functions = bench.functions[first:][:SCHEDULES]
        assert len(set(schedules[first:][:SCHEDULES])) >= SCHEDULES - 1
        assert len({tuple(bench.calls(function)) for function in functions}) >= SCHEDULES - 1
        yield functions


def attention_shapes(number: int, steps: Dim, length: Dim) -> list[tuple[Dim, ...]]:
    """Return the shapes of the operands of a layer: plain shapes, and shapes with each kind of mask."""
    batch, groups, share, size, width = np.random.default_rng(number).integers(1, (3, 3, 3, 25, 40)).tolist()
    masks: list[tuple[Dim, ...]] = [(batch, 1, 1, length), (steps, length), (1, groups * share, 1, length)]
    keys = [(batch, groups, length, size), (batch, groups, length, width)]
    return [(batch, groups * share, steps, size), *keys, *masks[number % 4 :][: int(number % 4 < 3)]]


@pytest.mark.parametrize("march", MARCHES)
def test_attention(march: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, bench = np.random.default_rng(7), Bench(march=march, opt_level=MEANING)
    options: list[dict[str, Any]] = [{}, {"softcap": 3.0}, {"causal": True, "offset": 40}, {"scale": 0.5}]
    layers = []
    for number in range(LAYERS):
        steps, length = rng.integers(1, (30, 90)).tolist()
        static_shapes = attention_shapes(number, steps, length)
        shapes = attention_shapes(number, symbol("s"), symbol("t")) if number % 3 == 2 else static_shapes
        types = [TensorType(shape, "float32") for shape in shapes]
        for _ in range(SCHEDULES):
            bench.op("nn.attention", types, **options[number // 2])
        layers.append(
            [rng.standard_normal([int(str(dim)) for dim in shape]).astype(np.float32) for shape in static_shapes]
        )

    def drawn(layer: AttentionLayer, unit: VectorUnit, schedule: AttentionSchedule) -> AttentionSchedule:
        vectors, queries, panels, workers = rng.integers(1, (5, 13, 4, 6)).tolist()
        return AttentionSchedule(
            panel_vectors=vectors,
            queries=queries,
            keys=panels * vectors * unit.lanes(layer.dtype),
            folds_mask=layer.has_mask_of_keys and bool(rng.integers(2)),
            is_on_stack=schedule.is_on_stack and bool(rng.integers(2)),
            workers=workers,
            few_queries=int(rng.choice((0, 40))),
        )

    functions = compiled(bench, monkeypatch, attention, drawn)
    for inputs, schedules in zip(layers, functions, strict=True):
        (oracle,) = bench.reference(schedules[0], *inputs, wide=True)
        for function in schedules:
            (found,) = bench.run(function, *inputs)
            attentions.assert_near(found, oracle, inputs[2], *inputs[1].shape[2:])


@pytest.mark.parametrize("march", MARCHES)
def test_recurrence(march: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, bench = np.random.default_rng(8), Bench(march=march, opt_level=MEANING)
    layers = []
    for number in range(LAYERS):
        op, attrs = recurrences.LAYERS[number % len(recurrences.LAYERS)]
        direction = recurrences.DIRECTIONS[number % 3]
        num_directions, is_dynamic = 1 + (direction == "bidirectional"), number % 4 > 1
        steps, batch, size, hidden = rng.integers(1, (20, 9, 8, 70)).tolist()
        batch = 1 if number % 4 == 3 else batch
        weights = recurrences.draw_weights(op, num_directions, size, hidden, "float32")
        inputs = recurrences.draw_inputs(op, num_directions, (steps, batch, size, hidden), "float32")
        inputs += [recurrences.draw_lengths(steps, batch)] if number % 2 else []
        shapes: list[tuple[Any, ...]] = [array.shape for array in inputs]
        if is_dynamic:
            shapes = [
                ("t", "b", size),
                *(("b",) if len(shape) == 1 else (num_directions, "b", hidden) for shape in shapes[1:]),
            ]
        types = [tensor(shape, str(array.dtype)) for shape, array in zip(shapes, inputs, strict=True)]
        for _ in range(SCHEDULES):
            builder = bench.builder()
            x, *params = (builder.param(f"x{k}", type_) for k, type_ in enumerate(types))
            # Panels of constants are made beforehand, others by each call.
            operands = (
                weights if number % 3 else [builder.param(f"w{k}", tensor(w.shape)) for k, w in enumerate(weights)]
            )
            bench.add(builder, *builder.emit(op, x, *operands, *params, direction=direction, **attrs))
        layers.append(inputs if number % 3 else [*inputs, *weights])

    def drawn(layer: RecurrentLayer, unit: VectorUnit, schedule: RecurrenceSchedule) -> RecurrenceSchedule:
        steps, lines = rng.integers(1, (25, 9)).tolist()
        return replace(
            schedule,
            panel_vectors=tuple(rng.integers(1, 5, len(layer.parts)).tolist()),
            panels_at_once=((1,), (2, 1), (3, 2, 1))[int(rng.integers(3))],
            steps_at_once=steps,
            lines_at_once=lines,
        )

    functions = compiled(bench, monkeypatch, recurrence, drawn)
    for inputs, schedules in zip(layers, functions, strict=True):
        oracles = bench.reference(schedules[0], *inputs, wide=True)
        for function in schedules:
            for found, oracle in zip(bench.run(function, *inputs), oracles, strict=True):
                recurrences.assert_near(found, oracle)
