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
"""The oldest opset that is imported, and the newest of the oracle."""


def opsets_of(cases: ModuleType, op_type: str) -> list[int]:
    """Gives the opsets at which an op is compared with ONNX Runtime: those that changed it, and the newest.

    A file of cases may say that the oracle lacks some: ``NEWEST_OF`` has the last one of an op that ends earlier, and
    ``WITHOUT_KERNEL`` the ops that it lacks altogether.
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
    """Runs a test of ``op_type`` and ``opset`` for every op of its file's ``_CASES`` and all of its opsets."""
    is_given = any(metafunc.definition.iter_markers("parametrize"))
    if not is_given and {"op_type", "opset"} <= set(metafunc.fixturenames):
        file = metafunc.module
        names = [(op_type, opset) for op_type in sorted(file._CASES) for opset in opsets_of(file, op_type)]
        metafunc.parametrize(("op_type", "opset"), names)


@dataclass(frozen=True)
class Case:
    """One node with inputs: which are constants, how many outputs, and whether results are exact.

    Inputs of exact cases are small integers, so no sum rounds. Of others ``terms`` is the largest sum of magnitudes
    that a result may be added up from, where these are above 1 and may cancel: what float32 rounds goes by it (Higham,
    Accuracy and Stability, section 3.1).
    """

    inputs: Sequence[Array | None]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    constants: Collection[int] = ()
    num_outputs: int = 1
    exact: bool = True
    terms: float = 1.0


def build_node_model(op_type: str, opset: int, case: Case, *, dynamic: bool = False) -> onnx.ModelProto:
    """Gives a model of one node; with ``dynamic`` all sizes of its inputs are unnamed dynamic sizes."""
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
    """Runs a model in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feeds))]


def run_imported(module: IRModule, feeds: Mapping[str, Array], *, exact: bool = False) -> tuple[Array, ...]:
    """Runs an imported model with the reference kernels; with ``exact`` in float64."""
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
    """Gives a function that imports a model, compares it with ONNX Runtime, and gives the module."""
    return _check_model


@pytest.fixture(scope="session")
def check_case() -> Callable[..., IRModule]:
    """Gives a function that does so for a model of one node."""

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
    """Gives the class of cases."""
    return Case


@pytest.fixture(scope="session")
def node_model() -> Callable[..., onnx.ModelProto]:
    """Gives the function that builds a model of one node."""
    return build_node_model


@pytest.fixture(scope="session")
def run() -> Callable[..., Sequence[Array]]:
    """Gives a function that runs an ONNX model in ONNX Runtime, or an imported one with the reference kernels."""

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
    """Gives a function that gives every model of a file of cases, all of which are compared with ONNX Runtime."""

    def models() -> Iterator[onnx.ModelProto]:
        for file in load_case_files(Path(__file__).parent, "test_onnx_ops*.py"):
            for op_type, make_cases in file._CASES.items():
                for opset in opsets_of(file, op_type):
                    for case in make_cases(opset):
                        is_node = isinstance(case, dict)
                        yield build_node_model(op_type, opset, Case(**case)) if is_node else file._model(case[0], opset)

    return models


@pytest.fixture(scope="session")
def all_import_cases(gather_cases: Callable[[Path, str], set[str]]) -> Callable[[], set[str]]:
    """Gives a function that gives the ONNX ops for which some file of cases has one."""
    return lambda: gather_cases(Path(__file__).parent, "test_onnx_ops*.py")
