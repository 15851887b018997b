"""Models of a node of the domain, and runs by the reference kernels, by ccompiler and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import IRModule
from byoc_core.transform import evaluate_function
from onnx import helper, numpy_helper

__all__ = [
    "Array",
    "Inputs",
    "check_node",
    "check_offload",
    "check_results",
    "import_node",
    "node_model",
    "refusal",
    "rng",
    "run_node",
    "run_onnxruntime",
]

Array = npt.NDArray[Any]
Inputs = Sequence[Array | None]

DOMAIN = "com.microsoft"


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def node_model(
    op_type: str,
    inputs: Inputs,
    outputs: int | Sequence[str] = 1,
    *,
    domain: str = DOMAIN,
    opset: int = 20,
    constants: Collection[int] = (),
    dynamic: Mapping[int, str] | None = None,
    attributes: Mapping[str, Any] | None = None,
    **attrs: Any,
) -> onnx.ModelProto:
    """Return a model of one node.

    Args:
        op_type: the operator.
        inputs: examples of the inputs; ``None`` for an omitted input.
        outputs: the number of outputs, or the names; an empty name means an omitted output.
        domain: the domain of the operator.
        opset: the version of the standard operator set.
        constants: the positions of inputs stored in the model.
        dynamic: names of dynamic sizes, by size.
        attributes: attributes with the names of other arguments.
        attrs: the attributes.
    """
    names = [f"i{index}" if array is not None else "" for index, array in enumerate(inputs)]
    present = {index: array for index, array in enumerate(inputs) if array is not None}
    infos = [
        helper.make_tensor_value_info(
            f"i{index}",
            helper.np_dtype_to_tensor_dtype(array.dtype),
            [(dynamic or {}).get(size, size) for size in array.shape],
        )
        for index, array in present.items()
        if index not in constants
    ]
    weights = [numpy_helper.from_array(present[index], f"i{index}") for index in sorted(constants) if index in present]
    results = [f"o{index}" for index in range(outputs)] if isinstance(outputs, int) else list(outputs)
    node = helper.make_node(op_type, names, results, name="the_node", domain=domain, **attrs)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in (attributes or {}).items())
    values = [onnx.ValueInfoProto(name=name) for name in results if name]
    graph = helper.make_graph([node], "g", infos, values, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def import_node(op_type: str, inputs: Inputs, outputs: int | Sequence[str] = 1, **keywords: Any) -> IRModule:
    return from_onnx(node_model(op_type, inputs, outputs, **keywords))


def _run_time(inputs: Inputs, constants: Collection[int]) -> dict[str, Array]:
    return {f"i{index}": array for index, array in enumerate(inputs) if array is not None and index not in constants}


def run_onnxruntime(
    op_type: str,
    inputs: Inputs,
    outputs: int | Sequence[str] = 1,
    *,
    constants: Collection[int] = (),
    dynamic: Mapping[int, str] | None = None,
    **keywords: Any,
) -> list[Array]:
    """Run a node in ONNX Runtime, with static sizes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    model = node_model(op_type, inputs, outputs, constants=constants, **keywords).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, _run_time(inputs, constants))]


def run_node(
    op_type: str,
    inputs: Inputs,
    outputs: int | Sequence[str] = 1,
    *,
    constants: Collection[int] = (),
    dynamic: Mapping[int, str] | None = None,
    **keywords: Any,
) -> list[Array]:
    """Return the results of the reference kernels; static and dynamic sizes give the same."""
    results = []
    for sizes in (None, dynamic) if dynamic else (None,):
        module = import_node(op_type, inputs, outputs, constants=constants, dynamic=sizes, **keywords)
        arguments = list(_run_time(inputs, constants).values())
        results.append([np.asarray(array) for array in evaluate_function(module, "main", arguments)])
    for static, sized in zip(results[0], results[-1], strict=True):
        np.testing.assert_array_equal(static, sized)
    return results[0]


def check_results(
    results: Sequence[Array], expected: Sequence[Array], error: float | None = None, steps: float = 0.0
) -> None:
    """Check results: integers may differ by ``steps``, floats by an error relative to the largest magnitude.

    Args:
        results: the results.
        expected: the expected results.
        error: the relative error; by default 64 roundings of the dtype.
        steps: the largest difference of integers.
    """
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        if not np.issubdtype(wanted.dtype, np.floating):
            assert np.abs(result.astype(np.int64) - wanted.astype(np.int64)).max(initial=0) <= steps
            continue
        bound = 64 * float(np.finfo(wanted.dtype).eps) if error is None else error
        scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
        np.testing.assert_allclose(result.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=bound * scale)


def check_node(
    op_type: str,
    inputs: Inputs,
    outputs: int | Sequence[str] = 1,
    *,
    error: float | None = None,
    steps: float = 0.0,
    **keywords: Any,
) -> list[Array]:
    """Check whether the results are those of ONNX Runtime; see :func:`check_results`."""
    results = run_node(op_type, inputs, outputs, **keywords)
    check_results(results, run_onnxruntime(op_type, inputs, outputs, **keywords), error, steps)
    return results


def check_offload(
    op_type: str,
    inputs: Inputs,
    outputs: int | Sequence[str] = 1,
    *,
    on_host: Collection[str] = (),
    error: float | None = None,
    steps: float = 0.0,
    constants: Collection[int] = (),
    **keywords: Any,
) -> None:
    """Check whether ccompiler takes all ops but ``on_host``, with the results of the reference kernels."""
    module = import_node(op_type, inputs, outputs, constants=constants, **keywords)
    executable = byoc_core.build(module, ["ccompiler"])
    taken = {op["op"] for op in executable.report_data["ops"] if op["outcome"] == "ccompiler"}
    left = {op["op"] for op in executable.report_data["ops"] if op["outcome"] == "host"}
    assert taken
    assert left == set(on_host)
    found = byoc_core.VirtualMachine(executable)["main"](*_run_time(inputs, constants).values())
    results = [np.asarray(array) for array in (found if isinstance(found, tuple | list) else (found,))]
    check_results(results, run_node(op_type, inputs, outputs, constants=constants, **keywords), error, steps)


def refusal(op_type: str, inputs: Inputs, outputs: int | Sequence[str] = 1, **keywords: Any) -> str:
    """Return the message of the refusal of a node, without the name of the node."""
    with pytest.raises(FrontendError) as caught:
        import_node(op_type, inputs, outputs, **keywords)
    return str(caught.value).removeprefix(f"ONNX model, node `the_node` ({op_type}): ")
