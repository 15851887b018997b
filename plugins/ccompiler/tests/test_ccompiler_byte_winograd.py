"""Exact minimal filtering of bytes: the matrices, the permitted filters, and results to the last bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import byoc_ccompiler.kernel as kernel_module
import numpy as np
import pytest
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels import byte_winograd
from byoc_ccompiler.kernels.byte_winograd import permitted_outputs
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.winograd_plan import WinogradSchedule, exact_filter
from byoc_ccompiler.vector_unit import VectorUnit
from byoc_core.authoring import c
from byoc_core.ir import Function, tensor
from byoc_core.runtime.module import NDArray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import Bench
from plugins.ccompiler.tests.emulated_instructions import need_processor

# By the option `march`: the instructions. All have vectors, and none multiplies four bytes at a time.
PROCESSORS = {"generic": (), "x86-64-v3": ("avx2", "fma"), "x86-64-v4": ("avx512f", "avx512bw", "avx512vl")}


@pytest.fixture
def force(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], None]:
    """Let all convolutions be computed with tiles of a number of outputs if possible, at any cost."""

    def force(num_outputs: int, parts: str = "") -> None:
        def choose(kernel: Kernel, geometry: ConvolutionGeometry) -> WinogradSchedule | None:
            found = [
                item
                for item in byte_winograd.offered_schedules(kernel, geometry)
                if item.num_outputs == num_outputs and item.parts == (parts or item.parts)
            ]
            return found[0] if found else None

        monkeypatch.setattr(byte_winograd, "choose_schedule", choose)

    return force


def _convolution(
    bench: Bench, image: tuple[Any, ...], weight: NDArray, dtype: str, zero: int, padding: Any
) -> Function:
    builder = bench.builder()
    x = builder.param("x", tensor(image, dtype))
    wide, filter_ = (builder.emit("cast", value, dtype="int32") for value in (x, builder.const(weight)))
    centred = builder.emit("subtract", wide, builder.const(np.int32(zero)))
    result: Function = bench.add(
        builder, builder.emit("nn.conv2d", centred, filter_, data_layout="NHWC", padding=padding)
    )
    return result


def _draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, kind: str) -> NDArray:
    limits = np.iinfo(dtype)
    ends = np.array([limits.min, limits.max], dtype)
    if kind == "random":
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return np.full(shape, ends[int(kind == "most")]) if kind != "ends" else ends[rng.integers(0, 2, shape)]


@pytest.mark.parametrize("num_outputs", [2, 4])
@given(
    inputs=st.lists(st.integers(-128, 255), min_size=6, max_size=6), taps=st.lists(st.integers(-128, 127), min_size=3)
)
def test_the_matrices_compute_a_filter_in_integers(num_outputs: int, inputs: list[int], taps: list[int]) -> None:
    algorithm = exact_filter(num_outputs)
    d, g = np.array(inputs[: algorithm.num_inputs]), np.array(taps[:3])
    products = (algorithm.taps @ g) * (algorithm.inputs @ d)
    assert products.dtype == np.int64
    expected = [algorithm.scale * (d[index : index + 3] @ g) for index in range(num_outputs)]
    np.testing.assert_array_equal(algorithm.outputs @ products, expected)


@pytest.mark.parametrize("num_outputs", [2, 4])
def test_transformed_bytes_and_factors_fit_in_16_bits(num_outputs: int) -> None:
    algorithm, most = exact_filter(num_outputs), np.iinfo(np.int16).max
    for matrix, magnitude in ((algorithm.inputs, 255), (algorithm.taps, 128)):
        assert np.abs(matrix).sum(axis=1).max() ** 2 * magnitude <= most


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("weight", [-128, 127])
def test_outputs_near_the_limit_decide_the_size_of_tiles(dtype: str, weight: int) -> None:
    """576 = 9 * 2^6 leaves 26 bits of an output, 4 = 2^2 leaves 30 bits."""
    pixel = 255 if dtype == "uint8" else 128
    for num_outputs, bits, more in ((4, 25, (2,)), (2, 29, ())):
        channels = (2**bits - 1) // (pixel * abs(weight) * 9)
        for count, expected in ((channels, (4, 2) if num_outputs == 4 else (2,)), (channels + 1, more)):
            assert permitted_outputs(np.full((1, count, 3, 3), weight, np.int8), dtype) == expected


@pytest.mark.parametrize("march", PROCESSORS)
@pytest.mark.parametrize("num_outputs", [2, 4])
def test_convolutions_are_exact(march: str, num_outputs: int, force: Callable[..., None]) -> None:
    """Sizes about multiples of a tile and of a panel, extreme pixels and weights, all forms of loops."""
    need_processor(*PROCESSORS[march])
    rng, bench, cases = np.random.default_rng(num_outputs), Bench(march=march), []
    channels = 64 if march == "x86-64-v4" else 16
    sizes = [(1, 1, 1), (2, 5, 9), (1, 8, 8), (3, 4, 7), (1, 23, 26)]
    for number, (batch, height, width) in enumerate(sizes):
        for dtype, zero, kind in (
            ("uint8", 131, "random"),
            ("int8", -5, "ends"),
            ("uint8", 0, "most"),
            ("int8", 0, "least"),
        ):
            depth = channels + 2 * (number % 3)
            image, filter_ = (batch, height, width, depth), (17 + 15 * (number % 2), depth, 3, 3)
            padding = (1, 1) if number % 2 else (0, 2, 2, 1) if height < 3 else (1, 0, 0, 2)
            if height == 1:
                padding = (1, 1, 1, 1)
            force(num_outputs, ("", "pairs")[number % 2 and num_outputs == 2])
            weight = _draw(rng, filter_, "int8", kind)
            function = _convolution(bench, image, weight, dtype, zero, padding)
            cases.append((function, _draw(rng, image, dtype, kind)))
    assert bench.module.get_source().count(f"winograd_words_{num_outputs}") >= len(sizes)
    for function, x in cases:
        np.testing.assert_array_equal(bench.run(function, x)[0], bench.reference(function, x)[0])


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_sizes_give_the_sums_of_integers(force: Callable[..., None], data: st.DataObject) -> None:
    need_processor("avx2", "fma")
    draw = data.draw
    force(draw(st.sampled_from([2, 4])))
    batch, height, width = (draw(st.integers(1, most)) for most in (2, 15, 15))
    depth, columns = 2 * draw(st.integers(8, 40)), draw(st.integers(1, 50))
    padding = tuple(draw(st.lists(st.integers(1, 3), min_size=4, max_size=4)))
    dtype = draw(st.sampled_from(["uint8", "int8"]))
    zero = draw(st.integers(np.iinfo(dtype).min, np.iinfo(dtype).max))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    kinds = st.sampled_from(["random", "ends", "least", "most"])
    bench, shape = Bench(march="x86-64-v3"), (batch, height, width, depth)
    image: tuple[Any, ...] = ("n", "h", "w", depth) if draw(st.booleans()) else shape
    weight = _draw(rng, (columns, depth, 3, 3), "int8", draw(kinds))
    function = _convolution(bench, image, weight, dtype, zero, padding)
    assert "winograd_words" in bench.module.get_source()
    x = _draw(rng, shape, dtype, draw(kinds))
    np.testing.assert_array_equal(bench.run(function, x)[0], bench.reference(function, x)[0])


@pytest.mark.parametrize("parts", ["blocks", "panels", "pairs"])
@pytest.mark.parametrize("num_outputs", [2, 4])
def test_the_loops_keep_the_laws_and_compute_the_sums_in_the_interpreter(
    num_outputs: int, parts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any processor: the statements of vectors of 32 bytes, with rounds in a random order."""
    found: list[c.Function] = []

    def recorded(function: c.Function, **options: Any) -> c.Function:
        found.append(function)
        return c.outline(function, **options)

    def choose(kernel: Kernel, geometry: ConvolutionGeometry) -> WinogradSchedule:
        rows = 8 if parts == "panels" else 3
        return WinogradSchedule(num_outputs, rows, 1, 2, parts)  # type: ignore[arg-type]

    unit = VectorUnit(32, 16, has_byte_pairs=True)
    monkeypatch.setattr(VectorUnit, "of_features", classmethod(lambda cls, machine, features: unit))
    monkeypatch.setattr(kernel_module, "outline", recorded)
    monkeypatch.setattr(byte_winograd, "choose_schedule", choose)
    rng, bench, shape = np.random.default_rng(0), Bench(), (1, 6, 7, 18)
    weight = _draw(rng, (20, 18, 3, 3), "int8", "random")
    function = _convolution(bench, shape, weight, "uint8", 131, (1, 1))
    assert bench.module.get_source()
    (kernel,) = found
    called = [callee.function for callee in c.uses_of(kernel).callees if callee.function is not None]
    assert [problem for item in (kernel, *called) for problem in c.problems_of(item)] == []
    x = _draw(rng, shape, "uint8", "random")
    (expected,) = bench.reference(function, x)
    out = np.zeros(expected.size, expected.dtype)
    arrays: dict[str, NDArray] = {"out": out, "scratch": np.full(1 << 16, 77, np.uint32), "x": x.reshape(-1)}
    arrays["nothing"] = np.zeros(unit.lanes("int32"), np.uint32)  # written in the source
    for constant in bench.module.constants.values():
        arrays["weights" if np.ndim(constant) > 1 else "starts"] = np.asarray(constant).reshape(-1)
    arguments = {item: arrays[item.name] for item in kernel.parameters}
    c.interpret(kernel, arguments, order=random.Random(0))
    np.testing.assert_array_equal(out.reshape(expected.shape), expected)


def test_large_images_gain_without_a_choice_by_the_user() -> None:
    need_processor("avx2", "fma")
    rng, bench, shape = np.random.default_rng(0), Bench(march="x86-64-v3"), (1, 56, 56, 64)
    function = _convolution(bench, shape, _draw(rng, (64, 64, 3, 3), "int8", "random"), "uint8", 0, (1, 1))
    assert "winograd_words_4" in bench.module.get_source()
    x = _draw(rng, shape, "uint8", "random")
    np.testing.assert_array_equal(bench.run(function, x)[0], bench.reference(function, x)[0])


@pytest.mark.parametrize(("option", "expected"), [("off", 0), ("f2", 1), ("auto", 1)])
def test_the_option_winograd_permits_the_tiles(option: str, expected: int) -> None:
    need_processor("avx2", "fma")
    bench = Bench(march="x86-64-v3", winograd=option)
    weight = _draw(np.random.default_rng(0), (64, 64, 3, 3), "int8", "random")
    _convolution(bench, (1, 56, 56, 64), weight, "uint8", 0, (1, 1))
    source = bench.module.get_source()
    assert ("winograd_words" in source) == bool(expected)
    assert ("winograd_words_4" in source) == (option == "auto")
