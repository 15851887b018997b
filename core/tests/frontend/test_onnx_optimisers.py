"""Steps of optimisers, against the formulas of the operators in float64 and ONNX's reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.reference
import pytest
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from onnx import TensorProto, helper

NDArray = npt.NDArray[Any]
Run = Callable[..., Sequence[NDArray]]
DOMAIN = "ai.onnx.preview.training"
CODES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
NUM_STATES = {"Adagrad": 1, "Adam": 2, "Momentum": 1}


def _model(
    op_type: str,
    dtypes: Sequence[str],
    shapes: Sequence[Sequence[Any]],
    *,
    rate_shape: Sequence[int] = (),
    **attrs: Any,
) -> onnx.ModelProto:
    """Return a model of one node.

    Args:
        op_type: the operator.
        dtypes: the dtype of the learning rate, then of each tensor.
        shapes: the shapes of the tensors.
        rate_shape: the shape of learning rate and count.
        attrs: the attributes.
    """
    inputs = [helper.make_tensor_value_info("r", CODES[dtypes[0]], rate_shape)]
    inputs.append(helper.make_tensor_value_info("t", TensorProto.INT64, rate_shape))
    kinds = ("x", "g", "v", "h")[: 2 + NUM_STATES[op_type]]
    for kind in kinds:
        for index, (dtype, shape) in enumerate(zip(dtypes[1:], shapes, strict=True)):
            inputs.append(helper.make_tensor_value_info(f"{kind}{index}", CODES[dtype], shape))
    outputs = [f"new_{kind}{index}" for kind in kinds if kind != "g" for index in range(len(shapes))]
    names = [value.name for value in inputs]
    node = helper.make_node(op_type, names, outputs, name="the_node", domain=DOMAIN, **attrs)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _feeds(
    model: onnx.ModelProto, sizes: Mapping[str, int], rate: float, count: int, seed: int = 0
) -> dict[str, NDArray]:
    rng, feeds = np.random.default_rng(seed), {}
    for value in model.graph.input:
        type_ = value.type.tensor_type
        shape = [dim.dim_value or sizes.get(dim.dim_param, 0) for dim in type_.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(type_.elem_type)
        low = 0.0 if value.name[0] == "h" or value.name[0] == "v" else -1.0
        feeds[value.name] = rng.uniform(low, 1, shape).astype(dtype)
    feeds["r"][...], feeds["t"][...] = rate, count
    return feeds


def _expected(op_type: str, feeds: Mapping[str, NDArray], count: int, attrs: Mapping[str, Any]) -> list[NDArray]:
    """Return the new tensors by the formulas of the standard, in float64."""
    numbers = {name: float(np.float32(value)) for name, value in attrs.items() if isinstance(value, float)}
    wide = {name: array.astype(np.float64) for name, array in feeds.items()}
    rate, times = float(wide["r"].item()), int(feeds["t"].item())
    groups: list[list[NDArray]] = []
    for index in range(count):
        x, g = wide[f"x{index}"], wide[f"g{index}"]
        v = wide[f"v{index}"]
        g = numbers.get("norm_coefficient", 0) * x + g
        epsilon = numbers.get("epsilon", float(np.float32(1e-6)))
        if op_type == "Adagrad":
            v = v + g * g
            step = rate / (1 + times * numbers.get("decay_factor", 0)) * g / (np.sqrt(v) + epsilon)
            groups.append([x - step, v])
        elif op_type == "Momentum":
            v = numbers["alpha"] * v + (numbers["beta"] if times > 0 else 1) * g
            direction = g + numbers["alpha"] * v if attrs["mode"] == "nesterov" else v
            groups.append([x - rate * direction, v])
        else:
            alpha, beta = (numbers.get(name, float(np.float32(d))) for name, d in (("alpha", 0.9), ("beta", 0.999)))
            v = alpha * v + (1 - alpha) * g
            h = beta * wide[f"h{index}"] + (1 - beta) * g * g
            corrected = rate * math.sqrt(1 - beta**times) / (1 - alpha**times) if times > 0 else rate
            new = x - corrected * v / (np.sqrt(h) + epsilon)
            groups.append([(1 - numbers.get("norm_coefficient_post", 0)) * new, v, h])
    return [array for kind in zip(*groups, strict=True) for array in kind]


_ATTRS: list[tuple[str, dict[str, Any]]] = [
    ("Adagrad", {}),
    ("Adagrad", {"norm_coefficient": 0.125, "epsilon": 1e-3, "decay_factor": 0.1}),
    ("Adam", {}),
    ("Adam", {"norm_coefficient": 0.25, "alpha": 0.75, "beta": 0.875, "epsilon": 1e-2}),
    ("Adam", {"norm_coefficient_post": 0.25, "alpha": 0.0}),
    ("Momentum", {"alpha": 0.875, "beta": 0.75, "norm_coefficient": 0.0, "mode": "standard"}),
    ("Momentum", {"alpha": 0.875, "beta": 0.75, "norm_coefficient": 0.1, "mode": "nesterov"}),
    ("Momentum", {"alpha": 0.0, "beta": 0.75, "norm_coefficient": 0.1, "mode": "nesterov"}),
]


@pytest.mark.parametrize(("op_type", "attrs"), _ATTRS)
@pytest.mark.parametrize("times", [-1, 0, 1, 7, 100_000])
@pytest.mark.parametrize(
    ("dtypes", "shapes", "rate_shape"),
    [
        (("float32", "float32"), [(3, 4)], ()),
        (("float64", "float64"), [()], (1,)),
        (("float32", "float32", "float64", "float32"), [(3,), (2, 2), (1, 1, 5)], ()),
        (("float64", "float32", "float32"), [("n", 3), (2, "m")], ()),
    ],
)
def test_same_as_the_formulas(
    op_type: str,
    attrs: dict[str, Any],
    times: int,
    dtypes: Sequence[str],
    shapes: Sequence[Sequence[Any]],
    rate_shape: Sequence[int],
    run: Run,
) -> None:
    model = _model(op_type, dtypes, shapes, rate_shape=rate_shape, **attrs)
    feeds = _feeds(model, {"n": 2, "m": 3}, 0.125, times)
    results = run(from_onnx(model), feeds)
    for index, (result, wanted) in enumerate(zip(results, _expected(op_type, feeds, len(shapes), attrs), strict=True)):
        dtype = dtypes[1 + index % len(shapes)]
        assert (result.dtype, result.shape) == (np.dtype(dtype), wanted.shape)
        error = 8 * float(np.finfo(dtype).eps)
        # The step is at most some units; its own error is relative to the largest step.
        scale = float(np.abs(wanted).max(initial=1.0))
        np.testing.assert_allclose(result.astype(np.float64), wanted, rtol=error, atol=error * scale)


@pytest.mark.parametrize(("op_type", "attrs"), _ATTRS)
@pytest.mark.parametrize("count", [1, 2])
def test_same_as_the_reference(op_type: str, attrs: dict[str, Any], count: int, run: Run) -> None:
    model = _model(op_type, ["float32"] * (1 + count), [(2, 3), (4,)][:count], **attrs)
    feeds = _feeds(model, {}, 0.5, 3, seed=1)
    results = run(from_onnx(model), feeds)
    expected: Any = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=2**-18, atol=2**-20)


def test_outputs_may_be_left_out(run: Run) -> None:
    model = _model("Adam", ["float32"] * 3, [(2,), (3,)])
    feeds = _feeds(model, {}, 0.5, 3)
    everything = run(from_onnx(model), feeds)
    node = model.graph.node[0]
    node.output[:] = ["", "new_x1", "new_v0"]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ("new_x1", "new_v0"))
    for result, wanted in zip(run(from_onnx(model), feeds), everything[1:3], strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_rates_may_be_constants(run: Run) -> None:
    """Learning rate and count are computed during the import then."""
    model = _model("Adam", ["float32"] * 2, [(2, 3)])
    feeds = _feeds(model, {}, 0.5, 3)
    wanted = run(from_onnx(model), feeds)
    for name in ("r", "t"):
        model.graph.initializer.append(onnx.numpy_helper.from_array(feeds.pop(name), name))
    del model.graph.input[:2]
    for result, expected in zip(run(from_onnx(model), feeds), wanted, strict=True):
        np.testing.assert_array_equal(result, expected)


def _refuse(model: onnx.ModelProto) -> str:
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    return str(caught.value)


def test_malformed_nodes() -> None:
    momentum: dict[str, Any] = {"alpha": 0.5, "beta": 0.5, "norm_coefficient": 0.0}
    node = "ONNX model, node `the_node`"
    model = _model("Momentum", ["float32"] * 2, [(3,)], mode="quick", **momentum)
    assert _refuse(model) == f"{node} (Momentum): attribute `mode` is unknown; got quick, expected standard or nesterov"
    assert _refuse(_model("Momentum", ["float32"] * 2, [(3,)], **momentum)).endswith("lacks attribute `mode`")
    model = _model("Adam", ["float32"] * 2, [(3,)], rate_shape=(2,))
    assert _refuse(model) == f"{node} (Adam): the learning rate is not a scalar; got (2,), expected ()"
    for op_type, group in (("Adam", 4), ("Adagrad", 3)):
        model = _model(op_type, ["float32"] * 2, [(3,)])
        model.graph.node[0].input.append("x0")
        assert _refuse(model) == (
            f"{node} ({op_type}): has the wrong number of inputs; got {3 + group}, expected 2, and {group} for each "
            "optimised tensor"
        )
    model = _model("Adagrad", ["float32"] * 2, [(3,)])
    del model.graph.node[0].input[2:]
    assert "has the wrong number of inputs; got 2" in _refuse(model)
