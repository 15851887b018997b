"""Gradients through ONNX's operators: the package's own cases, differentiated by all inputs of floats."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import IRModule, verify
from byoc_core.transform import evaluate_function
from onnx import TensorProto, helper, numpy_helper

from core.tests.transform.gradients.differences import STEP

DOMAIN = "ai.onnx.preview.training"
_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)
_CONSTANTS = 2.0**-20
"""The error of a gradient by constants rounded to float32, relative to the sum of magnitudes."""
_ROUNDINGS = 2.0**8 * float(np.finfo(np.float64).eps)


@pytest.fixture(scope="module", name="cases")
def _cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return list(collect_testcases(None))


def _differentiated(model: onnx.ModelProto, variables: list[str]) -> IRModule:
    """Return a model with its first output, and the gradients of this output by some inputs."""
    graph = onnx.ModelProto.FromString(model.SerializeToString())
    names = [value.name for value in model.graph.input]
    fixed = [name for name in names if name not in variables]
    outputs = [f"gradient{index}" for index in range(len(variables))]
    attrs: dict[str, Any] = {"xs": variables, "y": model.graph.output[0].name, **({"zs": fixed} if fixed else {})}
    graph.graph.node.append(helper.make_node("Gradient", [*variables, *fixed], outputs, domain=DOMAIN, **attrs))
    graph.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    del graph.graph.output[1:]
    graph.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    return verify(from_onnx(graph))


def _run(module: IRModule, arrays: dict[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
    return evaluate_function(module, "main", [arrays[name] for name in module["main"].input_names], exact=True)


def _check(case: Any) -> bool:
    """Check a case against the slope along a direction; return whether the case has inputs of floats."""
    inputs = case.model.graph.input
    variables = [value.name for value in inputs if value.type.tensor_type.elem_type in _FLOATS]
    if not variables:
        return False
    module = _differentiated(case.model, variables)
    arrays = {
        value.name: numpy_helper.to_array(data) if isinstance(data, TensorProto) else np.asarray(data)
        for value, data in zip(inputs, case.data_sets[0][0], strict=True)
    }
    result, *gradients = _run(module, arrays)
    assert [array.shape for array in gradients] == [arrays[name].shape for name in variables]
    generator = np.random.default_rng(1)
    directions = {name: generator.choice((-1.0, 1.0), arrays[name].shape) for name in variables}

    def total(step: float) -> float:
        moved = {name: arrays[name].astype(np.float64) + step * direction for name, direction in directions.items()}
        return float(_run(module, {**arrays, **moved})[0].sum())

    near, far = ((total(step) - total(-step)) / (2 * step) for step in (STEP, 2 * STEP))
    found = sum(float(np.sum(g * directions[name])) for name, g in zip(variables, gradients, strict=True))
    magnitudes = sum(float(np.abs(gradient).sum()) for gradient in gradients)
    noise = _ROUNDINGS * float(np.abs(result).sum()) / STEP + _CONSTANTS * magnitudes
    assert found == pytest.approx((4 * near - far) / 3, rel=0, abs=abs(far - near) + noise), case.name
    return True


@pytest.mark.parametrize(
    ("prefix", "count"),
    [
        *(("test_gemm_", 11), ("test_matmul_", 5), ("test_einsum_inner", 1), ("test_einsum_sum", 1)),
        *(("test_basic_conv_", 2), ("test_conv_with_", 4), ("test_convtranspose", 11), ("test_averagepool_", 18)),
        *(("test_globalaveragepool", 2), ("test_lppool_", 8), ("test_lrn", 2)),
        *(("test_batchnorm_", 4), ("test_layer_normalization_", 19), ("test_group_normalization_", 2)),
        *(("test_instancenorm", 2), ("test_rms_normalization_", 19), ("test_mvn", 1)),
        *(("test_softmax_", 7), ("test_logsoftmax_", 7), ("test_sce_", 34), ("test_nllloss_", 18)),
        *(("test_attention_4d", 20), ("test_gelu_", 4), ("test_swish", 1)),
        *(("test_gather_", 4), ("test_slice", 8), ("test_concat_", 6), ("test_tile", 2), ("test_expand_", 2)),
        *(("test_reduce_log_sum_exp_", 8), ("test_reduce_prod_", 8), ("test_reduce_mean_", 8), ("test_reduce_l2_", 8)),
        *(("test_resize_upsample_sizes_", 5), ("test_constant_pad", 2)),
    ],
)
def test_slopes(prefix: str, count: int, cases: list[Any]) -> None:
    """The counts are those of the package `onnx` at least; expanded cases have several operators."""
    found = [case for case in cases if case.name.startswith(prefix) and "nan_robustness" not in case.name]
    found = [case for case in found if "fullymasked" not in case.name and "structural_empty" not in case.name]
    found = [case for case in found if "empty_set" not in case.name]
    assert sum(map(_check, found)) >= count
