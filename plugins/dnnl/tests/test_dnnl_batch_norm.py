"""Batch normalisation: spelled out before planning, and as oneDNN's primitive for narrow stored values."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.ir import Var, tensor
from byoc_core.ir.builder import Operand
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.module import NDArray
from byoc_dnnl.backend import byoc_prepare
from byoc_dnnl.engine import open_engine
from byoc_dnnl.precision import lacks_instructions

from plugins.dnnl.tests.dnnl_region import UNIT, Region, emit

CHANNELS = 24
SHAPES = {1: (2, CHANNELS, 7, 5), 3: (2, 7, 5, CHANNELS)}
"""Shapes by the axis of the channels."""


def _region(axis: int, **changes: NDArray | float) -> tuple[Region, dict[str, Any]]:
    """Return a batch normalisation followed by a ReLU, and the parameters."""
    region = Region()
    x = region.builder.param("x", tensor(SHAPES[axis]))
    names = ("gamma", "beta", "mean", "variance")
    parameters: dict[str, NDArray | float] = {name: region.draw(CHANNELS) for name in names}
    parameters["variance"] = np.abs(parameters["variance"]) + np.float32(0.1)
    parameters |= changes
    constants = [region.builder.const(parameters[name]) for name in names]
    value = region.builder.emit("nn.batch_norm", x, *constants, axis=axis, epsilon=1e-3)
    assert isinstance(value, Var)
    value = region.builder.emit("nn.relu", value)
    assert isinstance(value, Var)
    return region.finish(value), parameters


def test_it_is_one_primitive_and_right() -> None:
    axis = 1
    region, parameters = _region(axis, mean=1e3 * np.ones(CHANNELS, np.float32))
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error")
    (module,) = executable.modules
    steps = [line for line in module.get_source().splitlines()[1:] if not line.startswith(("pack ", "check "))]
    assert [line.split("  ")[0] for line in steps] == ["subtract + multiply + nn.bias_add + nn.relu"]
    x = region.draw(*SHAPES[axis]) + np.float32(1e3)
    wide = {name: array.astype(np.float64) for name, array in parameters.items()}
    exact = KERNELS["nn.batch_norm"](x.astype(np.float64), *wide.values(), axis=axis, epsilon=1e-3)
    found = byoc_core.VirtualMachine(executable)["f"](x)
    # The difference, the scale, the product and the sum are rounded once each; all but the last are of the product.
    beta = np.abs(wide["beta"])[:, None, None]
    bound = 4.01 * UNIT * (np.abs(exact) + beta)
    assert (np.abs(found - np.maximum(exact, 0)) <= bound).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"variance": np.full(CHANNELS, -1, np.float32)},
        {"gamma": np.full(CHANNELS, 1e38, np.float32), "variance": np.full(CHANNELS, -9.9e-4, np.float32)},
        {"gamma": np.full(CHANNELS, 1e-38, np.float32), "variance": np.full(CHANNELS, 1e4, np.float32)},
    ],
    ids=["negative variance", "scale that overflows", "scale that underflows"],
)
def test_what_the_scale_cannot_hold_stays(changes: dict[str, Any]) -> None:
    ir = _region(1, **changes)[0].ir
    assert byoc_prepare(ir) is ir


def test_channels_that_are_not_axis_1_stay() -> None:
    ir = _region(3)[0].ir
    assert byoc_prepare(ir) is ir


@pytest.mark.parametrize(
    ("rank", "channels", "implementation"),
    [(1, 32, "bnorm_jit"), (2, 32, "bnorm_jit"), (3, 32, "bnorm_jit"), (2, 20, "jit:uni")],
)
@pytest.mark.parametrize("num_threads", [1, 2])
def test_of_narrow_values_it_is_the_primitive(rank: int, channels: int, implementation: str, num_threads: int) -> None:
    if lacks_instructions(open_engine().isa, "bfloat16"):
        pytest.skip("oneDNN has no instructions for bfloat16 here")
    region = Region()
    x = region.builder.param("x", tensor((2, 16, *[5] * rank)))
    halves = [_convolve(region, x, 16, channels // 2, rank) for _ in range(2)]
    joined = emit(region, "concat", *halves, axis=1)
    mean, scale = (region.builder.const(region.draw(1, channels, *[1] * rank)) for _ in range(2))
    scaled = emit(region, "multiply", emit(region, "subtract", joined, mean), scale)
    shifted = emit(region, "nn.bias_add", scaled, region.builder.const(region.draw(channels)), axis=1)
    region.finish(_convolve(region, emit(region, "nn.relu", shifted), channels, 16, rank))
    options = {"dnnl": {"precision": "bfloat16"}}
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error", options=options)
    (module,) = executable.modules
    (step,) = (line for line in module.get_source().splitlines() if line.startswith("subtract"))
    title, found_implementation, *_ = step.split("  ")
    assert title == "subtract + multiply + nn.bias_add + nn.relu"
    assert found_implementation.startswith(implementation)
    array = region.draw(2, 16, *[5] * rank)
    found = byoc_core.VirtualMachine(executable, num_threads=num_threads)["f"](array)
    (exact,), (magnitude,) = region.oracle(array), region.oracle(array, magnitudes=True)
    # The input, two results and the weights of two convolutions are rounded to bfloat16, and what stands between.
    gamma = 6 * 2.0**-8 / (1 - 6 * 2.0**-8)
    assert (np.abs(found - exact) <= gamma * magnitude).all()
    array[1, 3, 2:] = np.nan
    found, (exact,) = byoc_core.VirtualMachine(executable, num_threads=num_threads)["f"](array), region.oracle(array)
    np.testing.assert_array_equal(np.isnan(np.asarray(found)), np.isnan(exact))


@pytest.mark.parametrize("follower", ["nn.swish", "nn.gelu"])
def test_other_functions_stay_part_of_it(follower: str) -> None:
    if lacks_instructions(open_engine().isa, "bfloat16"):
        pytest.skip("oneDNN has no instructions for bfloat16 here")
    region = Region()
    x = region.builder.param("x", tensor((1, 16, 6, 6)))
    joined = emit(region, "concat", *(_convolve(region, x, 16, 16, 2) for _ in range(2)), axis=1)
    centred = emit(region, "subtract", joined, region.builder.const(region.draw(1, 32, 1, 1)))
    scaled = emit(region, "multiply", centred, region.builder.const(region.draw(1, 32, 1, 1)))
    shifted = emit(region, "nn.bias_add", scaled, region.builder.const(region.draw(32)), axis=1)
    region.finish(_convolve(region, emit(region, follower, shifted), 32, 16, 2))
    options = {"dnnl": {"precision": "bfloat16"}}
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error", options=options)
    assert f"subtract + multiply + nn.bias_add + {follower}  jit:uni" in executable.modules[0].get_source()


def test_one_narrow_value_is_no_image() -> None:
    if lacks_instructions(open_engine().isa, "bfloat16"):
        pytest.skip("oneDNN has no instructions for bfloat16 here")
    region = Region()
    x = region.builder.param("x", tensor((1, 64)))
    value = emit(region, "nn.dense", x, region.builder.const(region.draw(1, 64)))
    value = emit(region, "reshape", value, shape=(1,))
    for op in ("subtract", "multiply"):
        value = emit(region, op, value, region.builder.const(region.draw(1)))
    value = emit(region, "nn.bias_add", value, region.builder.const(region.draw(1)), axis=0)
    region.finish(
        emit(region, "nn.dense", emit(region, "reshape", value, shape=(1, 1)), region.builder.const(region.draw(3, 1)))
    )
    options = {"dnnl": {"precision": "bfloat16"}}
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error", options=options)
    array = region.draw(1, 64)
    found, (exact,), (magnitude,) = (
        byoc_core.VirtualMachine(executable)["f"](array),
        region.oracle(array),
        region.oracle(array, magnitudes=True),
    )
    assert (np.abs(found - exact) <= 6 * 2.0**-8 / (1 - 6 * 2.0**-8) * magnitude).all()


def test_padded_blocks_of_narrow_values_pass_checks() -> None:
    if lacks_instructions(open_engine().isa, "bfloat16"):
        pytest.skip("oneDNN has no instructions for bfloat16 here")
    region, channels = Region(), 20
    x, scale = region.builder.param("x", tensor((1, 1, 64, 64))), region.builder.param("s", tensor((1, channels, 1, 1)))
    weight = region.builder.const(region.draw(channels, 1, 3, 3))
    image = emit(region, "nn.conv2d", x, weight, padding=(1, 1, 1, 1))
    centred = emit(region, "subtract", image, region.builder.const(region.draw(1, channels, 1, 1)))
    scaled = emit(region, "multiply", centred, scale)
    value = emit(region, "nn.bias_add", scaled, region.builder.const(region.draw(channels)), axis=1)
    rectified = _convolve(region, emit(region, "nn.relu", value), channels, 16, 2)
    region.finish(rectified, _convolve(region, value, channels, 16, 2), _convolve(region, image, channels, 16, 2))
    options = {"dnnl": {"precision": "bfloat16"}}
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error", options=options)
    inputs = region.draw(1, 1, 64, 64), region.draw(1, channels, 1, 1)
    found = byoc_core.VirtualMachine(executable)["f"](*inputs)
    for number, exact, magnitude in zip(
        found, region.oracle(*inputs), region.oracle(*inputs, magnitudes=True), strict=True
    ):
        error = np.abs(number - exact)
        assert (error <= 6 * 2.0**-8 / (1 - 6 * 2.0**-8) * magnitude).all()
        assert error.max() > 1e-4  # else the reference kernels have computed it, since a check did not hold


def _convolve(region: Region, x: Operand, source: int, target: int, rank: int) -> Any:
    weight = region.builder.const(region.draw(target, source, *[1] * rank))
    return emit(region, f"nn.conv{rank}d", x, weight)
