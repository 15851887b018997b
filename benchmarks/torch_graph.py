"""ONNX models of feed-forward networks as functions of PyTorch, an op of ``torch.nn.functional`` for each node.

Shapes must be fixed: ONNX Runtime's basic optimisations first fold the computation of shapes, and fold batch
normalisation into the preceding convolutions. A product with weights and a bias is a single ``linear``.
"""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import onnx
from onnx import helper, numpy_helper

__all__ = ["to_torch"]

Attributes = Mapping[str, Any]


def to_torch(path: Path, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return the function of a model, traced, frozen and optimised for inference.

    Args:
        path: the model's file.
        inputs: tensors of the model's inputs, in order; examples of the function's arguments.

    Returns:
        A function returning the tuple of the model's outputs.

    Raises:
        ValueError: a node has no translation here.
    """
    graph = _fold(path).graph
    _join_biases(graph)
    torch: Any = import_module("torch")
    operations = _operations(torch)
    for node in graph.node:
        if node.op_type not in operations:
            raise ValueError(f"{path}: `{node.op_type}` has no translation to PyTorch here")
    weights = {tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in graph.initializer}
    nodes = [(node, {a.name: helper.get_attribute_value(a) for a in node.attribute}) for node in graph.node]
    names = [value.name for value in graph.input if value.name not in weights]

    def forward(_: Any, *tensors: Any) -> tuple[Any, ...]:
        values = {**weights, **dict(zip(names, tensors, strict=True))}
        for node, attributes in nodes:
            operands = [values[name] if name else None for name in node.input]
            values[node.output[0]] = operations[node.op_type](attributes, *operands)
        return tuple(values[value.name] for value in graph.output)

    network = type("Network", (torch.nn.Module,), {"forward": forward})().eval()
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # branches on sizes are the same each time
        traced = torch.jit.trace(network, tuple(inputs), check_trace=False)
        found: Callable[..., Any] = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    return found


def _fold(path: Path) -> onnx.ModelProto:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "folded.onnx")
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def _join_biases(graph: onnx.GraphProto) -> None:
    """Replace each product with weights, read only by an add of a bias, by `Linear`: ``x @ weights + bias``."""
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for node in list(graph.node):
        node_readers = readers.get(node.output[0], [])
        if (
            node.op_type != "MatMul"
            or ranks.get(node.input[1]) != 2
            or [other.op_type for other in node_readers] != ["Add"]
        ):
            continue
        (added,) = node_readers
        biases = [name for name in added.input if ranks.get(name) == 1]
        if biases:
            node.op_type, node.output[0] = "Linear", added.output[0]
            node.input.append(biases[0])
            graph.node.remove(added)


def _operations(torch: Any) -> dict[str, Callable[..., Any]]:
    functional = torch.nn.functional

    def padded(attributes: Attributes, x: Any, value: float) -> Any:
        before_after = attributes.get("pads", [0] * 4)
        rank = len(before_after) // 2
        if not any(before_after):
            return x
        return functional.pad(
            x, [before_after[a + e * rank] for a in reversed(range(rank)) for e in (0, 1)], value=value
        )

    def symmetric(attributes: Attributes) -> list[int] | None:
        pads = list(attributes.get("pads", [0] * 4))
        return pads[:2] if pads[:2] == pads[2:] else None

    def convolve(attributes: Attributes, x: Any, weight: Any, bias: Any = None) -> Any:
        padding = symmetric(attributes)
        x, padding = (padded(attributes, x, 0.0), [0, 0]) if padding is None else (x, padding)
        geometry = (attributes.get("strides", [1, 1]), padding, attributes.get("dilations", [1, 1]))
        return functional.conv2d(x, weight, bias, *map(list, geometry), attributes.get("group", 1))

    def pool_max(attributes: Attributes, x: Any) -> Any:
        padding = symmetric(attributes)
        x, padding = (padded(attributes, x, float("-inf")), [0, 0]) if padding is None else (x, padding)
        return functional.max_pool2d(
            x, list(attributes["kernel_shape"]), list(attributes.get("strides", [1, 1])), padding
        )

    def pool_mean(attributes: Attributes, x: Any) -> Any:
        padding = symmetric(attributes)
        assert padding is not None
        windows = (list(attributes["kernel_shape"]), list(attributes.get("strides", [1, 1])), padding)
        return functional.avg_pool2d(x, *windows, count_include_pad=bool(attributes.get("count_include_pad", 0)))

    def product(attributes: Attributes, x: Any, y: Any, bias: Any = None) -> Any:
        assert not attributes.get("transA", 0)
        weight = y if attributes.get("transB", 0) else y.transpose(0, 1)
        return functional.linear(x, weight, bias)

    def normalise(attributes: Attributes, x: Any, *parameters: Any) -> Any:
        scale, shift, mean, variance = parameters
        return functional.batch_norm(x, mean, variance, scale, shift, eps=attributes.get("epsilon", 1e-5))

    def attend(attributes: Attributes, query: Any, key: Any, value: Any, mask: Any) -> Any:
        heads = attributes["q_num_heads"]
        assert heads == attributes["kv_num_heads"]
        assert not attributes.get("is_causal", 0)
        split = (x.unflatten(2, (heads, -1)).transpose(1, 2) for x in (query, key, value))
        return functional.scaled_dot_product_attention(*split, attn_mask=mask).transpose(1, 2).flatten(2)

    def gather(attributes: Attributes, x: Any, index: Any) -> Any:
        axis = attributes.get("axis", 0)
        if index.dim() == 0:
            return x.select(axis, index.item())
        assert axis == 0
        return functional.embedding(index, x)

    def recur(function: Any, gates: Sequence[int], num_states: int, x: Any, *parameters: Any) -> Any:
        """Return a layer's hidden states; PyTorch has the gates in another order."""
        weights = [torch.cat([parameter[0].chunk(len(gates))[gate] for gate in gates]) for parameter in parameters[:2]]
        shifts = [torch.cat([half.chunk(len(gates))[gate] for gate in gates]) for half in parameters[2][0].chunk(2)]
        state = x.new_zeros(1, x.shape[1], weights[1].shape[1])
        first = state if num_states == 1 else (state,) * num_states
        return function(x, first, [*weights, *shifts], True, 1, 0.0, False, False, False)[0].unsqueeze(1)

    return {
        "Add": lambda _, x, y: x + y,
        "Attention": attend,
        "AveragePool": pool_mean,
        "BatchNormalization": normalise,
        "Cast": lambda attributes, x: x.to({9: torch.bool}[attributes["to"]]),
        "Clip": lambda _, x, low, high: functional.hardtanh(x, low.item(), high.item()),
        "Concat": lambda attributes, *x: torch.cat(x, attributes["axis"]),
        "Conv": convolve,
        "Expand": lambda _, x, shape: x.expand(shape.tolist()),
        "Flatten": lambda attributes, x: x.flatten(attributes.get("axis", 1)),
        "GRU": lambda _, *x: recur(torch._VF.gru, (1, 0, 2), 1, *x),
        "Gather": gather,
        "Gelu": lambda attributes, x: functional.gelu(x, approximate=attributes.get("approximate", b"none").decode()),
        "Gemm": product,
        "GlobalAveragePool": lambda _, x: functional.adaptive_avg_pool2d(x, 1),
        "LSTM": lambda _, *x: recur(torch._VF.lstm, (0, 2, 3, 1), 2, *x),
        "LayerNormalization": lambda attributes, x, *parameters: functional.layer_norm(
            x, parameters[0].shape, *parameters, eps=attributes["epsilon"]
        ),
        "Linear": lambda _, x, weights, bias: functional.linear(x, weights.transpose(0, 1), bias),
        "MatMul": lambda _, x, y: torch.matmul(x, y),
        "MaxPool": pool_max,
        "Mul": lambda _, x, y: x * y,
        "Relu": lambda _, x: functional.relu(x),
        "Reshape": lambda _, x, shape: x.reshape([x.shape[k] if s == 0 else s for k, s in enumerate(shape.tolist())]),
        "Softmax": lambda attributes, x: functional.softmax(x, attributes.get("axis", 1)),
        "Squeeze": lambda _, x, axes: x.squeeze(axes.tolist()),
        "Sum": lambda _, *x: sum(x[1:], x[0]),
        "Tanh": lambda _, x: torch.tanh(x),
        "Transpose": lambda attributes, x: x.permute(attributes["perm"]),
        "Unsqueeze": lambda _, x, axes: functools.reduce(lambda y, axis: y.unsqueeze(axis), sorted(axes.tolist()), x),
    }
