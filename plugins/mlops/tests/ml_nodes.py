"""Models of a single node of the domain ``ai.onnx.ml``, imported by byoc and run in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from byoc_core.errors import FrontendError
from byoc_core.ir import IRModule
from byoc_core.transform import evaluate_function
from byoc_mlops.importers import DOMAIN
from onnx import helper

NDArray = npt.NDArray[Any]


def node_model(
    op_type: str,
    inputs: Sequence[NDArray],
    num_outputs: int = 1,
    *,
    version: int = 3,
    dynamic: bool = False,
    **attrs: Any,
) -> onnx.ModelProto:
    """Return a model of one node.

    Args:
        op_type: the operator.
        inputs: examples of the inputs.
        num_outputs: the number of outputs.
        version: the version of the domain.
        dynamic: whether the first size of each input is dynamic.
        attrs: the attributes; arrays become tensors.
    """
    names = [f"i{index}" for index in range(len(inputs))]
    infos = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            [f"n_{name}", *array.shape[1:]] if dynamic and array.ndim else array.shape,
        )
        for name, array in zip(names, inputs, strict=True)
    ]
    given = {
        name: onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in attrs.items()
    }
    outputs = [f"o{index}" for index in range(num_outputs)]
    node = helper.make_node(op_type, names, outputs, name="the_node", domain=DOMAIN, **given)
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=name) for name in outputs])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def import_model(model: onnx.ModelProto) -> IRModule:
    """Import a model; the importers are found by the metadata of the installed package."""
    return byoc_core.from_onnx(model)


def run_onnxruntime(model: onnx.ModelProto, inputs: Sequence[NDArray]) -> list[NDArray]:
    """Run a model in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {f"i{index}": array for index, array in enumerate(inputs)}
    return [np.asarray(array) for array in session.run(None, feeds)]


def run_node(op_type: str, inputs: Sequence[NDArray], num_outputs: int = 1, **keywords: Any) -> list[NDArray]:
    """Return the results of the reference kernels; static and dynamic sizes give the same."""
    results = []
    for dynamic in (False, True):
        module = import_model(node_model(op_type, inputs, num_outputs, dynamic=dynamic, **keywords))
        results.append([np.asarray(array) for array in evaluate_function(module, "main", list(inputs))])
    for static, sized in zip(*results, strict=True):
        np.testing.assert_array_equal(static, sized)
    return results[0]


def check_node(
    op_type: str, inputs: Sequence[NDArray], num_outputs: int = 1, *, error: float = 0.0, **keywords: Any
) -> list[NDArray]:
    """Check that the results are those of ONNX Runtime: integers exactly, floats within an error."""
    results = run_node(op_type, inputs, num_outputs, **keywords)
    expected = run_onnxruntime(node_model(op_type, inputs, num_outputs, **keywords), inputs)
    for result, wanted in zip(results, expected, strict=True):
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        bound = error if np.issubdtype(wanted.dtype, np.floating) else 0.0
        np.testing.assert_allclose(result, wanted, rtol=bound, atol=bound)
    return results


def refusal(op_type: str, inputs: Sequence[NDArray], num_outputs: int = 1, **keywords: Any) -> str:
    """Return the message of the refusal of a node, without the name of the node."""
    with pytest.raises(FrontendError) as caught:
        import_model(node_model(op_type, inputs, num_outputs, **keywords))
    return str(caught.value).removeprefix(f"ONNX model, node `the_node` ({op_type}): ")
