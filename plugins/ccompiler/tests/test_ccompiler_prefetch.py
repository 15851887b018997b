"""Prefetching of weights: while rows meet a panel of weights, every cache line of the next panel is fetched."""

from __future__ import annotations

from collections import Counter
from typing import Any

import byoc_ccompiler.kernel as kernel_module
import numpy as np
import pytest
from byoc_ccompiler.kernels import copies, products, tiles
from byoc_ccompiler.kernels.product_schedules import PanelSchedule, RightOperand
from byoc_ccompiler.vector_unit import VectorUnit
from byoc_core.authoring import c
from byoc_core.dims import symbol
from byoc_core.ir import tensor
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import Bench

UNIT, LINE = VectorUnit(64, 32), 64
NUM_PANELS = 2


def _fetches(num_rows: int, depth: int, schedule: PanelSchedule, *, is_known: bool) -> Counter[int]:
    """Return the fetches of each line of the weights of a product, from a run in the interpreter."""
    kernels: list[c.Function] = []
    offsets = Counter[int]()

    def recorded(function: c.Function, **options: Any) -> c.Function:
        kernels.append(function)
        return c.outline(function, **options)

    def fetch(x: Any, offset: int) -> None:
        offsets[(x.ctypes.data + offset - weights.ctypes.data) // LINE] += 1

    rng, bench = np.random.default_rng(0), Bench()
    columns = NUM_PANELS * schedule.vectors * UNIT.lanes("float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VectorUnit, "of_features", classmethod(lambda cls, machine, features: UNIT))
        patch.setattr(kernel_module, "outline", recorded)
        patch.setattr(products, "choose", lambda p, unit: schedule)
        patch.setattr(copies, "_evaluate", fetch)
        patch.setattr(tiles, "tile_function", tiles.tile_function.__wrapped__)  # not the kept functions
        builder = bench.builder()
        rows = num_rows if is_known else symbol("rows")
        x = builder.param("x", tensor((rows, depth), "float32"))
        factors = rng.standard_normal((depth, columns)).astype("float32")
        bench.add(builder, builder.emit("matmul", x, builder.const(factors)))
        assert bench.module.get_source()
    (kernel,) = kernels
    (constant,) = bench.module.constants.values()
    weights = np.ascontiguousarray(constant).reshape(-1)
    image = rng.standard_normal((num_rows, depth)).astype("float32")
    out = np.zeros(num_rows * columns, "float32")
    arrays = {"x": image.reshape(-1), "weights": weights, "out": out}
    sizes = {} if is_known else {"rows": num_rows}
    c.interpret(kernel, {item: arrays[item.name] for item in kernel.parameters if item.name in arrays}, sizes)
    np.testing.assert_allclose(out.reshape(num_rows, columns), image @ factors, rtol=1e-4, atol=1e-5)
    return offsets


@settings(max_examples=8, deadline=None)
@given(
    num_rows=st.integers(24, 60),
    half=st.integers(9, 15),
    vectors=st.sampled_from([1, 2, 4]),
    chunk=st.integers(24, 40),
    has_parts=st.booleans(),
    is_known=st.booleans(),
)
@example(num_rows=64, half=16, vectors=4, chunk=36, has_parts=False, is_known=True)
@example(num_rows=64, half=16, vectors=4, chunk=36, has_parts=False, is_known=False)
@example(num_rows=58, half=9, vectors=1, chunk=29, has_parts=False, is_known=False)
def test_every_line_of_the_next_panel_is_fetched_while_rows_meet_a_panel(
    num_rows: int, half: int, vectors: int, chunk: int, has_parts: bool, is_known: bool
) -> None:
    depth, depth_block = 2 * half, half if has_parts else None
    schedule = PanelSchedule(RightOperand.CONSTANT, vectors, chunk, 2 * chunk, depth_block, fetches=True)
    panel = depth * vectors
    behind_the_first = set(range(panel, NUM_PANELS * panel))
    # Shares are whole elements: the last line of a part may begin behind the last share.
    last = {panel + part * vectors - 1 for part in (depth, depth_block or depth)}
    counts = _fetches(num_rows, depth, schedule, is_known=is_known)
    assert behind_the_first - last <= set(counts)
    if is_known and not has_parts and num_rows <= 2 * chunk:
        # Only lines at the ends of tiles and of their steps are fetched again.
        assert sum(counts[line] for line in behind_the_first) < 3 * len(behind_the_first)
