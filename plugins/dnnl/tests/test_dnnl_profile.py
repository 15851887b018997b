"""Profiles: named steps, shapes, and texts; never durations."""

from __future__ import annotations

import re
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import CallError
from byoc_core.ir import tensor
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.plan import Step
from byoc_dnnl.profile import profile
from byoc_dnnl.program import Program

from plugins.dnnl.tests.dnnl_region import Region, emit


def network(rows: int | str) -> tuple[Region, byoc_core.Executable]:
    """Return a product with bias, and a follower."""
    region = Region()
    x = region.builder.param("x", tensor((rows, 64)))
    value = emit(region, "nn.dense", x, region.builder.const(region.draw(64, 64)))
    value = emit(region, "nn.bias_add", value, region.builder.const(region.draw(64)))
    region.finish(emit(region, "nn.softmax", value, axis=1))
    return region, byoc_core.build(region.ir, backends=["dnnl"], fallback="error")


def test_every_step_of_the_program_has_a_time() -> None:
    region, executable = network(8)
    found = profile(executable, {"x": region.draw(8, 64)}, function="f", num_calls=3, num_threads=1)
    (times,) = found.regions
    (name,) = executable.modules[0].function_names
    built = executable.modules[0].get_function(name).impl
    assert isinstance(built, BuiltRegion)
    program = built.program(1, ((8, 64), (8, 64)))
    assert isinstance(program, Program)
    assert (times.name, times.num_threads, times.shapes, times.num_calls) == (name, 1, ((8, 64),), 3)
    assert [str(step) for step in times.steps] == [str(step) for step in program.plan.steps]
    expected = [step.desc.implementation for step in program.plan.steps if isinstance(step, Step)]
    assert [step.implementation for step in times.steps if step.implementation] == expected
    product = next(step for step in times.steps if "nn.dense" in step.title)
    assert (product.shapes[0], product.shapes[-1]) == ((8, 64), (8, 64))
    assert all(step.seconds > 0 for step in times.steps)
    assert times.seconds == sum(step.seconds for step in times.steps)


def test_the_text_names_region_shapes_ops_implementations_and_layouts() -> None:
    region, executable = network(8)
    text = str(profile(executable, {"x": region.draw(8, 64)}, function="f", num_calls=2, num_threads=1))
    first, *others = text.splitlines()
    (name,) = executable.modules[0].function_names
    assert re.fullmatch(rf"{name}  \[8, 64\], 1 thread: \d+\.\d{{3}} ms in each of 2 calls", first)
    assert all(re.match(r" +\d+\.\d{4} ms +\d+\.\d% ", line) for line in others)
    assert sum(bool(re.search(r"nn\.dense \+ nn\.bias_add  (brg|gemm):", line)) for line in others) == 1
    assert re.search(r"nn\.softmax  jit:\S+  %\d+:ab, %\d+:ab$", others[-2])
    assert others[-1].endswith("check for nn.softmax  %5:ab within 2")


def test_each_shape_is_a_region_of_its_own_and_kernels_are_named() -> None:
    region, executable = network("n")
    for rows, count in ((3, 1), (5, 1), (0, 1)):
        (times,) = profile(executable, {"x": region.draw(rows, 64)}, function="f", num_calls=count).regions
        assert times.shapes == ((rows, 64),)
        assert (times.steps[0].title == "numpy's kernels") == (rows == 0)


def test_a_profiled_call_computes_what_any_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    region, executable = network(8)
    x = region.draw(8, 64)
    results: list[Any] = []
    run = byoc_core.VirtualMachine.run

    def keep(machine: byoc_core.VirtualMachine, *arguments: object, **options: object) -> object:
        results.append(run(machine, *arguments, **options))  # type: ignore[arg-type]
        return results[-1]

    monkeypatch.setattr(byoc_core.VirtualMachine, "run", keep)
    profile(executable, {"x": x}, function="f", num_calls=2)
    monkeypatch.undo()
    expected = byoc_core.VirtualMachine(executable)["f"](x)
    assert len(results) == 3
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_a_model_without_dnnl_has_an_empty_profile() -> None:
    region, _ = network(8)
    executable = byoc_core.build(region.ir, backends=[])
    assert profile(executable, {"x": region.draw(8, 64)}, function="f", num_calls=1).regions == ()


def test_no_calls_are_refused() -> None:
    region, executable = network(8)
    with pytest.raises(CallError) as caught:
        profile(executable, {"x": region.draw(8, 64)}, function="f", num_calls=0)
    assert str(caught.value) == "profile: needs a timed call; got 0, expected 1 or more"
