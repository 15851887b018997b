"""Checks: conditions ending a run, and the reference kernels afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.ir import Var, tensor
from byoc_core.runtime.threads import num_threads
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.plan import Check, Kind, Plan, Step
from byoc_dnnl.program import Program

from plugins.dnnl.tests.dnnl_region import Region


def _product_and_sum() -> tuple[Region, BuiltRegion]:
    """Return a region of two steps, the first of them writing to the arena."""
    region = Region()
    x = region.builder.param("x", tensor((5, 6)))
    product = region.builder.emit("nn.dense", x, region.builder.const(region.draw(7, 6)))
    assert isinstance(product, Var)
    total = region.builder.emit("nn.softmax", product, axis=1)
    assert isinstance(total, Var)
    region.finish(total)
    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    return region, built


def _with_check(built: BuiltRegion, kind: Kind, limit: float) -> Program:
    """Return the region's program with a check of the first step's operand, or of the step's result."""
    program = built.program(num_threads(), ((5, 6), (5, 7)))
    assert isinstance(program, Program)
    first, *others = program.plan.steps
    assert isinstance(first, Step)
    (place,) = {place.buffer: place for place in first.locations if place.buffer.kind is kind}.values()
    steps = [first, Check("a test", place, limit), *others]
    return Program(program.engine, Plan(steps, program.plan.packings), built._constants)


@pytest.mark.parametrize("kind", [Kind.ARGUMENT, Kind.ARENA])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_a_check_holds_for_what_is_within_its_limit(kind: Kind, value: float) -> None:
    region, built = _product_and_sum()
    program = _with_check(built, kind, 1e20)
    x, out = region.draw(5, 6), np.empty((5, 7), np.float32)
    assert program(x, out)
    np.testing.assert_array_equal(out, region.run(x)[0])
    x[3, 2] = value
    assert not program(x, out)
    assert "check for a test  %" in str(program.plan)
    assert " within 1e+20" in str(program.plan)


def test_a_region_whose_check_does_not_hold_gives_what_the_reference_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    region, built = _product_and_sum()
    program = _with_check(built, Kind.ARENA, 1e20)
    monkeypatch.setattr(built, "_make", lambda number, sizes: program)
    monkeypatch.setattr(built, "_cached_programs", {})
    x = region.draw(5, 6)
    x[3, 2] = 1e30
    exact = np.empty((5, 7), np.float32)
    built.reference(x, exact)
    np.testing.assert_array_equal(region.run(x)[0], exact)
