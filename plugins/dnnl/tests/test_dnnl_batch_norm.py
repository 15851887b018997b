"""Batch normalisation that the backend spells out before it is planned."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.ir import Var, tensor
from byoc_core.kernels import KERNELS
from byoc_dnnl.backend import byoc_prepare

from plugins.dnnl.tests.dnnl_region import UNIT, Region

CHANNELS = 24
SHAPES = {1: (2, CHANNELS, 7, 5), 3: (2, 7, 5, CHANNELS)}
"""Shapes by the axis of the channels."""


def _region(axis: int, **changes: Any) -> tuple[Region, dict[str, Any]]:
    """Gives a batch normalisation with a ReLU behind it, and its parameters."""
    region = Region()
    x = region.builder.param("x", tensor(SHAPES[axis]))
    names = ("gamma", "beta", "mean", "variance")
    parameters = {name: region.draw(CHANNELS) for name in names}
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
