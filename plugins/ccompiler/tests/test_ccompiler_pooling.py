"""All pooling ops in both layouts: maxima bit by bit, means and norms against a float64 oracle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.ir import Function, tensor
from byoc_core.runtime.module import NDArray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import MEANING, PORTABLE, Bench, sizes_of

LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
IMAGES = {1: (2, 5, 23), 2: (2, 5, 11, 14), 3: (1, 3, 6, 7, 9)}


def _random(shape: int | Sequence[int], dtype: str = "float32", seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def _in_layout(shape: Sequence[Any], layout: str) -> tuple[Any, ...]:
    """Return the sizes of N, C, D, H, W in the order of a layout."""
    order = LAYOUTS[len(layout) - 2][0]
    return tuple(shape[order.index(axis)] for axis in layout)


def _check(function: Function, image: NDArray, actual: NDArray) -> None:
    """Check a result against the reference kernel: equal for a maximum, else within the roundings of a window."""
    (binding,) = function.bindings
    name, kernel = binding.op.name, binding.op.kernel
    attrs: dict[str, Any] = dict(binding.attrs)
    assert kernel is not None
    if "max" in name:
        np.testing.assert_array_equal(actual, kernel(image, **attrs))
        return
    oracle = kernel(image.astype("float64"), **attrs)
    magnitude = kernel(np.abs(image.astype("float64")), **attrs)
    spatial = [size for size, axis in zip(image.shape, attrs["layout"], strict=True) if axis not in "NC"]
    taps = math.prod(attrs.get("pool_size", spatial))
    # One rounding for each addition and for the division; powers and roots are those of the C library, and the root
    # makes the relative error of what is under it smaller.
    roundings = taps + 2 + (8 * attrs["p"] if "p" in attrs else 0)
    unit = float(np.finfo(image.dtype).eps) / 2
    slack = 2.0 if image.dtype == np.float64 else 1.0 + 1e-6
    error = np.abs(actual.astype("float64") - oracle)
    assert np.all(error <= slack * roundings * unit / (1 - roundings * unit) * magnitude)


def _forms(rank: int) -> list[dict[str, Any]]:
    ones = (1,) * rank
    return [
        {"pool_size": (2,) * rank},
        {"pool_size": (3,) * rank, "strides": (2,) * rank, "padding": ones},
        {"pool_size": (3,) * rank, "strides": (2,) * rank, "padding": (1, 0) * rank, "ceil_mode": True},
        {"pool_size": (3, 2, 2)[:rank], "strides": (1, 2, 3)[:rank], "dilation": (2, 3, 1)[:rank]},
        {"pool_size": (2,) * rank, "dilation": (5, 4, 3)[:rank], "strides": ones, "padding": (3,) * rank},
        {"pool_size": IMAGES[rank][2:], "strides": ones},
    ]


@pytest.mark.parametrize("layout", [layout for pair in LAYOUTS.values() for layout in pair])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_windows(bench: Bench, layout: str, dtype: str) -> None:
    rank = len(layout) - 2
    shape = _in_layout(IMAGES[rank], layout)
    functions = []
    for form in _forms(rank):
        attrs = {"layout": layout, **form}
        functions.append(bench.op(f"nn.max_pool{rank}d", [tensor(shape, dtype)], **attrs))
        for counts in (False, True):
            mean = {"count_include_pad": counts, **attrs}
            functions.append(bench.op(f"nn.avg_pool{rank}d", [tensor(shape, dtype)], **mean))
        norms = [bench.op(f"nn.lp_pool{rank}d", [tensor(shape, dtype)], p=power, **attrs) for power in (1, 2, 3)]
        functions += norms
    for output_size in ((1, 1, 1), (3, 2, 4)):
        attrs = {"layout": layout, "output_size": output_size[:rank]}
        names = [f"nn.adaptive_{kind}_pool{rank}d" for kind in ("max", "avg")]
        functions += [bench.op(name, [tensor(shape, dtype)], **attrs) for name in names]
    image = _random(shape, dtype)
    special = image.copy()
    special.reshape(-1)[[3, 17]] = np.nan, np.inf
    for function in functions:
        (actual,) = bench.run(function, image)
        _check(function, image, actual)
        (actual,) = bench.run(function, special)
        with np.errstate(invalid="ignore"):
            (expected,) = bench.reference(function, special)
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(actual), np.isinf(expected))


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native", PORTABLE])
def test_many_channels(march: str) -> None:
    bench = Bench(march=march)
    functions = [
        bench.op("nn.max_pool2d", [tensor((1, 12, 13, 131))], pool_size=(3, 3), padding=(1, 1), layout="NHWC"),
        bench.op("nn.avg_pool2d", [tensor((1, 12, 13, 300))], pool_size=(12, 13), layout="NHWC"),
        bench.op("nn.adaptive_avg_pool2d", [tensor((2, 7, 7, 257))], output_size=(1, 1), layout="NHWC"),
        bench.op("nn.adaptive_max_pool2d", [tensor((2, 7, 7, 257))], output_size=(3, 2), layout="NHWC"),
        bench.op("nn.lp_pool2d", [tensor((1, 8, 8, 129))], pool_size=(7, 7), p=2, layout="NHWC"),
    ]
    for function in functions:
        image = _random(sizes_of(function.params[0]))
        (actual,) = bench.run(function, image)
        _check(function, image, actual)


@pytest.mark.parametrize("dtype", [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)])
def test_maxima_of_integers(bench: Bench, dtype: str) -> None:
    functions = []
    for layout in ("NCHW", "NHWC", "NWC", "NCDHW"):
        rank = len(layout) - 2
        type_ = tensor(_in_layout(IMAGES[rank], layout), dtype)
        attrs = {"layout": layout, "pool_size": (3,) * rank, "padding": (1,) * rank}
        functions.append(bench.op(f"nn.max_pool{rank}d", [type_], **attrs))
        attrs = {"layout": layout, "output_size": (2,) * rank}
        functions.append(bench.op(f"nn.adaptive_max_pool{rank}d", [type_], **attrs))
    for function in functions:
        image = _random(sizes_of(function.params[0]), dtype)
        (actual,) = bench.run(function, image)
        _check(function, image, actual)


def test_a_window_of_padding_alone(bench: Bench) -> None:
    attrs = {"pool_size": (2, 2), "strides": (2, 2), "padding": (2, 2), "dilation": (2, 2)}
    functions = [
        bench.op(name, [tensor(_in_layout((1, 3, 1, 1), layout))], layout=layout, **attrs, **more)
        for layout in ("NCHW", "NHWC")
        for name, more in (("nn.max_pool2d", {}), ("nn.avg_pool2d", {}), ("nn.lp_pool2d", {"p": 2}))
    ]
    for function in functions:
        image = _random(sizes_of(function.params[0]))
        (actual,) = bench.run(function, image)
        (expected,) = bench.reference(function, image)
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native", PORTABLE])
def test_planes_in_blocks_of_rows(march: str) -> None:
    """Planes larger than the array of combined columns; windows inside, beyond both sides, and wider than the plane."""
    bench = Bench(march=march)
    forms: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((1, 2, 70, 300), {"pool_size": (3, 3), "strides": (1, 1), "padding": (1, 1)}),
        ((1, 2, 61, 250), {"pool_size": (5, 4), "strides": (2, 3), "padding": (2, 0, 1, 3), "ceil_mode": True}),
        ((2, 1, 300, 90), {"pool_size": (2, 3), "strides": (1, 2), "dilation": (7, 5)}),
        ((1, 1, 4, 5), {"pool_size": (7, 9), "strides": (1, 1), "padding": (4, 6)}),
        ((1, 1, 3, 9000), {"pool_size": (2, 2), "strides": (1, 1)}),
    ]
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("nn.max_pool2d", {}),
        ("nn.avg_pool2d", {}),
        ("nn.avg_pool2d", {"count_include_pad": True}),
    )
    functions = [
        bench.op(name, [tensor(shape)], layout="NCHW", **form, **more) for shape, form in forms for name, more in kinds
    ]
    for function in functions:
        image = _random(sizes_of(function.params[0]))
        image.reshape(-1)[[1, 11]] = np.nan, -np.inf
        (actual,) = bench.run(function, image)
        (expected,) = bench.reference(function, image)
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        image.reshape(-1)[[1, 11]] = 1, 2
        (actual,) = bench.run(function, image)
        _check(function, image, actual)


@settings(max_examples=25 if MEANING == 0 else 300, deadline=None)
@given(st.data())
def test_planes_of_known_size(data: st.DataObject) -> None:
    """Windows of any form, together for a plane: maxima of the bits, means within the roundings."""
    bench = Bench()
    height, width = (data.draw(st.integers(1, 12)) for _ in range(2))
    attrs: dict[str, Any] = {"layout": "NCHW", "ceil_mode": data.draw(st.booleans())}
    attrs["dilation"] = dilation = tuple(data.draw(st.integers(1, 3)) for _ in range(2))
    attrs["strides"] = tuple(data.draw(st.integers(1, 4)) for _ in range(2))
    window, pads = [], []
    for size, apart in zip((height, width), dilation, strict=True):
        taps = data.draw(st.integers(1, 5))
        pads.append([data.draw(st.integers(0, taps - 1)) for _ in range(2)])
        while (taps - 1) * apart + 1 > size + sum(pads[-1]):
            pads[-1][1] += 1
        window.append(taps)
    attrs |= {"pool_size": tuple(window), "padding": (pads[0][0], pads[1][0], pads[0][1], pads[1][1])}
    type_ = tensor((2, 2, height, width))
    means = {"count_include_pad": data.draw(st.booleans())}
    functions = [bench.op("nn.max_pool2d", [type_], **attrs), bench.op("nn.avg_pool2d", [type_], **attrs, **means)]
    image = _random((2, 2, height, width), seed=data.draw(st.integers(0, 99)))
    for function in functions:
        (actual,) = bench.run(function, image)
        _check(function, image, actual)


def test_images_of_any_size(bench: Bench) -> None:
    functions = []
    for layout in ("NCHW", "NHWC", "NCW", "NDHWC"):
        rank = len(layout) - 2
        shape = tuple(axis.lower() for axis in layout)
        for form in (_forms(rank)[1], _forms(rank)[2]):
            functions.append(bench.op(f"nn.max_pool{rank}d", [tensor(shape)], layout=layout, **form))
            functions.append(bench.op(f"nn.avg_pool{rank}d", [tensor(shape)], layout=layout, **form))
        pair = {"layout": layout, "output_size": (2, 1, 3)[:rank]}
        functions.append(bench.op(f"nn.adaptive_avg_pool{rank}d", [tensor(shape)], **pair))
        functions.append(bench.op(f"nn.adaptive_max_pool{rank}d", [tensor(shape)], **pair))

    @settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(functions), st.data())
    def check(function: Function, data: st.DataObject) -> None:
        layout = str(function.bindings[0].attrs["layout"])
        shape = [data.draw(st.integers(0 if axis in "NC" else 3, 9)) for axis in layout]
        image = _random(shape, seed=data.draw(st.integers(0, 99)))
        (actual,) = bench.run(function, image)
        _check(function, image, actual)

    check()


def test_long_sums_are_accurate(bench: Bench) -> None:
    """The mean of equal numbers 0.1 over 300 by 300 pixels, with an error of 1e-4 in a single chain of additions."""
    functions = [
        bench.op("nn.adaptive_avg_pool2d", [tensor(shape)], output_size=(1, 1), layout=layout)
        for layout, shape in (("NHWC", (1, 300, 300, 3)), ("NCHW", (1, 3, 300, 300)))
    ]
    for function in functions:
        image = np.full(sizes_of(function.params[0]), 0.1, "float32")
        (actual,) = bench.run(function, image)
        np.testing.assert_allclose(actual, np.float32(0.1), rtol=600 * 2.0**-24)


@pytest.mark.parametrize(
    ("expression", "shape"),
    [
        ("R.nn.max_pool2d(x, pool_size=(3, 3), padding=(1, 1), layout='NHWC')", (2, 17, 19, 33)),
        ("R.nn.adaptive_avg_pool2d(x, output_size=(1, 1), layout='NHWC')", (2, 7, 7, 513)),
        ("R.nn.adaptive_max_pool2d(x, output_size=(3, 2))", (2, 17, 7, 9)),
        ("R.nn.lp_pool1d(x, pool_size=(3,), p=2)", (3, 17, 19)),
    ],
)
def test_the_bits_do_not_depend_on_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, expression: str, shape: tuple[int, ...]
) -> None:
    monkeypatch.setattr("byoc_core.authoring.csource_parallel.PARALLEL_WORK_PS", 1)
    text = (
        f'@R.ir_module\nclass M:\n  @R.function\n  def main(x: R.Tensor({shape!r}, "float32")):\n    y = {expression}\n'
    )
    module = byoc_core.parse(text + "    return y\n")
    executable = byoc_core.build(module, backends=["ccompiler"], fallback="error")
    assert sum(m.get_source("c").count("byoc_parallel_for(") for m in executable.modules) == 1
    image = _random(shape)
    results = [byoc_core.VirtualMachine(executable, num_threads=n)["main"](image) for n in (1, 2, 3, 7)]
    assert len({np.asarray(result).tobytes() for result in results}) == 1
