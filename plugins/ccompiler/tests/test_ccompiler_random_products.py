"""Products and convolutions among views and broadcast operands: some random cases, and earlier findings."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.ir import tensor

from plugins.ccompiler.tests.bench import PORTABLE, Bench, sizes_of
from plugins.ccompiler.tests.random_products import try_seed


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_sources(seed: int) -> None:
    assert try_seed(seed, opt_level=1) > 10


@pytest.mark.parametrize("num_columns", [70, "n"])
def test_a_symbol_beside_known_columns_turns_out_to_be_one(bench: Bench, num_columns: int | str) -> None:
    """Each panel of columns reads the only element, including the second panel."""
    functions = []
    for op, x, y, bias in (
        ("matmul", (6, 5), (5, num_columns), ("z",)),
        ("nn.dense", (2, 3, 5), (num_columns, 5), (3, "z")),
        ("nn.conv2d", (1, 5, 4, 3), (70, 5, 1, 1), ("z", 4, 3)),
    ):
        builder = bench.builder()
        params = [builder.param(name, tensor(shape)) for name, shape in (("x", x), ("y", y), ("bias", bias))]
        functions.append(bench.add(builder, builder.emit("add", builder.emit(op, *params[:2]), params[2])))
    rng = np.random.default_rng(1)
    for function in functions:
        for z in (1, 70):
            sizes = {"n": 70, "z": z}
            inputs = [rng.integers(-3, 4, sizes_of(param, sizes)).astype("float32") for param in function.params]
            for actual, expected in zip(bench.run(function, *inputs), bench.reference(function, *inputs), strict=True):
                np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("march", ["native", "generic", PORTABLE])
@pytest.mark.parametrize("opt_level", [2, 3])
def test_no_warning_where_nothing_is_left_over(march: str, opt_level: int) -> None:
    """GCC takes remainder loops for endless unless their emptiness is visible."""
    bench = Bench(march=march, opt_level=opt_level)
    for depth in (1, 2, 5):
        builder = bench.builder()
        x, y = builder.param("x", tensor((4, 1, 16, depth))), builder.param("y", tensor((depth, 1)))
        z = builder.param("z", tensor(("zz",)))
        bench.add(builder, builder.emit("add", builder.emit("matmul", x, y), z))
    builder = bench.builder()
    x, wide = builder.param("x", tensor((16, 64))), builder.param("y", tensor((100, 67)))
    y = builder.emit("strided_slice", wide, axes=(1,), begin=(0,), end=(64,), strides=(1,))
    bench.add(builder, builder.emit("nn.relu", builder.emit("nn.dense", x, y)))
    assert bench.module.function_names
