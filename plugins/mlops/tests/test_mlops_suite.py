"""ONNX's own cases of the domain; operators on text are left to the package ``onnx``."""

from __future__ import annotations

import numpy as np
from byoc_core import onnx_backend

from core.tests.onnx_node_cases import node_cases


def test_cases_of_the_package_onnx() -> None:
    cases = node_cases("ai_onnx_ml")
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
