"""Kernels made of nests compute the same under the chosen schedule and under any legal schedule."""

from __future__ import annotations

import random
from typing import Any

import byoc_ccompiler.kernel as kernel_module
import numpy as np
import pytest
from byoc_core.authoring.c import Block, Buffer, Function, Nest, Schedule, interpret, lower_nest, outline, verify
from byoc_core.dtypes import to_numpy
from byoc_core.ir import tensor
from byoc_core.runtime.csource import CSourceModule

from plugins.ccompiler.tests.bench import Bench, NDArray

CASES: list[tuple[str, list[tuple[int, ...]], dict[str, object]]] = [
    ("add", [(37,), (37,)], {}),
    ("multiply", [(3, 1, 5), (4, 1)], {}),
    ("nn.batch_norm", [(2, 3, 2, 5), (3,), (3,), (3,), (3,)], {}),
    ("permute_dims", [(3, 4, 5)], {"axes": (1, 0, 2)}),
    ("strided_slice", [(5, 6, 7)], {"axes": (0, 2), "begin": (4, 1), "end": (0, 7), "strides": (-2, 2)}),
    ("flip", [(2, 3, 4)], {"axis": 1}),
    ("tile", [(2, 3)], {"repeats": (3, 2)}),
    ("depth_to_space", [(2, 8, 3, 2)], {"block_size": 2}),
    ("nn.pad", [(2, 3, 4)], {"pad_width": (0, 1, 1, 0, 2, 1)}),
    ("nn.max_pool2d", [(2, 2, 6, 35)], {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}),
    ("nn.avg_pool2d", [(1, 3, 7, 5)], {"pool_size": (3, 2), "padding": (1, 0, 1, 1)}),
    ("nn.avg_pool2d", [(2, 4, 5, 3)], {"pool_size": (2, 2), "padding": (1, 1, 0, 0), "layout": "NHWC"}),
    ("nn.max_pool2d", [(1, 4, 5, 300)], {"pool_size": (2, 3), "layout": "NHWC"}),
    ("nn.adaptive_avg_pool2d", [(2, 5, 6, 3)], {"output_size": (2, 3), "layout": "NHWC"}),
]

SCRATCH_ELEMENTS = 999


def _any_schedule(nest: Nest, rng: random.Random) -> Schedule:
    """Return a legal schedule of a nest without reductions."""
    names = [axis.name for axis in nest.axes]
    tiles = {name: rng.choice([1, 2, 3, 5]) for name in names if rng.random() < 0.5}
    loops = [*names, *(f"{name}.tile" for name in tiles)]
    rng.shuffle(loops)
    order = sorted(loops, key=lambda name: not name.endswith(".tile"))
    first = rng.randint(0, len(order))
    parallel = tuple(order[first : first + rng.randint(0, 2)])
    vector = order[-1] if order and order[-1] not in parallel else None
    return Schedule(tiles, tuple(order), parallel, vector, grain=rng.randint(1, 3))


def _computed(function: Function, inputs: list[NDArray], size: int, rng: random.Random) -> NDArray:
    """Return the interpreter's results: the inputs come first, then the result, scratch memory last."""
    buffers = [item for item in function.parameters if isinstance(item, Buffer)]
    arrays = [array.reshape(-1).copy() for array in inputs]
    arrays += [np.full(size, 77, to_numpy(item.dtype)) for item in buffers[len(inputs) : len(inputs) + 1]]
    arrays += [np.full(SCRATCH_ELEMENTS, 77, to_numpy(item.dtype)) for item in buffers[len(inputs) + 1 :]]
    interpret(verify(function), dict(zip(buffers, arrays, strict=True)), order=rng)
    return arrays[len(inputs)]


@pytest.mark.parametrize(("op", "shapes", "attrs"), CASES, ids=lambda item: item if isinstance(item, str) else "")
def test_any_legal_schedule_computes_the_bits_of_the_chosen_one(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    functions: list[Function] = []
    schedules: list[Schedule] = []
    rng = random.Random(0)
    is_chosen = True

    def lowered(nest: Nest, schedule: Schedule) -> Block:
        schedules.append(schedule)
        return lower_nest(nest, schedule if is_chosen else _any_schedule(nest, rng))

    def recorded(function: Function, **options: Any) -> Function:
        functions.append(function)
        return outline(function, **options)

    monkeypatch.setattr(kernel_module, "lower_nest", lowered)
    monkeypatch.setattr(kernel_module, "outline", recorded)
    monkeypatch.setattr(CSourceModule, "build", lambda module: None)
    data = np.random.default_rng(3)
    inputs: list[NDArray] = [data.uniform(0.5, 2, shape).astype(np.float32) for shape in shapes]
    results = []
    for number in range(8):
        is_chosen = number == 0
        bench = Bench(march="generic")
        function = bench.op(op, [tensor(shape, "float32") for shape in shapes], **attrs)
        assert bench.module.get_source()
        (expected,) = bench.reference(function, *inputs)
        found = _computed(functions[-1], inputs, expected.size, rng)
        results.append(found.tobytes())
        if is_chosen:
            np.testing.assert_allclose(found, expected.reshape(-1), rtol=1e-5)
    assert schedules
    assert set(results) == {results[0]}
