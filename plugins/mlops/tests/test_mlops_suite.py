"""ONNX's own cases of the domain: right, or refused for text."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from byoc_core.errors import FrontendError
from byoc_core.transform import evaluate_function

from plugins.mlops.tests.ml_nodes import import_model

TEXT = {f"test_ai_onnx_ml_label_encoder_{case}" for case in (
    "string_int", "string_int_no_default", "tensor_mapping", "tensor_value_only_mapping"
)}  # fmt: skip
"""The cases mapping text."""


def test_cases_of_the_package_onnx() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases: list[Any] = [case for case in collect_testcases(None) if case.name.startswith("test_ai_onnx_ml_")]
    right = set()
    for case in cases:
        if case.name in TEXT:
            with pytest.raises(FrontendError):
                import_model(case.model)
            continue
        module = import_model(case.model)
        for inputs, outputs in case.data_sets:
            results = evaluate_function(module, "main", [np.asarray(array) for array in inputs])
            for result, wanted in zip(results, outputs, strict=True):
                assert (result.dtype, result.shape) == (np.asarray(wanted).dtype, np.shape(wanted)), case.name
                np.testing.assert_allclose(result, wanted, rtol=case.rtol, atol=case.atol, err_msg=case.name)
        right.add(case.name.removeprefix("test_ai_onnx_ml_"))
    assert right >= {
        "array_feature_extractor",
        "binarizer",
        "tree_ensemble_set_membership",
        "tree_ensemble_single_tree",
    }
