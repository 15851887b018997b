"""Winograd convolution: the matrices, the choice, and results within a bound from the matrices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_ccompiler.kernels import winograd
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.winograd import input_function, output_function
from byoc_ccompiler.kernels.winograd_plan import WinogradPlan, WinogradSchedule, choose_plan, make_plan, minimal_filter
from byoc_ccompiler.vector_unit import VectorUnit
from byoc_core.authoring.c import interpret, verify
from byoc_core.ir import Function, tensor
from byoc_core.runtime.module import NDArray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import Bench
from plugins.ccompiler.tests.winograd_errors import error_bound

AVX512 = VectorUnit(64, 32)


def _random(shape: int | Sequence[int], dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _correlate(image: NDArray, weight: NDArray, padding: tuple[int, int, int, int]) -> Any:
    """Return the convolution of (N, H, W, C) with (O, C, 3, 3) in float64."""
    top, left, bottom, right = padding
    padded = np.pad(image.astype("float64"), ((0, 0), (top, bottom), (left, right), (0, 0)))
    height, width = padded.shape[1] - 2, padded.shape[2] - 2
    taps = weight.astype("float64")
    return sum(
        padded[:, down : down + height, right : right + width] @ taps[:, :, down, right].T
        for down in range(3)
        for right in range(3)
    )


@pytest.fixture
def force(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let all suitable convolutions be computed with tiles of the given number of outputs, at any cost."""

    def force(num_outputs: int) -> None:
        def choose(geometry: ConvolutionGeometry, unit: VectorUnit, option: str) -> WinogradPlan:
            return make_plan(geometry, unit, num_outputs)

        monkeypatch.setattr(winograd, "choose_plan", choose)

    return force


def _add(
    bench: Bench, x: Sequence[int | str], weight: NDArray, padding: tuple[int, ...], layout: str = "OIHW"
) -> Function:
    builder = bench.builder()
    image = builder.param("x", tensor(x, str(weight.dtype)))
    kernel = builder.const(np.ascontiguousarray(weight.transpose(["OIHW".index(axis) for axis in layout])))
    attrs = {"data_layout": "NHWC", "kernel_layout": layout, "padding": padding}
    result: Function = bench.add(builder, builder.emit("nn.conv2d", image, kernel, **attrs))
    return result


@pytest.mark.parametrize("num_outputs", [2, 4])
@given(inputs=st.lists(st.integers(-9, 9), min_size=6, max_size=6), taps=st.lists(st.integers(-9, 9), min_size=3))
def test_the_matrices_compute_a_filter(num_outputs: int, inputs: list[int], taps: list[int]) -> None:
    algorithm = minimal_filter(num_outputs)
    d, g = np.array(inputs[: algorithm.num_inputs], "float64"), np.array(taps[:3], "float64")
    products = (algorithm.taps @ g) * (algorithm.inputs @ d)
    expected = [d[index : index + 3] @ g for index in range(num_outputs)]
    magnitude = np.abs(algorithm.outputs) @ (
        (np.abs(algorithm.taps) @ np.abs(g)) * (np.abs(algorithm.inputs) @ np.abs(d))
    )
    assert np.all(np.abs(algorithm.outputs @ products - expected) <= 20 * 2.0**-53 * magnitude)


@pytest.mark.parametrize("num_outputs", [2, 4])
def test_what_is_multiplied_by_at_run_time_is_exact_in_float32(num_outputs: int) -> None:
    algorithm = minimal_filter(num_outputs)
    for matrix in (algorithm.inputs, algorithm.outputs):
        np.testing.assert_array_equal(matrix, matrix.astype("float32"))


@pytest.mark.parametrize("num_outputs", [2, 4])
def test_the_functions_apply_the_matrices(num_outputs: int) -> None:
    plan = WinogradPlan(_geometry(9, 11, 20), VectorUnit(16, 16), WinogradSchedule(num_outputs, rows=1, vectors=2))
    algorithm, num, rng = plan.algorithm, plan.algorithm.num_inputs, np.random.default_rng(0)
    pixels, points = rng.standard_normal((num, num, 11), np.float32), np.zeros(num**2 * plan.row_step, np.float32)
    at = np.empty(num**2, object)
    at[:] = list(pixels.reshape(-1, 11))
    transform = verify(input_function(plan))
    interpret(transform, dict(zip(transform.parameters, (at, points), strict=True)))
    found = points.reshape(num, num, plan.row_step)[..., :11]
    np.testing.assert_allclose(
        found, np.einsum("ai,ijc,bj->abc", algorithm.inputs, pixels, algorithm.inputs), atol=1e-4
    )
    products, sums = (
        rng.standard_normal((num, num, plan.width), np.float32),
        np.zeros(num_outputs**2 * plan.width, "f4"),
    )
    back = verify(output_function(plan, plan.width))
    interpret(back, dict(zip(back.parameters, (products.reshape(-1), sums), strict=True)))
    expected = np.einsum("ya,abc,xb->yxc", algorithm.outputs, products, algorithm.outputs)
    np.testing.assert_allclose(sums.reshape(expected.shape), expected, atol=1e-3)


CASES: dict[str, tuple[Any, int, tuple[int, int, int, int]]] = {
    "one output": ((1, 3, 3, 17), 5, (0, 0, 0, 0)),
    "one pixel": ((2, 1, 1, 16), 16, (1, 1, 1, 1)),
    "primes": ((3, 13, 11, 19), 37, (1, 1, 1, 1)),
    "not padded": ((1, 12, 10, 33), 70, (0, 0, 0, 0)),
    "uneven padding": ((1, 9, 14, 16), 48, (0, 1, 2, 1)),
    "padding beyond the filter": ((1, 4, 5, 16), 8, (5, 4, 3, 6)),
    "several rounds": ((2, 30, 30, 40), 3, (1, 1, 1, 1)),
    "channels of a power of two": ((1, 8, 8, 256), 20, (1, 1, 1, 1)),
    "long sums": ((1, 5, 6, 1030), 17, (1, 1, 1, 1)),
    "one output channel": ((1, 7, 7, 31), 1, (1, 1, 1, 1)),
    "several panels": ((1, 17, 17, 20), 150, (1, 1, 1, 1)),
    "many panels": ((2, 5, 4, 16), 600, (1, 1, 1, 1)),
    "many blocks": ((1, 61, 62, 20), 36, (1, 1, 1, 1)),
    "empty batch": ((0, 7, 7, 16), 4, (1, 1, 1, 1)),
}


@pytest.mark.parametrize("num_outputs", [2, 4])
def test_the_cases_have_all_forms(num_outputs: int) -> None:
    plans = [
        make_plan(
            replace(
                _geometry(1, shape[3], out),
                batch=shape[0],
                out_height=shape[1] + padding[0] + padding[2] - 2,
                out_width=shape[2] + padding[1] + padding[3] - 2,
            ),
            AVX512,
            num_outputs,
        )
        for shape, out, padding in CASES.values()
    ]
    assert {plan.parts for plan in plans} == {"blocks", "panels", "pairs"}
    # Panels with a block that has fewer tiles, and parts of several panels and of several blocks.
    assert any(plan.parts == "panels" and plan.num_tiles % plan.rows != 0 for plan in plans)
    assert any(plan.parts == "panels" and plan.grain not in (0, 1) for plan in plans)
    assert any(plan.parts == "blocks" and plan.grain not in (0, 1) for plan in plans)


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("num_outputs", [2, 4])
def test_geometries(force: Callable[[int], None], num_outputs: int, dtype: str, march: str) -> None:
    force(num_outputs)
    bench = Bench(march=march)
    weights = [_random((out, shape[3], 3, 3), dtype, 1) for shape, out, _ in CASES.values()]
    layouts = ["OIHW", "IOHW", "HWIO"] * len(CASES)
    functions = [
        _add(bench, shape, weight, padding, layout)
        for (shape, _, padding), weight, layout in zip(CASES.values(), weights, layouts, strict=False)
    ]
    assert bench.module.get_source().count(f"winograd_output_{num_outputs}") >= len(CASES)
    for function, weight, (shape, _, padding) in zip(functions, weights, CASES.values(), strict=True):
        image = _random(shape, dtype)
        (actual,) = bench.run(function, image)
        error = np.abs(actual.astype("float64") - _correlate(image, weight, padding))
        assert np.all(error <= error_bound(image, weight, padding, num_outputs))


def test_images_of_any_size(module_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    paddings = [(1, 1, 1, 1), (0, 2, 1, 0)]
    weight = _random((21, 18, 3, 3), seed=1)
    cases = []
    for num_outputs in (2, 4):
        with monkeypatch.context() as patch:
            patch.setattr(winograd, "choose_plan", lambda g, unit, option, m=num_outputs: make_plan(g, unit, m))
            bench = type(module_bench)()
            cases += [(bench, num_outputs, p, _add(bench, ("n", "h", "w", 18), weight, p)) for p in paddings]
            assert "winograd" in bench.module.get_source()

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(cases), st.integers(0, 3), st.integers(2, 21), st.integers(2, 21), st.integers(0, 99))
    def check(
        form: tuple[Bench, int, tuple[int, int, int, int], Function], batch: int, height: int, width: int, seed: int
    ) -> None:
        bench, num_outputs, padding, function = form
        image = _random((batch, height, width, 18), seed=seed)
        (actual,) = bench.run(function, image)
        error = np.abs(actual.astype("float64") - _correlate(image, weight, padding))
        assert np.all(error <= error_bound(image, weight, padding, num_outputs))

    check()


@pytest.mark.parametrize(("num_outputs", "limit"), [(2, 1e-6), (4, 4e-6)])
def test_the_stated_error(bench: Bench, force: Callable[[int], None], num_outputs: int, limit: float) -> None:
    force(num_outputs)
    cases = [((1, 28, 28, 64), 64), ((1, 14, 14, 256), 64), ((1, 14, 14, 512), 32)]
    functions = [_add(bench, shape, _random((out, shape[3], 3, 3), seed=1), (1, 1, 1, 1)) for shape, out in cases]
    for function, (shape, out) in zip(functions, cases, strict=True):
        image = np.maximum(_random(shape), 0)
        expected = _correlate(image, _random((out, shape[3], 3, 3), seed=1), (1, 1, 1, 1))
        (actual,) = bench.run(function, image)
        assert np.abs(actual - expected).max() <= limit * np.abs(expected).max()


def test_what_follows_is_computed_on_the_pixels(bench: Bench, force: Callable[[int], None]) -> None:
    force(4)
    builder = bench.builder()
    x, other = builder.param("x", tensor((2, 9, 10, 32))), builder.param("other", tensor((2, 9, 10, 40)))
    attrs = {"data_layout": "NHWC", "padding": (1, 1)}
    sums = builder.emit("nn.conv2d", x, builder.const(_random((40, 32, 3, 3), seed=1)), **attrs)
    biased = builder.emit("nn.bias_add", sums, builder.const(_random(40, seed=2)), axis=3)
    result = builder.emit("nn.relu", builder.emit("add", biased, other))
    function = bench.add(builder, sums, result)
    image, residual = _random((2, 9, 10, 32)), _random((2, 9, 10, 40), seed=3)
    plain, actual = bench.run(function, image, residual)
    np.testing.assert_array_equal(actual, np.maximum(plain + _random(40, seed=2) + residual, 0))
    assert re.findall(r"/\* (nn\..*) \*/", bench.module.get_source()) == ["nn.conv2d, nn.bias_add, add, nn.relu"]
    expected = _correlate(image, _random((40, 32, 3, 3), seed=1), (1, 1, 1, 1))
    bound = error_bound(image, _random((40, 32, 3, 3), seed=1), (1, 1, 1, 1), 4)
    assert np.all(np.abs(plain - expected) <= bound)


@pytest.mark.parametrize(("height", "width", "num_loops"), [(45, 29, 1), (60, 81, 1), (7, 5, 2), (5, 4, 2)])
@pytest.mark.parametrize("num_outputs", [2, 4])
def test_the_bits_do_not_depend_on_the_number_of_threads(
    force: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    num_outputs: int,
    height: int,
    width: int,
    num_loops: int,
) -> None:
    """Neighbouring blocks are divided if there are many, else the tiles, and then panels and blocks."""
    force(num_outputs)
    monkeypatch.setattr("byoc_core.authoring.csource_parallel.PARALLEL_WORK_PS", 1)
    builder: Any = byoc_core.FunctionBuilder("main")
    x = builder.param("x", tensor((2, height, width, 32)))
    weight = builder.const(_random((140 if height == 5 else 70, 32, 3, 3), seed=1))
    result = builder.emit("nn.conv2d", x, weight, data_layout="NHWC", padding=(1, 1))
    module = byoc_core.IRModule({"main": builder.finish(result)}, builder.constants)
    executable = byoc_core.build(module, backends=["ccompiler"], fallback="error")
    assert sum(m.get_source("c").count("byoc_parallel_for(") for m in executable.modules) == num_loops
    image = _random((2, height, width, 32))
    results = [byoc_core.VirtualMachine(executable, num_threads=n)["main"](image) for n in (1, 2, 3, 7, 40)]
    assert len({np.asarray(result).tobytes() for result in results}) == 1


def _geometry(size: int, channels: int, out_channels: int, dtype: str = "float32") -> ConvolutionGeometry:
    return ConvolutionGeometry(
        dtype=dtype,
        layout="NHWC",
        batch=1,
        channels=channels,
        height=size,
        width=size,
        out_channels=out_channels,
        out_height=size,
        out_width=size,
        filter_height=3,
        filter_width=3,
        groups=1,
        strides=(1, 1),
        dilation=(1, 1),
        padding=(1, 1, 1, 1),
        weight_axes=(0, 1, 2, 3),
        weight_steps=(channels * 9, 9, 3, 1),
    )


@pytest.mark.parametrize(
    ("size", "channels", "out_channels", "auto", "on_amd"),
    [
        (56, 64, 64, 4, 4),
        (28, 128, 128, 4, 4),
        (28, 512, 512, 4, 4),
        (14, 256, 256, 2, 4),
        (7, 512, 512, None, 2),
        (14, 64, 64, None, None),  # the gain is small
        (112, 3, 64, None, None),
        (4, 64, 64, None, None),
    ],
)
def test_the_choice(size: int, channels: int, out_channels: int, auto: int | None, on_amd: int | None) -> None:
    geometry = _geometry(size, channels, out_channels)
    for unit, best in ((AVX512, auto), (AVX512.on_amd(), on_amd)):
        plans = {option: choose_plan(geometry, unit, option) for option in ("off", "f2", "auto")}
        found = {option: plan and plan.algorithm.num_outputs for option, plan in plans.items()}
        assert found == {"off": None, "f2": best and 2, "auto": best}


@pytest.mark.parametrize("size", [14, 28])
def test_blocks_of_one_round_share_the_reading_of_the_factors(size: int) -> None:
    """The factors of a panel, too large for the second-level cache, are counted once."""
    plan = make_plan(_geometry(size, 512, 512), AVX512, 4)
    assert plan.parts == "panels"
    slower = replace(AVX512, far_rate=1)
    again = WinogradPlan(plan.geometry, slower, plan.schedule)
    factors = 36 * 512 * 512 * 4
    assert again.cycles() <= plan.cycles() + factors


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"winograd": "off"}, ""),
        ({"winograd": "f2"}, "winograd_output_2"),
        ({"winograd": "auto"}, "winograd_output_4"),
        ({}, "winograd_output_4"),
    ],
)
def test_the_option(changed: dict[str, str], text: str) -> None:
    bench = Bench(**changed)
    _add(bench, (1, 56, 56, 64), _random((64, 64, 3, 3)), (1, 1, 1, 1))
    source = bench.module.get_source()
    assert text in source
    assert ("winograd" in source) == bool(text)


def test_scratch_is_bounded() -> None:
    for size in (14, 56, 224, 1000):
        for channels in (16, 64, 512):
            plan = make_plan(_geometry(size, channels, channels), AVX512, 4)
            one_round = plan.blocks * plan.block_step * 4
            assert one_round <= max(1 << 19, (56 + plan.rows) * 36 * (channels + 16) * 4)
            every_tile = ((-(-size // 4)) ** 2 + plan.rows) * 36 * (channels + 16) * 4
            assert plan.tiles_size * 4 <= min(16 * one_round, every_tile + one_round)
            assert plan.scratch_size * 4 <= plan.tiles_size * 4 + 16 * plan.round_tiles * 36 * plan.width * 4
            assert plan.num_points * plan.rows * plan.width * 4 <= 1 << 16
