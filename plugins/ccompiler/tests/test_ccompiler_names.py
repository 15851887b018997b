"""Names of a model in generated C: none hides a name needed by the text around, or ends a comment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.authoring.csource import C_LIBRARY_NAMES
from byoc_core.ir import tensor

from plugins.ccompiler.tests.bench import Bench

ODD = (
    "",
    "1x",
    "*/ int",
    "\\",
    "??/",
    "\n#error x",
    "{name}",
    "_Generic",
    "_Bool",
    "int",
    "out",
    "loop",
    "dim_n",
    "vec_f",
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_may_be_called_anything(bench: Bench, dtype: str) -> None:
    """Kernels calling functions of the C library read, and make, values with the names of these functions."""
    names = [*ODD, *sorted(C_LIBRARY_NAMES)]
    builder = bench.builder()
    params = [builder.param(name, tensor(("n", 4), dtype)) for name in names]
    results = []
    for start in range(0, len(names), 16):
        total = params[start]
        for param in params[start + 1 : start + 16]:
            (total,) = builder.bind("add", [total, param], {}, names=(param.name,)).results
        results += [
            builder.bind(op, [total], {}, names=(op,)).result for op in ("sin", "floor", "round", "exp", "isinf")
        ]
    function = bench.add(builder, *results)
    inputs = [np.random.default_rng(k).standard_normal((3, 4)).astype(dtype) for k in range(len(names))]
    for actual, expected in zip(bench.run(function, *inputs), bench.reference(function, *inputs), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4)


@pytest.mark.parametrize("names", [("from", "right"), ("right", "from")])
def test_a_direct_convolution_has_names_of_its_own(bench: Bench, names: tuple[str, str]) -> None:
    builder = bench.builder()
    x = builder.param(names[0], tensor((1, 2, 5, 6), "float32"))
    weight = builder.param(names[1], tensor((2, 3, 2, 2), "float32"))
    function = bench.add(builder, builder.bind("nn.conv2d_transpose", [x, weight], {}).result)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-3, 4, shape).astype(np.float32) for shape in ((1, 2, 5, 6), (2, 3, 2, 2))]
    np.testing.assert_array_equal(bench.run(function, *inputs)[0], bench.reference(function, *inputs)[0])


NESTED = ("to", "row", "col", "c", "n", "y", "j", "from", "image", "next", "ready", "tap", "p0", "sums", "k", "rows")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_copied_images_may_be_called_like_what_copies_them(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    """Alone, and joined with the convolutions behind; results do not depend on the name."""
    monkeypatch.setattr("byoc_ccompiler.chains._LARGE_NBYTES", 0)
    bench, rng = Bench(opt_level=0, precision=precision), np.random.default_rng(1)
    weights = [rng.integers(-3, 4, shape).astype(np.float32) for shape in ((24, 3, 3, 3), (24, 1, 3, 3), (7, 24, 1, 1))]
    functions: dict[bool, list[Any]] = {False: [], True: []}
    for name in NESTED:
        for is_joined, found in functions.items():
            builder = bench.builder()
            value = builder.param(name, tensor((1, 9, 7, 3)))
            attrs = {"data_layout": "NHWC", "padding": (1, 1)}
            value = builder.emit("nn.conv2d", value, builder.const(weights[0]), strides=(2, 2), **attrs)
            if is_joined:
                value = builder.emit("nn.conv2d", value, builder.const(weights[1]), groups=24, **attrs)
                value = builder.emit("nn.conv2d", value, builder.const(weights[2]), data_layout="NHWC")
            found.append(bench.add(builder, value))
    image = rng.integers(-3, 4, (1, 9, 7, 3)).astype(np.float32)
    for found in functions.values():
        (expected,) = bench.reference(found[0], image)
        for function in found:
            np.testing.assert_array_equal(bench.run(function, image)[0], expected)


def test_what_a_team_is_called_with_may_be_called_anything(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byoc_core.authoring.csource_parallel.PARALLEL_WORK_PS", 1)
    builder = bench.builder()
    names = ("call", "status", "data")
    x, y, z = (builder.param(name, tensor((300, 300), "float32")) for name in names)
    result = builder.emit("matmul", builder.emit("matmul", x, y), z)
    function = bench.add(builder, result)
    assert "byoc_with_team(" in bench.module.get_source()
    arrays = [np.random.default_rng(k).integers(-3, 4, (300, 300)).astype(np.float32) for k in range(3)]
    np.testing.assert_array_equal(bench.run(function, *arrays)[0], bench.reference(function, *arrays)[0])
