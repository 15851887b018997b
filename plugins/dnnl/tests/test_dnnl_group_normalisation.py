"""Group, instance and RMS norm, against float64 with the bound from their sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.backend.hooks import Rejection, Support
from byoc_core.ir import tensor
from hypothesis import given
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import UNIT, NDArray, Region


def _region(op: str, shape: tuple[int, ...], parameters: int, **attrs: object) -> tuple[Region, list[NDArray]]:
    region = Region()
    arrays = [region.draw(*shape) * 3 + 1, *(region.draw(shape[1]) for _ in range(parameters))]
    operands = [region.builder.param(f"x{index}", tensor(array.shape)) for index, array in enumerate(arrays)]
    (result,) = region.builder.bind(op, operands, attrs).results
    return region.finish(result), arrays


def _error_bound(rows: NDArray, epsilon: float) -> NDArray:
    """Return the largest float32 error of ``(x - mean) / sqrt(variance + epsilon)`` of each row.

    The mean of ``n`` numbers is within ``gamma_n * mean |x|``, in any order (Higham, section 3.1); the error of the
    difference from the mean goes into each square.
    """
    count = rows.shape[1]
    gamma = (count + 4) * UNIT / (1 - (count + 4) * UNIT)
    rows = rows.astype(np.float64)
    centred = rows - rows.mean(1, keepdims=True)
    variance = np.square(centred).mean(1, keepdims=True) + epsilon
    moved = gamma * np.abs(rows).mean(1, keepdims=True) + UNIT * np.abs(centred)
    off = gamma * variance + np.mean(2 * np.abs(centred) * moved + np.square(moved), 1, keepdims=True)
    # A root halves the relative error; the root, the quotient and the product round once each.
    relative = off / (2 * (variance - off)) + 4 * UNIT
    return np.asarray((moved + np.abs(centred) * relative) / np.sqrt(variance))


def _check(region: Region, arrays: list[NDArray], groups: int, epsilon: float = 1e-5) -> None:
    (binding,) = region.function.bindings
    assert isinstance(region.judge(binding), Support)
    (found,), (exact,) = region.run(*arrays), region.oracle(*arrays)
    x, gamma, beta = arrays
    images, channels = x.shape[:2]
    error = _error_bound(x.reshape(images * groups, -1), epsilon).reshape(x.shape)
    column = (channels, *[1] * (x.ndim - 2))
    scale, shift = np.abs(gamma.reshape(column)), np.abs(beta.reshape(column))
    allowed = scale * error + 3 * UNIT * (np.abs(exact) + 2 * shift)
    assert (np.abs(found - exact) <= allowed).all()
    assert "ref" not in region.source


@given(st.data())
def test_groups_of_channels(data: st.DataObject) -> None:
    groups, images = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    channels = groups * data.draw(st.integers(1, 5))
    spatial = tuple(data.draw(st.integers(1, 9)) for _ in range(data.draw(st.integers(0, 3))))
    region, arrays = _region("nn.group_norm", (images, channels, *spatial), 2, groups=groups)
    _check(region, arrays, groups)


@pytest.mark.parametrize("shape", [(2, 16, 9, 8), (1, 16, 9, 8), (1, 3, 40), (3, 4, 5), (1, 4, 3, 3, 3), (1, 5, 1, 1)])
def test_single_channels(shape: tuple[int, ...]) -> None:
    region, arrays = _region("nn.instance_norm", shape, 2, epsilon=1e-3)
    _check(region, arrays, shape[1], 1e-3)


def test_one_image_is_one_primitive_in_any_layout() -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 9, 8, 16)))
    y: Any = region.builder.emit("permute_dims", x, axes=(0, 3, 1, 2))
    parameters = [region.builder.param(name, tensor((16,))) for name in ("gamma", "beta")]
    y = region.builder.emit("nn.instance_norm", y, *parameters)
    region.finish(region.builder.emit("permute_dims", y, axes=(0, 2, 3, 1)))  # type: ignore[arg-type]
    arrays = [region.draw(1, 9, 8, 16), region.draw(16), region.draw(16)]
    (found,), (exact,) = region.run(*arrays), region.oracle(*arrays)
    error = _error_bound(arrays[0].reshape(72, 16).T, 1e-5).T.reshape(1, 9, 8, 16)
    assert (
        np.abs(found - exact) <= np.abs(arrays[1]) * error + 3 * UNIT * (np.abs(exact) + 2 * np.abs(arrays[2]))
    ).all()
    (line,) = region.source.splitlines()[1:]  # the result, a view of the normalised image, is written in place
    assert line.startswith("nn.instance_norm  bnorm_jit")


def test_what_follows_is_part_of_the_last_primitive() -> None:
    region = Region()
    x = region.builder.param("x", tensor((2, 16, 5, 5)))
    parameters = [region.builder.const(region.draw(16)) for _ in range(2)]
    y: Any = region.builder.emit("nn.group_norm", x, *parameters, groups=4)
    y = region.builder.emit("multiply", y, region.builder.param("scale", tensor((1, 16, 1, 1))))
    region.finish(region.builder.emit("tanh", y))  # type: ignore[arg-type]
    inputs = [region.draw(2, 16, 5, 5), region.draw(1, 16, 1, 1)]
    (found,), (exact,) = region.run(*inputs), region.oracle(*inputs)
    np.testing.assert_allclose(found, exact, rtol=0, atol=2.0**-16)
    assert "nn.group_norm + multiply + tanh" in region.source


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("op", "attrs"), [("nn.group_norm", {"groups": 2}), ("nn.instance_norm", {})])
def test_what_is_no_number_spoils_its_group_only(op: str, attrs: dict[str, Any], special: float) -> None:
    for images in (1, 2):
        region, arrays = _region(op, (images, 4, 3, 3), 2, **attrs)
        arrays[0][0, 1, 2, 0] = special
        (found,), (exact,) = region.run(*arrays), region.oracle(*arrays)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))


@pytest.mark.parametrize(("shape", "axes"), [((2, 5, 33), (-1,)), ((4, 8), (1,)), ((2, 5, 3), (1, 2)), ((7,), (0,))])
def test_root_mean_square(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    region = Region()
    sizes = tuple(shape[axis] for axis in axes)
    arrays = [region.draw(*shape), region.draw(*sizes)]
    operands = [region.builder.param(f"x{index}", tensor(array.shape)) for index, array in enumerate(arrays)]
    result = region.builder.emit("nn.rms_norm", *operands, axes=axes)
    assert not isinstance(result, tuple)
    region.finish(result)
    (found,), (exact,) = region.run(*arrays), region.oracle(*arrays)
    length = int(np.prod(sizes)) + 2
    # The sum of squares within gamma, of which a root leaves half; four more operations.
    assert (np.abs(found - exact) <= (length / 2 + 4) * UNIT * 1.01 * np.abs(exact)).all()
    assert region.source.count("nn.rms_norm") == 3
    x = arrays[0].copy()
    x.flat[0], x.flat[-1] = np.inf, 1e30
    with np.errstate(all="ignore"):
        (found,), (host,) = region.run(x, arrays[1]), region.oracle(x.astype(np.float32), arrays[1])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(host))


def test_root_mean_square_over_other_axes_is_refused() -> None:
    region = Region()
    operands = [region.builder.param("x", tensor((4, 8))), region.builder.param("g", tensor((4,)))]
    answer = region.judge(region.builder.bind("nn.rms_norm", operands, {"axes": (0,)}))
    assert isinstance(answer, Rejection)
    assert answer.text == "`nn.rms_norm`: the axes are not the last axes"
