"""Schedules of convolutions: every legal schedule computes the nest of the convolution; others are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Any

import byoc_ccompiler.backend as ccompiler
import numpy as np
import pytest
from byoc_ccompiler.kernels import conv2d
from byoc_ccompiler.kernels.conv2d import LoopSchedule
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.depthwise_blocks import DepthwiseSchedule
from byoc_ccompiler.kernels.pixel_schedule import PixelSchedule
from byoc_ccompiler.kernels.winograd_plan import WinogradSchedule
from byoc_ccompiler.regions import prepare
from byoc_ccompiler.steps import Step
from byoc_ccompiler.vector_unit import VectorUnit
from byoc_core.authoring import c
from byoc_core.backend.info import CompileContext
from byoc_core.errors import InternalError
from byoc_core.ir import Function, tensor
from byoc_core.native.toolchain import find_toolchain
from byoc_core.runtime.module import NDArray
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import MEANING, Bench, sizes_of
from plugins.ccompiler.tests.winograd_errors import error_bound

NUM_EXAMPLES = 40
KINDS = (PixelSchedule, LoopSchedule, WinogradSchedule, DepthwiseSchedule)


@dataclass(frozen=True)
class Case:
    """A convolution, its schedule, and a filter other than a parameter."""

    function: Function
    schedule: Any
    weight: NDArray | None

    @property
    def geometry(self) -> ConvolutionGeometry:
        return ConvolutionGeometry.of_step(Step(self.function.bindings[0], self.function.bindings[0].operands))


def _whole_numbers(shape: Sequence[int], dtype: str, seed: int) -> NDArray:
    """Return small whole numbers: sums of their products are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def _unit(march: str) -> VectorUnit:
    target = find_toolchain().target(march)
    return VectorUnit.of_features(target.machine, target.features)


def _draw_convolution(rng: Random, bench: Bench, kind: type, lanes: int) -> tuple[Function, NDArray | None]:
    """Return a float64 convolution suitable for a kind of schedule, and its filter if constant."""
    number = rng.randint
    groups, channels, out_channels = number(1, 2), number(1, 4), number(1, 5)
    taps, strides, dilation = [number(1, 3), number(1, 3)], (number(1, 3), number(1, 2)), (number(1, 2), number(1, 2))
    if kind is WinogradSchedule:
        groups, channels, taps, strides, dilation = 1, number(lanes, lanes + 2), [3, 3], (1, 1), (1, 1)
    if kind is DepthwiseSchedule:
        channels = out_channels = rng.choice([size for size in (1, 2, 4, 8) if lanes % size == 0])
        groups = number(max(2, lanes // channels), 2 * lanes // channels + 1)
    padding = tuple(number(0, 2) for _ in range(4))
    window = [(tap - 1) * apart + 1 for tap, apart in zip(taps, dilation, strict=True)]
    least = [max(1, size - padding[axis] - padding[axis + 2]) for axis, size in enumerate(window)]
    # Blocks of a depthwise convolution lie inside the image or at its border.
    spare = 6 if kind is DepthwiseSchedule else 3
    image = [number(1, 2), *(number(size, size + spare) for size in least), groups * channels]
    layout = "NCHW" if kind is LoopSchedule and rng.random() < 0.5 else "NHWC"
    kernel_layout = rng.choice(["OIHW", "HWIO", "IOHW"])
    sizes = {"O": groups * out_channels, "I": channels, "H": taps[0], "W": taps[1]}
    weight = _whole_numbers([sizes[axis] for axis in kernel_layout], "float64", number(0, 99))
    needs_constant = kind is WinogradSchedule or (kind is DepthwiseSchedule and channels > 1)
    is_constant = needs_constant or rng.random() < 0.5
    builder = bench.builder()
    x = builder.param("x", tensor([image["NHWC".index(axis)] for axis in layout], "float64"))
    w = builder.const(weight) if is_constant else builder.param("w", tensor(weight.shape, "float64"))
    attrs = {"strides": strides, "dilation": dilation, "padding": padding, "groups": groups}
    result = builder.emit("nn.conv2d", x, w, **attrs, data_layout=layout, kernel_layout=kernel_layout)
    return bench.add(builder, result), weight if is_constant else None


def _draw_schedule(rng: Random, kind: type, geometry: ConvolutionGeometry, lanes: int) -> Any:
    """Return a legal schedule of a kind."""
    number = rng.randint
    if kind is LoopSchedule:
        return LoopSchedule(number(1, 9))
    if kind is DepthwiseSchedule:
        channels = geometry.channels
        chunks = [size for size in range(lanes, 3 * lanes + 1, lanes) if size >= channels or channels % size == 0]
        chunks += [size for size in range(lanes, channels, lanes) if channels % size >= lanes]
        return DepthwiseSchedule(number(1, 3), number(1, 4), rng.choice(chunks))
    if kind is WinogradSchedule:
        num_outputs, rows, blocks = rng.choice([2, 4]), number(1, 4), number(1, 3)
        down, right = (-(-int(str(size)) // num_outputs) for size in (geometry.out_height, geometry.out_width))
        is_one_round = int(str(geometry.batch)) * down * right <= rows * blocks
        parts: Any = rng.choice(["blocks", "pairs", "panels"] if is_one_round else ["blocks", "pairs"])
        return WinogradSchedule(num_outputs, rows, number(1, 2), blocks, parts)
    copies = (geometry.joins_lines and geometry.is_padded) or rng.random() < 0.5
    has_depth_blocks = not copies and geometry.groups == 1 and rng.random() < 0.5
    depth_block = number(1, geometry.run_size) if has_depth_blocks else None
    return PixelSchedule(number(1, 6), number(1, 3), copies, rng.random() < 0.5, depth_block)


def _drawn(bench: Bench, lanes: int) -> list[Case]:
    cases: list[Case] = []

    @settings(max_examples=NUM_EXAMPLES, deadline=None, database=None, derandomize=True)
    @given(st.randoms(use_true_random=True))
    def collect(rng: Random) -> None:
        kind = KINDS[len(cases) % len(KINDS)]
        function, weight = _draw_convolution(rng, bench, kind, lanes)
        geometry = Case(function, None, weight).geometry
        cases.append(Case(function, _draw_schedule(rng, kind, geometry, lanes), weight))

    collect()
    return cases


def _interpreted(case: Case, image: NDArray, weight: NDArray) -> NDArray:
    """Return the results of the nest of a convolution."""
    dtype, result = str(image.dtype), np.zeros(sizes_of(case.function.results[0]), image.dtype)
    x, w, out = c.Buffer("x", dtype), c.Buffer("w", dtype), c.Buffer("out", dtype, c.MemoryAccess.WRITE)
    function = c.verify(c.Function("convolution", (x, w, out), c.lower_nest(case.geometry.nest(x, w, out))))
    c.interpret(function, {x: image.reshape(-1), w: weight.reshape(-1), out: result.reshape(-1)})
    return result


@pytest.mark.parametrize("march", ["generic", "native"])
def test_legal_schedules_compute_what_the_nest_says(monkeypatch: pytest.MonkeyPatch, march: str) -> None:
    for form in ("skip_padding", "repeat_channels"):  # schedules are drawn for the convolutions as they are
        monkeypatch.setattr(prepare, form, lambda module: module)
    bench, lanes = Bench(march=march, opt_level=MEANING), _unit(march).lanes("float64")
    cases = _drawn(bench, lanes)
    schedules = iter([case.schedule for case in cases])
    monkeypatch.setattr(conv2d, "choose_schedule", lambda kernel: next(schedules))
    source = bench.module.get_source()
    assert next(schedules, None) is None
    counts = Counter(type(case.schedule) for case in cases)
    assert all(counts[kind] >= NUM_EXAMPLES // 10 for kind in KINDS), counts
    assert len({case.schedule for case in cases}) > NUM_EXAMPLES // 2
    for name in ("windows_f64_", "depthwise_inside", "depthwise_border", "winograd_output_2", "winograd_output_4"):
        assert name in source
    for case in cases:
        shapes = [sizes_of(operand) for operand in case.function.bindings[0].operands]
        image = _whole_numbers(shapes[0], "float64", 1)
        weight = _whole_numbers(shapes[1], "float64", 2) if case.weight is None else case.weight
        inputs = [image, weight][: len(case.function.params)]
        (actual,), expected = bench.run(case.function, *inputs), _interpreted(case, image, weight)
        np.testing.assert_array_equal(expected, bench.reference(case.function, *inputs)[0])
        if isinstance(case.schedule, WinogradSchedule) and case.schedule.num_outputs == 4:
            # Not all factors are binary fractions.
            filters = weight.transpose(case.geometry.weight_axes)
            bound = error_bound(image, filters, case.geometry.padding, 4)
            assert np.all(np.abs(actual - expected) <= bound), case.schedule
        else:
            np.testing.assert_array_equal(actual, expected, err_msg=str(case.schedule))


PIXELS, WINDOWS, LINES, WIDE = (1, 4, 4, 32), (1, 6, 6, 32), (1, 6, 6, 3), ("n", 6, 6, 32)


@pytest.mark.parametrize(
    ("image", "weight", "attrs", "schedule", "problem"),
    [
        (PIXELS, (8, 32, 1, 1), {}, LoopSchedule(0), "has a stretch below 1"),
        (PIXELS, (8, 32, 1, 1), {}, PixelSchedule(0, 1), "has empty tiles"),
        (PIXELS, (8, 32, 2, 2), {}, PixelSchedule(1 << 12, 1), "has too many pointers"),
        (LINES, (8, 3, 3, 3), {"padding": (1, 1)}, PixelSchedule(4, 1), "needs a copy of the image"),
        (PIXELS, (8, 16, 1, 1), {"groups": 2}, PixelSchedule(4, 1, depth_block=4), "divides the depth of a panel"),
        (WIDE, (8, 32, 1, 1), {}, PixelSchedule(4, 1, depth_block=4), "has too many pointers"),
        (WINDOWS, (8, 32, 3, 3), {"strides": (2, 2)}, WinogradSchedule(2, 1, 1), "does not fit the convolution"),
        (WINDOWS, (8, 32, 3, 3), {}, WinogradSchedule(3, 1, 1), "does not fit the convolution"),
        (WINDOWS, (8, 32, 3, 3), {}, WinogradSchedule(2, 1, 1, 0), "does not fit the convolution"),
        (WINDOWS, (8, 32, 3, 3), {}, WinogradSchedule(2, 1, 1, 3, "panels"), "has several rounds"),
        (WINDOWS, (8, 32, 3, 3), {}, WinogradSchedule(2, 1, 1), "needs a constant filter"),
        (WINDOWS, (8, 32, 3, 3), {}, DepthwiseSchedule(1, 1, 32), "at least a vector of channels"),
        (WINDOWS, (32, 1, 3, 3), {"groups": 32}, DepthwiseSchedule(1, 1, 31), "blocks of full vectors"),
        (WINDOWS, (32, 1, 3, 3), {"groups": 32}, DepthwiseSchedule(1, 0, 32), "blocks of full vectors"),
    ],
)
def test_other_schedules_are_refused(
    monkeypatch: pytest.MonkeyPatch, image: Any, weight: Any, attrs: dict[str, Any], schedule: Any, problem: str
) -> None:
    bench = Bench()
    bench.op("nn.conv2d", [tensor(image), tensor(weight)], data_layout="NHWC", **attrs)
    monkeypatch.setattr(conv2d, "choose_schedule", lambda kernel: schedule)
    with pytest.raises(InternalError, match=f"schedule: .*{problem}"):
        bench.module.get_source()


@pytest.mark.parametrize(
    ("op", "image", "weight", "attrs", "kind"),
    [
        ("nn.conv2d", (1, 8, 8, 32), (8, 32, 1, 1), {}, PixelSchedule),
        ("nn.conv2d", (1, 56, 56, 64), (64, 64, 3, 3), {"padding": (1, 1)}, WinogradSchedule),
        ("nn.conv2d", (1, 8, 8, 32), (32, 1, 3, 3), {"groups": 32}, DepthwiseSchedule),
        ("nn.conv2d_transpose", (1, 8, 8, 2), (2, 3, 3, 3), {"groups": 2}, LoopSchedule),
    ],
)
def test_reports_tell_the_schedule_that_was_chosen(
    op: str, image: Any, weight: Any, attrs: dict[str, Any], kind: Any
) -> None:
    bench = Bench()
    builder = bench.builder()
    x, w = builder.param("x", tensor(image)), builder.const(_whole_numbers(weight, "float32", 1))
    function = bench.add(builder, builder.emit(op, x, w, data_layout="NHWC", **attrs))
    context = CompileContext("ccompiler", bench.options, bench.constants)
    reports = ccompiler.byoc_generated_kernels([function], context)
    (schedule,) = (report.schedule for report in reports if report.schedule)
    assert [*schedule] == [item.name for item in fields(kind)]
