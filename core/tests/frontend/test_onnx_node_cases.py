"""Families of ONNX's own cases: all are right, in type, shape and number."""

from __future__ import annotations

import warnings
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.frontend.onnx import from_onnx
from onnx import TensorProto, numpy_helper


def _array(value: TensorProto | npt.ArrayLike) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


@pytest.fixture(scope="module", name="cases")
def _cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case import model, node

        return [*node.collect_testcases(None), *model.collect_testcases()]


@pytest.mark.parametrize(
    ("prefix", "count"),
    [
        *(("test_cast_", 60), ("test_castlike_", 112), ("test_quantizelinear", 13), ("test_dequantizelinear", 14)),
        *(("test_attention_", 186), ("test_bitcast_", 10), ("test_reduce_", 132), ("test_slice", 8)),
        *(("test_gridsample", 18), ("test_roialign", 3), ("test_nonmaxsuppression", 10)),
        *(("test_dft", 10), ("test_stft", 2), ("test_melweightmatrix", 1), ("test_det_", 2)),
        *(("test_dropout_", 6), ("test_training_dropout", 6)),
        *(("test_col2im", 5), ("test_basic_deform_conv", 2), ("test_deform_conv", 2), ("test_maxpool", 19)),
        *(("test_lstm_", 6), ("test_gru_", 6), ("test_rnn_", 1), ("test_simple_rnn_", 5)),
        *(("test_affine_grid_2d", 4), ("test_affine_grid_3d_expanded", 1)),
        *(("test_maxunpool", 2), ("test_convtranspose", 11)),
        *((f"test_resize_downsample_{case}_antialias", 1) for case in ("scales_cubic", "scales_linear")),
        *((f"test_resize_downsample_{case}_antialias", 1) for case in ("sizes_cubic", "sizes_linear")),
        *(
            ("test_flexattention", 11),
            ("test_adagrad", 2),
            ("test_adam", 2),
            ("test_momentum", 2),
            ("test_nesterov", 1),
            ("test_gradient_of_", 2),
        ),
    ],
)
def test_cases_are_right(prefix: str, count: int, cases: list[Any]) -> None:
    """The counts are those of the package `onnx` at least."""
    found = [case for case in cases if case.name.startswith(prefix)]
    for case in found:
        run = byoc_core.VirtualMachine(byoc_core.build(from_onnx(case.model), []))["main"]
        for inputs, outputs in case.data_sets:
            results = run(*map(_array, inputs))
            for result, output in zip(results if isinstance(results, tuple) else (results,), outputs, strict=True):
                actual, wanted = np.asarray(result), _array(output)
                assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape), case.name
                numbers = actual.astype(np.float64), wanted.astype(np.float64)
                np.testing.assert_allclose(*numbers, rtol=case.rtol, atol=case.atol, err_msg=case.name)
    assert len(found) >= count
