"""ONNX's own cases of casts, quantisation and attention: correct, or of element types without import."""

from __future__ import annotations

import re
import warnings
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from onnx import TensorProto, numpy_helper

_REFUSAL = re.compile("unsupported element type")


def _array(value: TensorProto | npt.ArrayLike) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


@pytest.fixture(scope="module", name="cases")
def _cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return list(collect_testcases(None))


@pytest.mark.parametrize(
    ("prefix", "at_least"),
    [
        *(("test_cast_", 25), ("test_castlike_", 50), ("test_quantizelinear", 9), ("test_dequantizelinear", 10)),
        ("test_attention_", 186),
    ],
)
def test_cases_are_right_or_of_types_that_are_not_imported(prefix: str, at_least: int, cases: list[Any]) -> None:
    right = 0
    for case in (case for case in cases if case.name.startswith(prefix)):
        try:
            run = byoc_core.VirtualMachine(byoc_core.build(from_onnx(case.model)))["main"]
        except FrontendError as refusal:
            if _REFUSAL.search(str(refusal)) is None:
                raise
            continue
        for inputs, outputs in case.data_sets:
            results = run(*map(_array, inputs))
            for result, output in zip(results if isinstance(results, tuple) else (results,), outputs, strict=True):
                found, wanted = np.asarray(result), _array(output)
                assert found.dtype == wanted.dtype, case.name
                numbers = found.astype(np.float64), wanted.astype(np.float64)
                np.testing.assert_allclose(*numbers, rtol=case.rtol, atol=case.atol, err_msg=case.name)
        right += 1
    assert right >= at_least
