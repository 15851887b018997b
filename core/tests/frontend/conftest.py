"""Models of one node, and ONNX Runtime as their oracle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.module import IRModule
from byoc_core.transform.evaluate import evaluate_function
from onnx import helper, numpy_helper

Array = np.ndarray[tuple[int, ...], np.dtype[Any]]

OLDEST, NEWEST = 7, 26
"""The oldest opset imported, and the newest opset of the oracle."""


def opsets_of(cases: ModuleType, op_type: str) -> list[int]:
    """Return the opsets for comparing an op with ONNX Runtime: the opsets changing the op, and the newest.

    A file of cases may declare opsets missing in the oracle: ``NEWEST_OF`` has the last opset of an op ending earlier,
    and ``WITHOUT_KERNEL`` the ops missing altogether.
    """
    if op_type in getattr(cases, "WITHOUT_KERNEL", ()):
        return []
    newest = getattr(cases, "NEWEST_OF", {}).get(op_type, NEWEST)
    since = {
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == op_type and schema.domain == "" and schema.since_version <= newest
    }
    return sorted({max(version, OLDEST) for version in since} | {newest})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of ``op_type`` and ``opset`` for every op of the file's ``_CASES`` and all opsets."""
    is_given = any(metafunc.definition.iter_markers("parametrize"))
    if not is_given and {"op_type", "opset"} <= set(metafunc.fixturenames):
        file = metafunc.module
        names = [(op_type, opset) for op_type in sorted(file._CASES) for opset in opsets_of(file, op_type)]
        metafunc.parametrize(("op_type", "opset"), names)


@dataclass(frozen=True)
class Case:
    """A node with inputs: the constants, the number of outputs, and whether results are exact.

    Inputs of exact cases are small integers, so no sum rounds. For inexact cases, ``terms`` is the largest sum of
    magnitudes added up to a result, if the magnitudes are above 1 and may cancel: the rounding error of float32 is
    proportional (Higham, Accuracy and Stability, section 3.1).
    """

    inputs: Sequence[Array | None]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    constants: Collection[int] = ()
    num_outputs: int = 1
    exact: bool = True
    terms: float = 1.0


def build_node_model(op_type: str, opset: int, case: Case, *, dynamic: bool = False) -> onnx.ModelProto:
    """Return a model of a single node; with ``dynamic``, all sizes of the inputs are unnamed dynamic sizes."""
    names = ["" if array is None else f"i{index}" for index, array in enumerate(case.inputs)]
    present = [
        (index, name, array)
        for index, (name, array) in enumerate(zip(names, case.inputs, strict=True))
        if array is not None
    ]
    node = helper.make_node(
        op_type, names, [f"o{index}" for index in range(case.num_outputs)], name="the_node", **case.attrs
    )
    graph = helper.make_graph(
        [node],
        "one_node",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim if dynamic else array.shape
            )
            for index, name, array in present
            if index not in case.constants
        ],
        [onnx.ValueInfoProto(name=name) for name in node.output],
        [numpy_helper.from_array(array, name) for index, name, array in present if index in case.constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Run a model in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # takes longer than all calls
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feeds))]


def run_imported(module: IRModule, feeds: Mapping[str, Array], *, exact: bool = False) -> tuple[Array, ...]:
    """Run an imported model with the reference kernels; with ``exact``, in float64."""
    return evaluate_function(module, "main", [feeds[name] for name in module["main"].input_names], exact=exact)


def _check_model(
    model: onnx.ModelProto, feeds: Mapping[str, Array], *, exact: bool = True, terms: float = 1.0
) -> IRModule:
    module = from_onnx(model)
    expected = run_onnxruntime(model, feeds)
    results = run_imported(module, feeds)
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        assert result.shape == wanted.shape
        # ONNX Runtime's transcendental functions are some units in the last place off.
        np.testing.assert_allclose(result, wanted, rtol=0 if exact else 2**-19, atol=0 if exact else 2**-21 * terms)
    return module


@pytest.fixture(scope="session")
def check_model() -> Callable[..., IRModule]:
    """Return a function importing a model, comparing the results with ONNX Runtime, and returning the module."""
    return _check_model


@pytest.fixture(scope="session")
def check_case() -> Callable[..., IRModule]:
    """Return a function checking a model of a single node in the same way."""

    def check(op_type: str, opset: int, case: Case, *, dynamic: bool = False) -> IRModule:
        feeds = {
            f"i{index}": array
            for index, array in enumerate(case.inputs)
            if array is not None and index not in case.constants
        }
        model = build_node_model(op_type, opset, case, dynamic=dynamic)
        return _check_model(model, feeds, exact=case.exact, terms=case.terms)

    return check


@pytest.fixture(scope="session")
def make_case() -> type[Case]:
    """Return the class of cases."""
    return Case


@pytest.fixture(scope="session")
def node_model() -> Callable[..., onnx.ModelProto]:
    """Return the function building a model of a single node."""
    return build_node_model


@pytest.fixture(scope="session")
def run() -> Callable[..., Sequence[Array]]:
    """Return a function running an ONNX model in ONNX Runtime, or an imported model with the reference kernels."""

    def run_model(
        model: onnx.ModelProto | IRModule, feeds: Mapping[str, Array], *, exact: bool = False
    ) -> Sequence[Array]:
        if isinstance(model, IRModule):
            return run_imported(model, feeds, exact=exact)
        return run_onnxruntime(model, feeds)

    return run_model


@pytest.fixture(scope="session")
def compared_models(
    load_case_files: Callable[[Path, str], list[ModuleType]],
) -> Callable[[], Iterator[onnx.ModelProto]]:
    """Return a function listing the models of the newest opset of each op, all compared with ONNX Runtime."""

    def models() -> Iterator[onnx.ModelProto]:
        for file in load_case_files(Path(__file__).parent, "test_onnx_ops*.py"):
            for op_type, make_cases in file._CASES.items():
                for opset in opsets_of(file, op_type)[-1:]:
                    for case in make_cases(opset):
                        is_node = isinstance(case, dict)
                        yield build_node_model(op_type, opset, Case(**case)) if is_node else file._model(case[0], opset)

    return models


@pytest.fixture(scope="session")
def all_import_cases(gather_cases: Callable[[Path, str], set[str]]) -> Callable[[], set[str]]:
    """Return a function listing the ONNX ops with a case in some file."""
    return lambda: gather_cases(Path(__file__).parent, "test_onnx_ops*.py")
