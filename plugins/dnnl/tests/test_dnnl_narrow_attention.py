"""Attention of bfloat16, and softmax by steps: the bits of the reference, and ONNX's own cases."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import tensor
from byoc_core.opset.families import KERNELS
from byoc_dnnl.engine import open_engine
from byoc_dnnl.precision import lacks_instructions
from onnx import TensorProto, numpy_helper

from core.tests.onnx_node_cases import node_cases
from plugins.dnnl.tests.dnnl_region import Region, emit

needs_bfloat16 = pytest.mark.skipif(
    lacks_instructions(open_engine().isa, "bfloat16"), reason="oneDNN has no instructions for bfloat16 here"
)


def _multiples(*shape: int) -> Any:
    """Return multiples of a quarter from 0 to 4: exponentials of their differences are far from ties."""
    steps = np.arange(17) / 4
    exact = np.exp(-steps)
    for factor in (1 - 2.0**-20, 1 + 2.0**-20):
        assert ((exact * factor).astype(to_numpy("bfloat16")) == exact.astype(to_numpy("bfloat16"))).all()
    return np.random.default_rng(0).choice(steps, shape).astype(to_numpy("bfloat16"))


@pytest.mark.parametrize("missing", ["", "byoc_dnnl.native.extension", "byoc_dnnl.native.vector_function"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_softmax_by_steps_has_the_bits_of_the_reference(
    dtype: str, axis: int, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacks_instructions(open_engine().isa, dtype):
        pytest.skip(f"oneDNN has no instructions for {dtype} here")
    if missing:
        monkeypatch.setattr(missing, lambda *_: None)
    region = Region()
    x = region.builder.param("x", tensor((3, 20, 5), dtype))
    region.finish(emit(region, "nn.stepwise_softmax", x, axis=axis))
    assert "nn.stepwise_softmax  byoc" in region.source
    array = _multiples(3, 20, 5).astype(to_numpy(dtype))
    np.testing.assert_array_equal(region.run(array)[0], KERNELS["nn.stepwise_softmax"](array, axis=axis))


def _scores(softmax: str, *, has_weights: bool = False, is_given: bool = False) -> Region:
    """Return a region of a product, a mask and a softmax; the masked scores may be a result too."""
    region = Region()
    x, y, m = (region.builder.param(name, tensor((2, 16, 16), "bfloat16")) for name in "xym")
    right = region.builder.const(_multiples(16, 16)) if has_weights else y
    scores = emit(region, "add", emit(region, "matmul", x, right), m)
    weights = emit(region, softmax, scores, axis=2)
    return region.finish(weights, scores) if is_given else region.finish(weights)


@needs_bfloat16
@pytest.mark.parametrize("is_given", [False, True])
def test_scores_are_rounded_before_a_softmax_by_steps(is_given: bool) -> None:
    """A follower of a product is no post-op there: a post-op would add to unrounded values."""
    region = _scores("nn.stepwise_softmax", is_given=is_given)
    assert "matmul + add" not in region.source
    arrays = [_multiples(2, 16, 16) for _ in range(3)]  # products and sums of quarters are exact in float32
    scores = (arrays[0].astype(np.float32) @ arrays[1].astype(np.float32)).astype(arrays[0].dtype) + arrays[2]
    found = region.run(*arrays)
    np.testing.assert_array_equal(found[0], KERNELS["nn.stepwise_softmax"](scores, axis=2))
    if is_given:
        np.testing.assert_array_equal(found[1], scores)


@needs_bfloat16
def test_scores_of_other_attentions_are_rounded_too() -> None:
    """A product of two computed matrices belongs to an attention, for any dtype of the softmax."""
    assert "matmul + add" not in _scores("nn.softmax").source
    assert "matmul + add" in _scores("nn.softmax", has_weights=True).source
    assert "matmul + add" not in _scores("nn.stepwise_softmax", has_weights=True).source


@needs_bfloat16
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rows_that_see_nothing_are_zeros(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lacks_instructions(open_engine().isa, dtype):
        pytest.skip(f"oneDNN has no instructions for {dtype} here")
    array = np.zeros((4, 40))
    array[0], array[1, 20:], array[2, 7] = -np.inf, -np.inf, np.inf
    narrow = array.astype(to_numpy(dtype))
    for missing in ("", "byoc_dnnl.native.extension", "byoc_dnnl.native.vector_function"):
        if missing:
            monkeypatch.setattr(missing, lambda *_: None)
        region = Region()
        x = region.builder.param("x", tensor((4, 40), dtype))
        region.finish(emit(region, "nn.stepwise_softmax", x, axis=1, zero_unseen=True))
        found = region.run(narrow)[0].astype(np.float64)
        assert (found[0] == 0).all()
        expected = np.asarray(KERNELS["nn.stepwise_softmax"](narrow, axis=1, zero_unseen=True))
        np.testing.assert_array_equal(found, expected.astype(np.float64))


def _array(value: TensorProto | npt.ArrayLike) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


@needs_bfloat16
def test_onnx_cases_of_attention_of_bfloat16_are_right_and_taken() -> None:
    cases = node_cases("attention")
    cases = [c for c in cases if c.model.graph.input[0].type.tensor_type.elem_type == TensorProto.BFLOAT16]
    assert len(cases) >= 10
    for case in cases:
        byoc_core.explain(from_onnx(case.model), ["dnnl"]).require_offload(0.9)
        run = byoc_core.VirtualMachine(byoc_core.build(from_onnx(case.model), ["dnnl"]))["main"]
        for inputs, outputs in case.data_sets:
            result, output = np.asarray(run(*map(_array, inputs))), _array(outputs[0])
            numbers = result.astype(np.float64), output.astype(np.float64)
            np.testing.assert_allclose(*numbers, rtol=case.rtol, atol=case.atol, err_msg=case.name)
