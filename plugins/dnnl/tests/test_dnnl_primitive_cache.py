"""Primitives never given back by oneDNN are made once."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from byoc_core.ir import tensor
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.engine import open_engine
from byoc_dnnl.plan import Step
from byoc_dnnl.program import Program

from plugins.dnnl.tests.dnnl_region import NDArray, Region, check_sums, emit, need_avx512

IMAGE = (1, 16, 24, 24)


def _network(op: str = "nn.relu", *, seed: int = 0, padding: int = 1, **attrs: object) -> Region:
    """Return a convolution with a function of each element."""
    region = Region(seed=seed)
    x = region.builder.param("x", tensor(IMAGE))
    value = emit(region, "nn.conv2d", x, region.builder.const(region.draw(32, 16, 3, 3)), padding=(padding,) * 4)
    return region.finish(emit(region, op, value, **attrs))


def _program(region: Region, num_threads: int = 1) -> Program:
    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    (result,) = region.oracle(region.draw(*IMAGE))
    with open_engine().threads(num_threads):
        program = built.program(num_threads, (IMAGE, result.shape))
    assert isinstance(program, Program)
    return program


def _convolution(program: Program) -> object:
    steps = [step for step in program.plan.steps if isinstance(step, Step)]
    (found,) = (p for step, p in zip(steps, program.primitives, strict=True) if step.title.startswith("nn.conv2d"))
    return found


def test_equal_convolutions_are_one_primitive_with_weights_of_their_own() -> None:
    need_avx512()
    regions = [_network(), _network(seed=1)]
    first, second = (_convolution(_program(region)) for region in regions)
    assert first is second
    for region in regions:
        check_sums(region, [region.draw(*IMAGE)], 2 * 144 + 2)


OTHERS: list[Any] = [
    ("nn.leaky_relu", {"alpha": 0.1}),
    ("nn.leaky_relu", {"alpha": 0.2}),
    ("nn.relu", {"padding": 0}),
    ("clip", {"min": 0.0, "max": 1.0}),
    ("clip", {"min": 0.0, "max": 2.0}),
    ("clip", {"min": -1.0, "max": 2.0}),
]


def test_others_have_primitives_of_their_own() -> None:
    need_avx512()
    regions = [_network(), *(_network(op, **attrs) for op, attrs in OTHERS)]
    found = [_convolution(_program(region)) for region in regions]
    found.append(_convolution(_program(regions[0], 2)))
    assert len(set(map(id, found))) == len(regions) + 1
    for region in regions:
        check_sums(region, [region.draw(*IMAGE)], 2 * 144 + 4)


def test_operands_of_post_ops_tell_primitives_apart() -> None:
    need_avx512()

    def added(*shape: int) -> tuple[Region, list[NDArray]]:
        region = Region()
        x, y = region.builder.param("x", tensor(IMAGE)), region.builder.param("y", tensor(shape))
        value = emit(region, "nn.conv2d", x, region.builder.const(region.draw(32, 16, 3, 3)), padding=(1,) * 4)
        region.finish(emit(region, "nn.relu", emit(region, "multiply", value, y)))
        return region, [region.draw(*IMAGE), region.draw(*shape)]

    for shape in ((1, 32, 24, 24), (1, 32, 1, 1), (1, 1, 1, 1), (32, 24, 24)):
        region, inputs = added(*shape)
        check_sums(region, inputs, 2 * 144 + 4)


def _resident_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_programs_that_are_made_anew_take_no_more_memory() -> None:
    need_avx512()

    def make(count: int) -> None:
        for _ in range(count):
            _program(_network())
        gc.collect()

    make(20)
    before = _resident_nbytes()
    make(80)
    assert _resident_nbytes() - before < 1 << 20  # 80 times 50 kB would be 4 MB
