"""ONNX's own cases of the domain; operators on text are left to the package ``onnx``."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from byoc_core import onnx_backend


def test_cases_of_the_package_onnx() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases: list[Any] = [case for case in collect_testcases(None) if case.name.startswith("test_ai_onnx_ml_")]
    assert len(cases) >= 8
    for case in cases:
        prepared = onnx_backend.prepare(case.model)
        for inputs, outputs in case.data_sets:
            for result, wanted in zip(prepared.run(list(inputs)), outputs, strict=True):
                expected = np.asarray(wanted)
                assert (result.dtype, result.shape) == (expected.dtype, expected.shape), case.name
                if expected.dtype.kind == "f":
                    np.testing.assert_allclose(result, expected, rtol=case.rtol, atol=case.atol, err_msg=case.name)
                else:
                    np.testing.assert_array_equal(result, expected, err_msg=case.name)
