"""Attention: numbers against float64, masks hiding keys, the resulting primitives, cases left to others."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.backend.hooks import Rejection, Support
from byoc_core.ir import TensorType, Var, tensor
from byoc_core.opset.families import KERNELS
from byoc_dnnl.lowerings import product
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import UNIT, Region, emit, need_avx512

NDArray = npt.NDArray[Any]
Shape = tuple[int, ...]
LOWEST = np.finfo(np.float32).min


def _attention(query: Shape, key: Shape, width: int, mask: Shape | None = None, **attrs: object) -> Region:
    region = Region()
    shapes = [query, key, (*key[:3], width), *([] if mask is None else [mask])]
    params = [region.builder.param(f"x{number}", tensor(shape)) for number, shape in enumerate(shapes)]
    (binding,) = (region.builder.bind("nn.attention", params, attrs),)
    return region.finish(*binding.results)


def _draw(region: Region) -> list[NDArray]:
    types = [param.type for param in region.function.params]
    assert all(isinstance(type_, TensorType) for type_ in types)
    return [region.draw(*_sizes(type_)) for type_ in types if isinstance(type_, TensorType)]


def _sizes(type_: TensorType) -> list[int]:
    return [dim for dim in type_.shape or () if isinstance(dim, int)]


def _gamma(length: int) -> float:
    return length * UNIT / (1 - length * UNIT)


def _bound(inputs: list[NDArray], scale: float, softcap: float = 0.0) -> NDArray:
    """Return the largest distance of the result from the exact result (Higham, section 3.1, carried through exp).

    A score has the error of a sum of ``D`` products, the scale and the mask; a softcap reduces these errors and adds
    the errors of tanh. Weights have twice the largest of these as relative error, and the errors of exp, of a sum of
    ``T`` terms and of a quotient; the result also has the error of a sum of ``T`` products.
    """
    query, key, value, *masks = (array.astype(np.float64) for array in inputs)
    repeats = query.shape[1] // key.shape[1]
    key, value = (np.repeat(array, repeats, axis=1) for array in (key, value))
    products = query @ key.swapaxes(2, 3) * scale
    sizes = np.abs(query) @ np.abs(key).swapaxes(2, 3) * abs(scale)
    scores = softcap * np.tanh(products / softcap) if softcap else products
    sizes = sizes + 16 * abs(softcap)
    for mask in masks:
        scores = scores + mask
        sizes = sizes + np.where(np.isfinite(mask), np.abs(scores), 0)
    weights = np.exp(scores - scores.max(3, keepdims=True))
    weights = weights / weights.sum(3, keepdims=True)
    error = np.expm1(2 * (_gamma(query.shape[3] + 4) * np.where(weights > 0, sizes, 0)).max(3, keepdims=True))
    length = key.shape[2]
    return np.asarray((weights @ np.abs(value)) * (error + _gamma(2 * length + 16)))


def _check(region: Region, inputs: list[NDArray], scale: float, softcap: float = 0.0) -> None:
    (found,), (exact,) = region.run(*inputs), region.oracle(*inputs)
    assert found.shape == exact.shape
    excess = np.abs(found.astype(np.float64) - exact) - _bound(inputs, scale, softcap)
    assert excess.max() <= 0, excess.max()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_attention_of_any_geometry_is_that_of_float64(data: st.DataObject) -> None:
    batch, groups, repeats = (data.draw(st.integers(1, 3)) for _ in range(3))
    steps, length, size, width = (data.draw(st.integers(1, 40)) for _ in range(4))
    scores = (batch, groups * repeats, steps, length)
    mask = data.draw(
        st.none()
        | st.tuples(*(st.sampled_from((1, whole)) for whole in scores))
        | st.just(scores[2:])
        | st.just((length,))
    )
    scale = data.draw(st.sampled_from((None, 0.125, 0.3)))
    softcap = data.draw(st.sampled_from((0.0, 2.5)))
    region = _attention(
        (batch, groups * repeats, steps, size), (batch, groups, length, size), width, mask, scale=scale, softcap=softcap
    )
    (binding,) = region.function.bindings
    if isinstance(region.judge(binding), Rejection):
        assert mask is not None  # of a mask that oneDNN cannot repeat so
        return
    inputs = _draw(region)
    _check(region, inputs, size**-0.5 if scale is None else scale, softcap)


@pytest.mark.parametrize("mask", [(2, 1, 1, 9), (2, 1, 5, 9), (5, 9), (9,), (1, 4, 5, 9), (2, 4, 5, 9)])
def test_masks_that_models_have_are_taken(mask: Shape) -> None:
    region = _attention((2, 4, 5, 8), (2, 4, 9, 8), 8, mask)
    (binding,) = region.function.bindings
    assert isinstance(region.judge(binding), Support)
    inputs = _draw(region)
    _check(region, inputs, 8**-0.5)


@pytest.mark.parametrize("hidden", [-np.inf, LOWEST, -1e30])
def test_hidden_keys_are_not_seen(hidden: float) -> None:
    region = _attention((1, 2, 5, 8), (1, 2, 40, 8), 8, (1, 1, 5, 40))
    inputs = _draw(region)
    inputs[3][...] = 0
    inputs[3][..., 20:] = hidden
    inputs[3][0, 0, 3, 1:] = hidden
    (found,) = region.run(*inputs)
    np.testing.assert_array_equal(found[0, :, 3], inputs[2][0, :, 0])
    shown = [inputs[0], *(array[:, :, :20] for array in inputs[1:3]), inputs[3][..., :20]]
    alone = _attention((1, 2, 5, 8), (1, 2, 20, 8), 8, (1, 1, 5, 20))
    (exact,) = alone.oracle(*shown)
    assert (np.abs(found - exact) <= _bound(shown, 8**-0.5)).all()


def test_a_step_that_sees_no_key_gives_nan() -> None:
    region = _attention((1, 1, 4, 8), (1, 1, 6, 8), 3, (4, 6))
    inputs = _draw(region)
    inputs[3][1] = -np.inf
    (found,) = region.run(*inputs)
    np.testing.assert_array_equal(np.isnan(found).all(3), [[[False, True, False, False]]])
    assert np.isfinite(found[0, 0, [0, 2, 3]]).all()


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_goes_where_it_does_in_float64(place: int, number: float) -> None:
    region = _attention((1, 2, 5, 8), (1, 2, 20, 8), 8)
    inputs = _draw(region)
    inputs[place][0, 1, 2, 3] = number
    (found,), (exact,) = region.run(*inputs), region.oracle(*inputs)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(exact))


def test_a_softmax_whose_rows_are_not_summed_up_is_checked() -> None:
    region = Region()
    x = region.builder.param("x", tensor((6, 40)))
    region.finish(emit(region, "nn.softmax", x, axis=1))
    assert "check for nn.softmax" in region.source
    array = region.draw(6, 40)
    array[0, 1:] = -np.inf
    (found,), (exact,) = region.run(array), region.oracle(array)
    np.testing.assert_allclose(found, exact, rtol=64 * 2 * UNIT)  # a sum of 40 terms, exp, a quotient
    array[1, 3], array[2, 5], array[3] = np.nan, np.inf, -np.inf
    (found,), (exact,) = region.run(array), region.oracle(array)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    assert np.isnan(found[1:4]).all()


@pytest.mark.parametrize("stage", ["products", "capped", "masked", "weights"])
def test_the_scores_are_a_second_result(stage: str) -> None:
    region = _attention((1, 2, 5, 8), (1, 2, 9, 8), 8, (5, 9), scores=stage, softcap=1.5)
    inputs = _draw(region)
    _, found = region.run(*inputs)
    (binding,) = region.function.bindings
    exact: Any = KERNELS["nn.attention"](*(array.astype(np.float64) for array in inputs), **binding.attrs)[1]
    size = np.abs(inputs[0]).astype(np.float64) @ np.abs(inputs[1]).swapaxes(2, 3) * 8**-0.5
    error = _gamma(8 + 4) * (size + 16 * 1.5 + np.abs(inputs[3])).max()
    assert np.abs(found - exact).max() <= error * (4 if stage == "weights" else 1)


@pytest.mark.parametrize(
    "attrs", [{"causal": True}, {"causal": True, "offset": 2}, {"zero_unseen": True}], ids=["causal", "offset", "zeros"]
)
def test_what_hides_scores_otherwise_than_by_adding_is_left_to_others(attrs: dict[str, Any]) -> None:
    region = _attention((1, 2, 5, 8), (1, 2, 9, 8), 8, **attrs)
    (binding,) = region.function.bindings
    answer = region.judge(binding)
    assert isinstance(answer, Rejection)
    limits = "in float32 only, not causal, and without zeros for steps without visible keys"
    assert answer.text == f"`nn.attention`: supported {limits}"


_SCALE = 128.0
"""A scale for integer scores: a step sees the keys with the largest score, and no other."""


def _layer(sequence: int, hidden: int, heads: int, *, is_normed: bool) -> Region:
    """Return self-attention of a layer of integers: queries, keys, values, attention, a product, the residual."""
    region = Region()
    x = region.builder.param("x", tensor((1, sequence, hidden)))

    def linear(value: Var) -> Var:
        value = emit(region, "matmul", value, region.builder.const(np.sign(region.draw(hidden, hidden))))
        return emit(region, "add", value, region.builder.const(np.rint(4 * region.draw(hidden))))

    parts = []
    for _ in range(3):
        split = emit(region, "reshape", linear(x), shape=(1, sequence, heads, hidden // heads))
        parts.append(emit(region, "permute_dims", split, axes=(0, 2, 1, 3)))
    attended = emit(region, "nn.attention", *parts, scale=_SCALE)
    joined = emit(
        region, "reshape", emit(region, "permute_dims", attended, axes=(0, 2, 1, 3)), shape=(1, sequence, hidden)
    )
    result = emit(region, "add", linear(joined), x)
    if is_normed:
        ones, zeros = (region.builder.const(np.full(hidden, number, np.float32)) for number in (1, 0))
        result = emit(region, "nn.layer_norm", result, ones, zeros)
    return region.finish(result)


def _check_layer(sequence: int, hidden: int, heads: int) -> None:
    """Check the steps of the layer seeing a single key in each head for exact results: integers exact in float32."""
    region = _layer(sequence, hidden, heads, is_normed=False)
    x = np.rint(2 * region.draw(1, sequence, hidden))
    (found,), (exact,) = region.run(x), region.oracle(x)
    steps = (exact == np.rint(exact)).all(2)
    assert steps.mean() > 0.9
    np.testing.assert_array_equal(found[steps], exact[steps])


def _titles(region: Region) -> list[str]:
    """Return the computations of the steps; products use the implementation accepting all layouts."""
    lines = [line for line in region.source.splitlines()[1:] if not line.startswith("pack")]
    assert all("  brg" in line for line in lines if line.startswith("matmul"))
    return [line.split("  ")[0] for line in lines]


def test_a_layer_moves_nothing() -> None:
    need_avx512()
    expected = [*["matmul + add"] * 3, "matmul + multiply", "nn.softmax", "matmul", "matmul + add + add"]
    assert _titles(_layer(20, 96, 4, is_normed=True)) == [*expected, "nn.layer_norm"]
    _check_layer(20, 96, 4)


def test_a_layer_with_large_weights_has_its_rows_innermost(monkeypatch: pytest.MonkeyPatch) -> None:
    need_avx512()
    monkeypatch.setattr(product, "_WITHOUT_TILES", product._WITH_TILES)
    expected = ["reorder", "matmul + add", "matmul + add", "matmul + add", "matmul + multiply", "nn.softmax", "matmul"]
    last = ["reorder", "matmul + add + add", "reorder", "nn.layer_norm"]
    assert _titles(_layer(64, 512, 8, is_normed=True)) == [*expected, *last]
    _check_layer(64, 512, 8)


def test_attention_is_offloaded_as_a_whole() -> None:
    region = _layer(20, 96, 4, is_normed=True)
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error")
    x = region.draw(1, 20, 96)
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["f"](x), region.run(x)[0])
